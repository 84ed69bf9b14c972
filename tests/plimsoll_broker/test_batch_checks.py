"""A malformed batch is rejected, however long its check takes, and no other client waits for it."""

import asyncio
import gzip
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller, a_batch, a_record

from plimsoll_broker.handlers import batch_checks, produce
from plimsoll_broker.handlers.batch_checks import (
    OPENED_AT_ONCE,
    PARTITIONS_AT_ONCE,
    RECORDS_AT_ONCE,
)
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    iter_headers,
    parse_header,
    seal,
)
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.produce import ProducePartition, ProduceRequest, ProduceTopic

Make = Callable[[int], Broker]
HOSTILE_BYTES = 300
Producer = tuple[int, int, int]

NO_PRODUCER: Producer = (-1, -1, -1)


def says(batch: bytes, **fields: int) -> bytes:
    """The same records under another header."""
    return seal(parse_header(batch)._replace(**fields), batch[HEADER_SIZE:])


def holds(batch: bytes, records: bytes, codec: int = 0) -> bytes:
    """The same header over other records."""
    return seal(parse_header(batch)._replace(attributes=codec), records)


def zipped(batch: bytes) -> bytes:
    return holds(batch, gzip.compress(batch[HEADER_SIZE:], 1), 1)


def produced(
    batch: bytes | list[bytes],
    acks: int = -1,
    topic: str = "t",
    transactional_id: str | None = None,
) -> dict:
    batches = batch if isinstance(batch, list) else [batch]
    partitions = [{"index": index, "records": each} for index, each in enumerate(batches)]
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 5_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }


@pytest.fixture
async def one(broker: Make, controller: Controller) -> Broker:
    started = await broker(0).start()
    controller.create("t", (0,))
    await until(lambda: len(started.manager) == 1)
    # A log's first append waits, in a thread, until it is durable.
    await until(lambda: started.store.begin_new() is None)
    return started


@pytest.fixture
async def client(one: Broker) -> Client:
    return await one.client()


@pytest.mark.parametrize(
    ("batch", "code", "record"),
    [
        (holds(a_batch(5), a_record(0, b"alone")), Code.INVALID_RECORD, 1),
        (says(a_batch(4), count=5, last_offset_delta=4), Code.INVALID_RECORD, 4),
        (says(a_batch(4), count=3, last_offset_delta=2), Code.INVALID_RECORD, 2),
        (says(a_batch(1), count=2**31 - 1, last_offset_delta=2**31 - 2), Code.INVALID_RECORD, 2),
        (says(a_batch(1), count=0, last_offset_delta=-1 & 0x7FFFFFFF), Code.INVALID_RECORD, None),
        (holds(a_batch(1), b"this is no record at all"), Code.INVALID_RECORD, 0),
        (holds(a_batch(1), b"this is no gzip at all", 1), Code.INVALID_RECORD, 0),
        (holds(a_batch(5), gzip.compress(a_record(0)), 1), Code.INVALID_RECORD, 1),
        (says(a_batch(1), attributes=LOG_APPEND_TIME), Code.INVALID_TIMESTAMP, None),
        (says(a_batch(1), attributes=DELETE_HORIZON), Code.INVALID_RECORD, None),
        (says(a_batch(1), producer_id=7, base_sequence=0), Code.INVALID_PRODUCER_EPOCH, None),
    ],
    ids=[
        "too-few", "one-too-few", "one-too-many", "absurd-count", "none", "garbage", "no-gzip",
        "too-few-in-gzip", "log-append-time", "delete-horizon", "no-epoch",
    ],
)  # fmt: skip
async def test_invalid_batch_is_refused_and_not_written(
    one: Broker, client: Client, batch: bytes, code: Code, record: int | None
) -> None:
    reply = await client.ask(ApiKey.PRODUCE, 9, produced(batch))
    refused = reply.responses[0].partition_responses[0]
    assert int(refused.error_code) == code
    assert refused.error_message
    named = [(one.batch_index, one.batch_index_error_message) for one in refused.record_errors]
    assert named == ([] if record is None else [(record, refused.error_message)])
    assert one.hosted("t").log.log_end_offset == 0
    assert (await client.produce("t", a_batch(1))) == (Code.NONE, 0), "and the next one is fine"


@pytest.mark.parametrize("transactional_id", ["", "mine"])
async def test_transactional_id_matters_for_transactional_batches_only(
    one: Broker, client: Client, transactional_id: str
) -> None:
    """kafka_protocol (Erlang) names an empty one in every request; Kafka looks at the batches."""
    of_one = says(a_batch(1), attributes=TRANSACTIONAL)
    for batch, code in ((a_batch(1), Code.NONE), (of_one, Code.INVALID_RECORD)):
        request = produced(batch, transactional_id=transactional_id)
        reply = await client.ask(ApiKey.PRODUCE, 9, request)
        assert reply.responses[0].partition_responses[0].error_code == code
    assert one.hosted("t").log.log_end_offset == 1


@pytest.fixture
def checkers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Which thread checked a batch of how many records."""
    seen: list[tuple[int, int]] = []
    real = batch_checks.check_records

    def watched(records: bytes | memoryview, count: int) -> None:
        seen.append((threading.get_ident(), count))
        real(records, count)

    monkeypatch.setattr(batch_checks, "check_records", watched)
    return seen


@pytest.mark.parametrize(
    "batch",
    [
        a_batch(RECORDS_AT_ONCE + 1),
        zipped(a_batch(RECORDS_AT_ONCE + 1)),
        zipped(a_batch(1, filler=OPENED_AT_ONCE)),
    ],
    ids=["many", "many-in-gzip", "large-in-gzip"],
)
async def test_large_batch_is_checked_in_a_thread(
    client: Client, checkers: list[tuple[int, int]], batch: bytes
) -> None:
    assert (await client.produce("t", a_batch(1))) == (Code.NONE, 0)
    assert (await client.produce("t", batch)) == (Code.NONE, 1)
    (short, _), (long, _) = checkers
    assert short == threading.get_ident() != long
    assert (await client.produce("t", zipped(a_batch(1))))[0] == Code.NONE
    assert checkers[2] == (threading.get_ident(), 1), "what is small is opened at once"


async def test_request_of_many_batches_counts_as_long(
    one: Broker, client: Client, controller: Controller, checkers: list[tuple[int, int]]
) -> None:
    """A batch each is short; all of them together are not."""
    many = PARTITIONS_AT_ONCE + 1
    controller.create("many", *[(0,)] * many)
    await until(lambda: len(one.manager) == 1 + many)
    reply = await client.ask(ApiKey.PRODUCE, 9, produced([a_batch(1)] * many, topic="many"))
    answers = reply.responses[0].partition_responses
    assert [(int(each.error_code), each.base_offset) for each in answers] == [(0, 0)] * many
    assert threading.get_ident() not in {thread for thread, _ in checkers}


async def test_produce_of_many_partitions_is_checked_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[object] = []
    monkeypatch.setattr(batch_checks, "effort", looked_at.append)
    sent = [ProducePartition(index, None) for index in range(PARTITIONS_AT_ONCE + 1)]
    request = ProduceRequest(None, 1, 1_000, [ProduceTopic("t", sent)])
    assert batch_checks.check_at_once(request, lambda *_: True) is None
    assert not looked_at


async def test_request_with_impossible_partitions_closes_its_connection(
    one: Broker,
) -> None:
    stranger, other = await one.client(), await one.client()
    with pytest.raises(Exception, match="closed"):
        await stranger.ask(ApiKey.PRODUCE, 9, produced([b""] * 10_001))
    assert (await other.produce("t", a_batch(1))) == (Code.NONE, 0)


# --- order ----------------------------------------------------------------------------------------


class Pipe:
    """A connection that sends without waiting for answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent = 0

    @classmethod
    async def to(cls, broker: Broker) -> "Pipe":
        return cls(*await asyncio.open_connection("127.0.0.1", broker.server.port))

    def send(self, batch: bytes, acks: int = -1, topic: str = "t") -> None:
        self._sent += 1
        body = encode_request(ApiKey.PRODUCE, 9, produced(batch, acks, topic))
        self._writer.write(request_frame(ApiKey.PRODUCE, 9, self._sent, "test", body))

    async def answer(self) -> tuple[int, int, int]:
        """Which request, its code and base offset."""
        size = int.from_bytes(await self._reader.readexactly(4))
        reply = await self._reader.readexactly(size)
        body = decode_response(ApiKey.PRODUCE, 9, reply[5:])
        one = body.responses[0].partition_responses[0]
        return int.from_bytes(reply[:4]), int(one.error_code), one.base_offset

    def vanish(self) -> None:
        """No end of what it sends, but of the connection."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()

    async def leave(self) -> None:
        await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Has a check in a thread begun; may it go on.  Every compressed batch is checked in one."""
    begun, go_on = threading.Event(), threading.Event()
    real = batch_checks._check_all

    def held(some):
        begun.set()
        assert go_on.wait(30)
        return real(some)

    monkeypatch.setattr(batch_checks, "_check_all", held)
    monkeypatch.setattr(batch_checks, "OPENING_AT_ONCE", 0)
    return begun, go_on


async def test_batch_behind_thread_check_is_appended_after_it(
    one: Broker, gate: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = gate
    pipe = await Pipe.to(one)
    pipe.send(zipped(a_batch(2, producer=(7, 0, 0))))
    pipe.send(a_batch(3, producer=(7, 0, 2)))
    pipe.send(zipped(a_batch(1, producer=(7, 0, 5))))
    await asyncio.to_thread(begun.wait, 30)
    other = await one.client()
    assert (await other.latest("t")) == (Code.NONE, 0)
    assert (await other.produce("t", a_batch(1))) == (Code.NONE, 0), "others do not wait"
    go_on.set()
    assert [await pipe.answer() for _ in range(3)] == [(1, 0, 1), (2, 0, 3), (3, 0, 6)]
    await pipe.leave()


async def test_batch_behind_rejected_one_gets_same_error(
    one: Broker, controller: Controller, gate: tuple[threading.Event, threading.Event]
) -> None:
    """The rule of `overtaking` holds across both ways."""
    begun, go_on = gate
    pipe = await Pipe.to(one)
    pipe.send(zipped(a_batch(2, producer=(7, 0, 0))))
    pipe.send(a_batch(3, producer=(7, 0, 2)))
    await asyncio.to_thread(begun.wait, 30)
    controller.heartbeat(one, fence=True)
    await until(lambda: one.hosted("t").replica.leader is None)
    go_on.set()
    refused = [(await pipe.answer())[1] for _ in range(2)]
    assert refused == [Code.NOT_LEADER_OR_FOLLOWER] * 2
    controller.heartbeat(one)
    await until(lambda: one.hosted("t").replica.leader is not None)
    pipe.send(a_batch(3, producer=(7, 0, 2)))
    pipe.send(zipped(a_batch(2, producer=(7, 0, 0))))
    pipe.send(a_batch(3, producer=(7, 0, 2)))
    assert (await pipe.answer())[1] == Code.NOT_LEADER_OR_FOLLOWER, "it would begin in the middle"
    assert [(await pipe.answer())[1:] for _ in range(2)] == [(0, 0), (0, 2)]
    await pipe.leave()


async def test_acks_0_batches_are_appended_after_disconnect(
    one: Broker, gate: tuple[threading.Event, threading.Event]
) -> None:
    """acks=0: send and leave is how such a client ends."""
    begun, go_on = gate
    pipe = await Pipe.to(one)
    pipe.send(zipped(a_batch(2)), acks=0)
    pipe.send(a_batch(3), acks=0)
    await asyncio.to_thread(begun.wait, 30)
    await pipe.leave()
    go_on.set()
    await until(lambda: one.hosted("t").log.log_end_offset == 5)
    counts = [header.count for header in iter_headers(one.bytes_of("t"))]
    assert counts == [2, 3]


async def test_produces_of_disconnected_client_are_not_checked(
    one: Broker,
    gate: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker was busy for minutes after the sender had left."""
    begun, go_on = gate
    held = batch_checks._check_all
    checked: list[Any] = []

    def counted(some: Any) -> Any:
        checked.append(some)
        return held(some)

    monkeypatch.setattr(batch_checks, "_check_all", counted)
    pipes = [await Pipe.to(one) for _ in range(4)]
    for pipe in pipes:
        for _ in range(3):
            pipe.send(zipped(a_batch(2)))
    await asyncio.to_thread(begun.wait, 30)
    await until(lambda: len(checked) == 1)
    for pipe in pipes:
        pipe.vanish()
    await until(lambda: one.server.connections == 0)
    go_on.set()
    other = await one.client()
    assert (await other.produce("t", zipped(a_batch(1))))[0] == 0
    assert len(checked) == 2


async def test_produce_waits_for_no_other_users_check(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads that check were another's, for as long as that had batches to be opened."""
    go_on, real = threading.Event(), batch_checks._check_all
    begun = threading.Semaphore(0)
    hostile = [await Pipe.to(one) for _ in range(6)]
    await until(lambda: one.server.connections == len(hostile))
    victim = await Pipe.to(one)
    mine = victim._writer.get_extra_info("sockname")
    monkeypatch.setattr(
        ConnectionState,
        "holder",
        property(lambda self: "victim" if self.client.endswith(f":{mine[1]}") else "hostile"),
    )
    monkeypatch.setattr(batch_checks, "OPENING_AT_ONCE", 0)

    def held(some):
        if any(len(records) > HOSTILE_BYTES for _, records, _ in some):
            begun.release()
            assert go_on.wait(30)
        return real(some)

    monkeypatch.setattr(batch_checks, "_check_all", held)
    for pipe in hostile:
        pipe.send(zipped(a_batch(1_000)))
    assert await asyncio.to_thread(begun.acquire, timeout=30)
    try:
        victim.send(zipped(a_batch(1)))
        async with asyncio.timeout(WAIT_S):
            assert (await victim.answer())[1:] == (Code.NONE, 0)
    finally:
        go_on.set()
    for pipe in hostile:
        assert (await pipe.answer())[1] == Code.NONE
    for pipe in (victim, *hostile):
        await pipe.leave()


async def test_bug_in_queue_surfaces_after_client_left(
    one: Broker,
    gate: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = gate
    told: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    broken = RuntimeError("a bug of ours")

    def breaks(*_: object) -> None:
        raise broken

    monkeypatch.setattr(produce.ProduceHandler, "_partition", breaks)
    pipe = await Pipe.to(one)
    pipe.send(zipped(a_batch(2)))
    await asyncio.to_thread(begun.wait, 30)
    pipe.vanish()
    await until(lambda: one.server.connections == 0)
    go_on.set()
    await until(lambda: told == [broken])
    loop.set_exception_handler(None)


@pytest.mark.parametrize("namesake", [True, False])
async def test_batch_is_written_only_where_it_was_checked(
    one: Broker,
    controller: Controller,
    gate: tuple[threading.Event, threading.Event],
    namesake: bool,
) -> None:
    """While it was checked its topic went, and another one got the name, or its topic was compacted
    from then on: records without a key were written to a log that keeps the last of each key."""
    begun, go_on = gate
    finalized = MetadataVersionFinalized(cause="test", metadata_version=2)
    controller.image = apply(controller.image, finalized)
    one.tell()
    pipe, before = await Pipe.to(one), one.hosted("t")
    pipe.send(zipped(a_batch(2, producer=(7, 0, 0))))
    pipe.send(zipped(a_batch(1, producer=(7, 0, 2))))
    await asyncio.to_thread(begun.wait, 30)
    if namesake:
        gone = TopicObject(namespace="test", name="t", uid="t")
        controller.request(
            TopicObjectGone(object=gone, server_now_ms=1, grace_ms=0, removals_per_hour_max=1)
        )
    controller.create("t", (0,), **({} if namesake else {"cleanup.policy": "compact"}))
    if namesake:
        await until(lambda: one.manager.by_name("t", 0) not in (None, before))
    hosted = one.hosted("t")
    await until(lambda: hosted.replica.leader is not None and hosted.demand.keyed is not namesake)
    go_on.set()
    refused = [(await pipe.answer())[1] for _ in range(2)]
    # The second was checked for what it is by then: it may not overtake the first.
    assert refused[0] == Code.NOT_LEADER_OR_FOLLOWER
    assert refused[1] == Code.NOT_LEADER_OR_FOLLOWER
    assert hosted.log.log_end_offset == 0
    await pipe.leave()
