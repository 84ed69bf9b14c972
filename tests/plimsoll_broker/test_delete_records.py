"""A client shortens a log: durable on the leader, taken over by followers, and never too far."""

import asyncio
import threading
from collections.abc import Callable, Iterable

import pytest
from tests.plimsoll_broker.test_replication import Make, Three, until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.storage.checkpoint_files import OffsetFile
from plimsoll_broker.storage.checkpoint_formats import LOG_STARTS
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import parse_header
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

pytestmark = pytest.mark.usefixtures("small_segments")

KEPT = {"retention.ms": "-1"}
"""What only a client deletes: these records are old."""
NOTHING_GOES = {
    "cleanup.policy": "",
    "retention.ms": "1",
    "retention.bytes": "1",
    "segment.bytes": "100",
}


async def delete(
    client: Client, *partitions: tuple[int, int], version: int = 2, timeout_ms: int = 30_000
) -> list[tuple[int, int]]:
    """Code and low watermark of each (index, offset)."""
    named = [{"partition_index": index, "offset": offset} for index, offset in partitions]
    values = {"topics": [{"name": "t", "partitions": named}], "timeout": timeout_ms}
    reply = await client.ask(ApiKey.DELETE_RECORDS, version, values)
    return [(int(one.error_code), one.low_watermark) for one in reply.topics[0].partitions]


async def written(broker: Broker, batches: int = 5) -> Client:
    """Batches of two records."""
    client = await broker.client()
    for _ in range(batches):
        assert (await client.produce("t", a_batch(2)))[0] == Code.NONE
    return client


def at_newest_version(controller: Controller) -> None:
    finalized = MetadataVersionFinalized(cause="test", metadata_version=NEWEST)
    controller.image = apply(controller.image, finalized)


def starts(*brokers: Broker) -> list[int]:
    return [broker.hosted("t").log.log_start_offset for broker in brokers]


async def test_topic_without_policy_keeps_undeleted_records(
    controller: Controller, three: Three
) -> None:
    at_newest_version(controller)
    controller.create("t", (0, 1, 2), **NOTHING_GOES)
    client = await written(three[0])
    log = three[0].hosted("t").log
    assert len(log.segments) > 1
    assert log.apply_retention(2**62, log.log_end_offset) == 0
    assert await delete(client, (0, 5)) == [(Code.NONE, 5)]
    assert starts(*three) == [5, 5, 5]


async def test_delete_records_refuses_a_compacted_topic(
    controller: Controller, three: Three
) -> None:
    at_newest_version(controller)
    controller.create("t", (0, 1, 2), **{"cleanup.policy": "compact"})
    client = await three[0].client()
    assert await delete(client, (0, 0)) == [(Code.POLICY_VIOLATION, -1)]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_delete_records_waits_for_all_isr_starts(
    controller: Controller, three: Three, version: int
) -> None:
    controller.create("t", (0, 1, 2), **KEPT)
    client = await written(three[0])
    assert await delete(client, (0, 5), version=version) == [(Code.NONE, 5)]
    assert starts(*three) == [5, 5, 5]
    assert (await client.latest("t", timestamp=-2)) == (Code.NONE, 5)
    assert (await client.fetch("t", 4)).code == Code.OFFSET_OUT_OF_RANGE
    assert (await client.fetch("t", 5)).records


async def test_list_offsets_behind_delete_records_shows_new_start(
    controller: Controller, three: Three
) -> None:
    """confluent-kafka's own suite sends both without waiting in between."""
    controller.create("t", (0, 1, 2), **KEPT)
    await written(three[0])
    deletion = {"partition_index": 0, "offset": 5}
    question = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
    values = {"topics": [{"name": "t", "partitions": [deletion]}], "timeout": 5_000}
    asked = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": [question]}],
    }
    frames = (
        request_frame(ApiKey.DELETE_RECORDS, 1, 1, "test", encode_request(21, 1, values)),
        request_frame(ApiKey.LIST_OFFSETS, 5, 2, "test", encode_request(2, 5, asked)),
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", three[0].server.port)
    writer.write(b"".join(map(bytes, frames)))
    replies = []
    for _ in frames:
        size = int.from_bytes(await reader.readexactly(4))
        replies.append((await reader.readexactly(size))[4:])
    writer.close()
    deleted = decode_response(ApiKey.DELETE_RECORDS, 1, replies[0])
    told = decode_response(ApiKey.LIST_OFFSETS, 5, replies[1])
    assert deleted.topics[0].partitions[0].low_watermark == 5
    assert told.topics[0].partitions[0].offset == 5


async def test_delete_records_refuses_an_internal_topic(three: Three) -> None:
    client = await three[0].client()
    partition = {"partition_index": 0, "offset": -1}
    topics = [{"name": "__consumer_offsets", "partitions": [partition]}]
    reply = await client.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1_000})
    assert reply.topics[0].partitions[0].error_code == Code.INVALID_TOPIC_EXCEPTION


async def test_delete_records_minus_one_deletes_all_committed(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2), **KEPT)
    client = await written(three[0])
    assert await delete(client, (0, -1)) == [(Code.NONE, 10)]
    assert starts(*three) == [10, 10, 10]
    assert (await client.produce("t", a_batch(1))) == (Code.NONE, 10)
    assert (await client.fetch("t", 10)).records


async def test_delete_records_rejects_invalid_partitions_individually(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2), (1, 2, 0), (0, 1, 2), **KEPT)
    client = await written(three[0])
    asked = ((0, 11), (0, -2))
    for one in asked:
        assert await delete(client, one) == [(Code.OFFSET_OUT_OF_RANGE, -1)]
    found = await delete(client, (0, 3), (1, 0), (9, 0), (2, 0), (2, 0))
    assert found == [
        (Code.NONE, 3),
        (Code.NOT_LEADER_OR_FOLLOWER, -1),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (Code.INVALID_REQUEST, -1),
        (Code.INVALID_REQUEST, -1),
    ]
    assert await delete(client, (0, 2)) == [(Code.NONE, 3)], "it begins later already"


async def test_delete_records_survives_a_leader_crash(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **KEPT)
    client = await written(one)
    assert await delete(client, (0, 5)) == [(Code.NONE, 5)]
    await one.stop()  # nothing is written down at such an end
    again = await broker(0).start(previous=one.epoch)
    await until(lambda: again.hosted("t").replica.leader is not None)
    assert starts(again) == [5]


async def test_delete_records_fails_when_start_cannot_be_saved(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **KEPT)
    client = await written(one)

    def full(self: OffsetFile, _: object) -> Callable[[], None]:
        def save() -> None:
            raise StorageError(StorageFault.FULL, one.directory / LOG_STARTS, "no space")

        return save

    monkeypatch.setattr(OffsetFile, "begin_replace", full)
    assert await delete(client, (0, 5)) == [(Code.KAFKA_STORAGE_ERROR, -1)]


async def test_waiting_deletions_share_a_save_of_their_logs(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request copied the starts of all logs on the event loop, and synced."""
    one = await broker(0).start()
    controller.create("t", *((0,) for _ in range(12)), **KEPT)
    clients = [await one.client() for _ in range(10)]
    for index, client in enumerate(clients):
        await client.produce("t", a_batch(2), index=index)
    saved: list[list[tuple[str, int]]] = []
    began, go_on = asyncio.Event(), threading.Event()
    loop, begin = asyncio.get_running_loop(), one.manager.store.begin_log_starts

    def noted(of: Iterable[tuple[str, int]]) -> Callable[[], None]:
        saved.append(list(of))
        save = begin(of)

        def wait() -> None:
            loop.call_soon_threadsafe(began.set)
            assert go_on.wait(30)
            save()

        return wait

    monkeypatch.setattr(one.manager.store, "begin_log_starts", noted)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(delete(clients[0], (0, 2)))
        await began.wait()
        others = [
            group.create_task(delete(client, (index, 2)))
            for index, client in enumerate(clients)
            if index
        ]
        moved = [one.hosted("t", index).log for index in range(10)]
        await until(lambda: all(log.log_start_offset == 2 for log in moved))
        go_on.set()
    assert [task.result() for task in (first, *others)] == [[(Code.NONE, 2)]] * 10
    assert [sorted(each) for each in saved] == [[("t", 0)], [("t", n) for n in range(1, 10)]]


async def test_delete_records_waits_for_follower_until_timeout(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2), **KEPT)
    client = await written(three[0])
    await three[2].path.fetchers.close()
    assert await delete(client, (0, 5), timeout_ms=1_000) == [(Code.REQUEST_TIMED_OUT, -1)]
    assert starts(*three[:2]) == [5, 5]


async def test_follower_saves_leader_log_start_on_retention_pass(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that was killed and led would begin with what was deleted."""
    controller.create("t", (0, 1, 2), **KEPT)
    client = await written(three[0])
    await delete(client, (0, 5))

    def saved(broker: Broker) -> int | None:
        file = OffsetFile(broker.store.disk, broker.directory / LOG_STARTS)
        file.load()
        return file.get(("t", 0))

    chores = three[1].path._chores
    await chores._retain()
    assert saved(three[1]) == 5


async def test_deletion_ends_with_its_leaders_term(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2), **KEPT)
    client = await written(three[0])
    await three[2].path.fetchers.close()
    waiting = asyncio.create_task(delete(client, (0, 5)))
    await until(lambda: bool(three[0].hosted("t").replica.waiters.for_start))
    controller.heartbeat(three[0], fence=True)
    assert await waiting == [(Code.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_delete_records_passes_an_unreadable_batch(
    controller: Controller, broker: Make
) -> None:
    """What this broker would not write any more may lie in a log from before."""
    one = await broker(0).start()
    controller.create("t", (0,), **KEPT)
    client = await written(one, 2)
    hosted = one.hosted("t")
    bad = bytearray(a_batch(3))
    bad[61:] = b"\xff" * (len(bad) - 61)
    place = hosted.replica.produce(parse_header(bad), 1)
    assert one.manager.driver.append_produced(
        hosted, memoryview(bad), parse_header(bad), place, None
    )
    one.manager.touch(hosted)
    assert (await client.produce("t", a_batch(1))) == (Code.NONE, 7)
    assert await delete(client, (0, 7)) == [(Code.NONE, 7)]
    fetched = await client.fetch("t", 7)
    assert (fetched.code, fetched.log_start_offset) == (Code.NONE, 7)
    assert bytes(fetched.records)[:8] == (7).to_bytes(8), "and the rest reads on"
