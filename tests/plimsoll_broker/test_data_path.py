"""What clients are answered, and what becomes of data when partitions come and go."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.no_fetchers import NoFetchers
from tests.plimsoll_broker.test_batch_checks import says
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, CreateTopics, DeleteTopics, NewTopic, Request
from plimsoll_wire.api_versions import ApiKey

Make = Callable[[int], Broker]


@pytest.fixture
async def one(broker: Make) -> Broker:
    return await broker(0).start()


@pytest.fixture
async def client(one: Broker, controller: Controller) -> Client:
    """A client of a broker that alone holds topic `t`."""
    controller.create("t", (0,), (0,))
    return await one.client()


# --- produce -------------------------------------------------------------------------------------


def spoiled(batch: bytes, at: int, to: int) -> bytes:
    return batch[:at] + bytes([to]) + batch[at + 1 :]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", Code.INVALID_RECORD),
        (b"\x00" * 200, Code.CORRUPT_MESSAGE),
        (spoiled(a_batch(1), 70, 0xFF), Code.CORRUPT_MESSAGE),
        (a_batch(1)[:-1], Code.INVALID_RECORD),
        (a_batch(1)[:10], Code.INVALID_RECORD),
        (spoiled(spoiled(a_batch(1), 16, 1), 17, 0), Code.INVALID_RECORD),
        (spoiled(a_batch(1), 16, 0), Code.CORRUPT_MESSAGE),
        (spoiled(a_batch(1), 16, 3), Code.CORRUPT_MESSAGE),
        (spoiled(a_batch(1), 0, 0xFF), Code.INVALID_RECORD),
        (spoiled(a_batch(1), 9, 1), Code.CORRUPT_MESSAGE),
        (spoiled(a_batch(1), 57, 0xFF), Code.CORRUPT_MESSAGE),
        (says(a_batch(1), count=-1), Code.INVALID_RECORD),
        (a_batch(1) + a_batch(1), Code.INVALID_RECORD),
        (spoiled(a_batch(1), 7, 5), Code.INVALID_RECORD),
        (a_batch(1, producer=(7, 0, -1)), Code.INVALID_RECORD),
        (a_batch(1, filler=1_100_000), Code.MESSAGE_TOO_LARGE),
    ],
    ids=[
        *("none", "zeros", "crc", "torn", "less than a header", "older", "magic", "no magic"),
        *("negative offset", "length", "count", "negative count", "two", "offset"),
        *("no-sequence", "large"),
    ],
)
async def test_bad_batch_is_refused_and_nothing_is_written(
    one: Broker, client: Client, records: bytes, code: Code
) -> None:
    assert (await client.produce("t", records))[0] == code
    assert one.hosted("t").log.log_end_offset == 0
    assert (await client.produce("t", a_batch(1))) == (Code.NONE, 0), "and the next one is fine"


async def test_produce_to_unknown_partition_returns_its_error(
    client: Client, broker: Make, controller: Controller
) -> None:
    assert (await client.produce("nowhere", a_batch(1)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce("t", a_batch(1), index=9))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.produce("t", a_batch(1), acks=2))[0] == Code.INVALID_REQUIRED_ACKS
    other = await (await broker(1).start()).client()
    assert (await other.produce("t", a_batch(1)))[0] == Code.NOT_LEADER_OR_FOLLOWER


async def test_acks_0_error_closes_the_connection(client: Client) -> None:
    with pytest.raises(PeerLost):
        await client.produce("nowhere", a_batch(1), acks=0)


async def test_retry_is_written_once_with_first_offset(one: Broker, client: Client) -> None:
    await client.produce("t", a_batch(3))
    batch = a_batch(2, producer=(7, 0, 0))
    assert await client.produce("t", batch) == (Code.NONE, 3)
    assert await client.produce("t", batch) == (Code.NONE, 3)
    assert one.hosted("t").log.log_end_offset == 5
    gap = await client.produce("t", a_batch(1, producer=(7, 0, 9)))
    assert gap[0] == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_leader_stamps_only_offset_and_epoch(one: Broker, client: Client) -> None:
    batch = a_batch(2)
    await client.produce("t", a_batch(1))
    await client.produce("t", batch)
    log = one.hosted("t").log
    stored = log.read(1, 2**20, 3)
    assert int.from_bytes(stored[:8], "big") == 1
    assert int.from_bytes(stored[12:16], "big") == one.hosted("t").replica.partition.leader_epoch
    assert stored[16:] == batch[16:]


async def test_full_disk_disables_one_partition_only(
    one: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = one.hosted("t").log

    def full(*_: object) -> None:
        raise StorageError(StorageFault.FULL, Path("segment"), "no space")

    monkeypatch.setattr(log.segments[-1].file.__class__, "append", full)
    assert (await client.produce("t", a_batch(1)))[0] == Code.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert (await client.produce("t", a_batch(1)))[0] == Code.KAFKA_STORAGE_ERROR
    assert (await client.fetch("t", 0)).code == Code.KAFKA_STORAGE_ERROR
    assert await client.produce("t", a_batch(1), index=1) == (Code.NONE, 0)


async def test_flush_messages_syncs_before_the_answer(controller: Controller, one: Broker) -> None:
    controller.create("safe", (0,), **{"flush.messages": "2"})
    client = await one.client()
    await client.produce("safe", a_batch(1))
    assert one.hosted("safe").log.recovery_point == 0
    await client.produce("safe", a_batch(1))
    assert one.hosted("safe").log.recovery_point == 2


# --- fetch ---------------------------------------------------------------------------------------


async def test_parked_fetch_is_woken_by_a_commit(one: Broker, client: Client) -> None:
    waiting = asyncio.create_task((await one.client()).fetch("t", 0, wait_ms=30_000))
    await until(lambda: one.server.connections == 2)
    await client.produce("t", a_batch(2))
    fetched = await waiting
    assert (fetched.code, fetched.high_watermark) == (Code.NONE, 2)
    assert len(fetched.records) == len(a_batch(2))


async def test_parked_fetch_ends_empty_at_timeout(client: Client) -> None:
    fetched = await client.fetch("t", 0, wait_ms=20)
    assert (fetched.code, fetched.records) == (Code.NONE, b"")


async def test_consumers_see_only_what_is_committed(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> None:
    for follower in three[1:]:
        follower.manager.fetchers = NoFetchers()
    controller.create("r", (0, 1, 2))
    client = await three[0].client()
    assert (await client.produce("r", a_batch(2), acks=1)) == (Code.NONE, 0)
    fetched = await client.fetch("r", 0)
    assert (fetched.code, fetched.records, fetched.high_watermark) == (Code.NONE, b"", 0)
    assert (await client.fetch("r", 2)).code == Code.NONE, "between high watermark and end: wait"
    assert (await client.fetch("r", 3)).code == Code.OFFSET_OUT_OF_RANGE


async def test_parked_fetch_hears_of_a_new_leader(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> None:
    controller.create("r", (0, 1, 2))
    client = await three[0].client()
    waiting = asyncio.create_task(client.fetch("r", 0, wait_ms=30_000))
    await until(lambda: bool(three[0].hosted("r").replica.parked._for_commit))
    controller.heartbeat(three[0], fence=True)
    assert (await waiting).code == Code.NOT_LEADER_OR_FOLLOWER


async def test_disconnect_cleans_up_a_parked_fetch(one: Broker, client: Client) -> None:
    """It might only have closed its sending half, and wait for the answer."""
    gone = await one.client()
    waiting = asyncio.create_task(gone.fetch("t", 0, wait_ms=30_000))
    parked = one.hosted("t").replica.parked
    await until(lambda: bool(parked._for_commit))
    gone.connection.close()
    with pytest.raises(PeerLost):
        await waiting
    (poll,) = parked._for_commit
    poll._expired()
    await until(lambda: not parked._for_commit)


async def test_unknown_fetch_session_is_refused(client: Client) -> None:
    values = fetch_values(session_id=5, session_epoch=1, topics=[])
    reply = await client.ask(ApiKey.FETCH, 12, values)
    assert int(reply.error_code) == 70


# --- offsets and ids -----------------------------------------------------------------------------


async def test_offsets_by_time(client: Client) -> None:
    for timestamp in (1_000, 2_000, 3_000):
        await client.produce("t", a_batch(2, timestamp=timestamp))
    assert await client.latest("t") == (Code.NONE, 6)
    assert await client.latest("t", timestamp=-2) == (Code.NONE, 0)
    assert await client.latest("t", timestamp=4_000) == (Code.NONE, -1)


async def test_offset_for_leader_epoch_returns_epoch_end(
    one: Broker, client: Client, controller: Controller
) -> None:
    await client.produce("t", a_batch(2))
    epoch = one.hosted("t").replica.partition.leader_epoch

    async def end_of(term: int) -> tuple[int, int, int]:
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": term}
        values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [asked]}]}
        reply = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
        found = reply.topics[0].partitions[0]
        return int(found.error_code), found.leader_epoch, found.end_offset

    assert await end_of(epoch) == (Code.NONE, epoch, 2)
    assert await end_of(epoch + 1) == (Code.NONE, -1, -1)


async def init_producer_id(client: Client, **values: object) -> tuple[int, int, int]:
    asked = {
        "transactional_id": None,
        "transaction_timeout": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        **values,
    }
    reply = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
    return int(reply.error_code), reply.producer_id, reply.producer_epoch


async def test_producer_ids_are_never_given_twice(
    one: Broker, client: Client, broker: Make
) -> None:
    other = await (await broker(1).start()).client()
    given = [await init_producer_id(c) for c in (client, other, client, other)]
    assert len({producer_id for _, producer_id, _ in given}) == 4
    assert {(code, epoch) for code, _, epoch in given} == {(Code.NONE, 0)}
    known = given[0][1]
    again = [await init_producer_id(client, producer_id=known, producer_epoch=3) for _ in range(2)]
    assert {(code, epoch) for code, _, epoch in again} == {(Code.NONE, 0)}
    assert len({producer_id for _, producer_id, _ in (*given, *again)}) == 6
    for half in ({"producer_id": known}, {"producer_epoch": 3}):
        assert await init_producer_id(client, **half) == (Code.INVALID_REQUEST, -1, -1)
    assert (await init_producer_id(client, transactional_id="t"))[0] == Code.INVALID_REQUEST


async def test_init_producer_id_without_controller_is_retriable(
    one: Broker, client: Client, controller: Controller
) -> None:
    async def silent(request: Request, timeout_ms: int = 0) -> Answer:
        raise NoController("no answer")

    controller.command = silent
    assert (await init_producer_id(client))[0] == 14


# --- topics come and go --------------------------------------------------------------------------


async def test_s35_recreated_topic_has_no_old_records(
    three: tuple[Broker, Broker, Broker], controller: Controller
) -> None:
    """Deletion and creation reach the broker as one change; a produce waits meanwhile."""
    one = three[0]
    wish = NewTopic(name="c", assignment=((BrokerId(0), BrokerId(1), BrokerId(2)),))
    controller.request(CreateTopics(topics=(wish,)))
    client = await one.client()
    assert await client.produce("c", a_batch(3)) == (Code.NONE, 0)
    for follower in three[1:]:
        await follower.path.fetchers.close()
    waiting = asyncio.create_task((await one.client()).produce("c", a_batch(1)))
    await until(lambda: one.hosted("c").log.log_end_offset == 4)
    old = one.hosted("c")
    one.deaf = True
    controller.request(DeleteTopics(names=("c",)))
    controller.request(CreateTopics(topics=(wish,)))
    one.hear()
    assert (await waiting)[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert one.hosted("c").key != old.key
    assert one.hosted("c").log.log_end_offset == 0
    assert one.manager.by_key(*old.key) is None
    assert one.manager.missing(*old.key) is Code.UNKNOWN_TOPIC_ID
    names = [path.name for path in one.directory.iterdir() if path.name.endswith("-delete")]
    assert len(names) == 1


async def test_data_of_another_topic_id_is_set_aside(controller: Controller, broker: Make) -> None:
    controller.brokers.clear()
    first = await broker(0).start()
    controller.create("t", (0,))
    await until(lambda: first.manager.by_name("t", 0) is not None)
    metadata = first.hosted("t").log.directory / "partition.metadata"
    await first.stop(clean=True)
    (first.directory / "unknown-0").mkdir()
    text = metadata.read_text().replace("topic_id: ", "topic_id: x")
    metadata.write_text(text)
    again = await broker(0).start(previous=first.epoch)
    names = sorted(path.name for path in again.directory.iterdir() if path.is_dir())
    assert [name.endswith("-stray") for name in names] == [False, True, True]
    assert again.hosted("t").log.log_end_offset == 0


async def test_high_watermark_survives_a_clean_stop(controller: Controller, broker: Make) -> None:
    first = await broker(0).start()
    controller.create("t", (0,))
    client = await first.client()
    await client.produce("t", a_batch(5))
    await first.stop(clean=True)
    again = await broker(0).start(previous=first.epoch)
    assert again.hosted("t").replica.high_watermark == 5
    assert (await (await again.client()).fetch("t", 0)).high_watermark == 5
