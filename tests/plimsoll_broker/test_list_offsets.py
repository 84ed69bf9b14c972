"""ListOffsets by time: no request holds up the event loop."""

import asyncio
import gzip
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.storage import offsets_by_time
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, seal

Make = Callable[[int], Broker]

RECORDS = 50_000
NEWEST = -3
BASE_MS = 1_000_000


def varint(value: int) -> bytes:
    """Zigzag, of what is not negative and below a million."""
    if value < 0x40:
        return bytes((value << 1,))
    if value < 0x2000:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    return bytes((value << 1 & 0x7F | 0x80, value >> 6 & 0x7F | 0x80, value >> 13))


def many_records(count: int = RECORDS) -> bytes:
    """A gzip batch of many small records: ten times as many held a broker for four seconds.  Their
    times are BASE_MS to BASE_MS + 49."""
    parts = []
    for number in range(count):
        # Attributes, time, offset, no key, an empty value, no headers.
        body = b"\x00%c%b\x01\x00\x00" % (number * 50 // count << 1, varint(number))
        parts.append(b"%c%b" % (len(body) << 1, body))
    header = BatchHeader(0, 0, -1, 2, 0, 1, count - 1, BASE_MS, BASE_MS + 49, -1, -1, -1, count)
    return seal(header, gzip.compress(b"".join(parts), 1))


def named(timestamp: int, *indexes: int) -> dict:
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index in indexes
    ]
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": partitions}],
    }


async def asked(client: Client, timestamp: int, *indexes: int) -> list[tuple[int, int, int]]:
    """Code, timestamp and offset of each."""
    reply = await client.ask(ApiKey.LIST_OFFSETS, 7, named(timestamp, *indexes))
    return [(int(one.error_code), one.timestamp, one.offset) for one in reply.topics[0].partitions]


@pytest.fixture
async def one(broker: Make, controller: Controller) -> Broker:
    started = await broker(0).start()
    controller.create("t", (0,), (0,), (0,), **{"retention.ms": "-1"})
    return started


@pytest.fixture
def walkers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that looked at records."""
    seen: set[int] = set()
    real = offsets_by_time.iter_times

    def watched(records: bytes, count: int):
        seen.add(threading.get_ident())
        return real(records, count)

    monkeypatch.setattr(offsets_by_time, "iter_times", watched)
    return seen


async def test_list_offsets_over_many_records_uses_thread(one: Broker, walkers: set[int]) -> None:
    client = await one.client()
    assert await client.produce("t", many_records()) == (Code.NONE, 0)
    assert await asked(client, NEWEST, 0) == [(Code.NONE, BASE_MS + 49, 49_000)]
    assert await asked(client, BASE_MS + 7, 0) == [(Code.NONE, BASE_MS + 7, 7_000)]
    assert walkers
    assert threading.get_ident() not in walkers


async def test_partition_named_twice_is_refused(one: Broker, walkers: set[int]) -> None:
    client = await one.client()
    await client.produce("t", many_records(1_000))
    refused = (Code.INVALID_REQUEST, -1, -1)
    assert await asked(client, NEWEST, 0, 0, 0, 0, 0) == [refused] * 5
    assert not walkers
    assert await asked(client, -1, 0, 1, 0) == [refused, (Code.NONE, -1, 0), refused]


async def test_search_holds_up_nobody_else(one: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in its thread until another client has been answered."""
    searcher, other = await one.client(), await one.client()
    await searcher.produce("t", many_records(1_000))
    begun, answered = threading.Event(), threading.Event()
    real = offsets_by_time.iter_times

    def held(records: bytes, count: int):
        begun.set()
        assert answered.wait(30)
        return real(records, count)

    monkeypatch.setattr(offsets_by_time, "iter_times", held)
    search = asyncio.create_task(asked(searcher, NEWEST, 0))
    await asyncio.to_thread(begun.wait, 30)
    assert await other.latest("t") == (Code.NONE, 1_000)
    assert not search.done()
    answered.set()
    assert await search == [(Code.NONE, BASE_MS + 49, 980)]


async def test_search_waits_for_no_other_users_searches(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread searched for all clients, in the order in which they asked."""
    victim = await one.client()
    await until(lambda: one.server.connections == 1)
    (mine,) = one.server._open
    hostile = [await one.client() for _ in range(6)]
    await victim.produce("t", many_records(1_000))
    await victim.produce("t", many_records(500), index=1)
    ours = mine._connection
    monkeypatch.setattr(
        ConnectionState,
        "holder",
        property(lambda self: "victim" if self is ours else "hostile"),
    )
    begun, go_on = threading.Event(), threading.Event()
    real = offsets_by_time.iter_times

    def held(records: bytes, count: int):
        if count == 1_000:
            begun.set()
            assert go_on.wait(30)
        return real(records, count)

    monkeypatch.setattr(offsets_by_time, "iter_times", held)
    searches = [asyncio.create_task(asked(client, NEWEST, 0)) for client in hostile]
    await asyncio.to_thread(begun.wait, 30)
    try:
        async with asyncio.timeout(WAIT_S):
            assert await asked(victim, NEWEST, 1) == [(Code.NONE, BASE_MS + 49, 490)]
        assert not any(search.done() for search in searches)
    finally:
        go_on.set()
    assert await asyncio.gather(*searches) == [[(Code.NONE, BASE_MS + 49, 980)]] * 6


async def test_list_offsets_of_many_partitions_takes_turns(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are heard in between, also where each question is short."""
    client = await one.client()
    loop, turn, over = asyncio.get_running_loop(), 0, False
    looked_up: Counter[int] = Counter()
    real = one.manager.by_name

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    def watched(name: str, index: int) -> Hosted | None:
        looked_up[turn] += 1
        return real(name, index)

    monkeypatch.setattr(one.manager, "by_name", watched)
    next_turn()
    found = await asked(client, -1, *range(3_000))
    over = True
    assert found[:3] == [(Code.NONE, -1, 0)] * 3
    assert {code for code, _, _ in found[3:]} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert sum(looked_up.values()) == 3_000
    assert max(looked_up.values()) <= AT_ONCE


async def test_search_that_ends_on_a_follower_says_so(
    one: Broker, controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread looks, the broker may lose the partition: what it found is then not told."""
    client = await one.client()
    await client.produce("t", many_records(1_000))
    begun, go_on = threading.Event(), threading.Event()
    real = offsets_by_time.iter_times

    def held(records: bytes, count: int):
        begun.set()
        assert go_on.wait(30)
        return real(records, count)

    monkeypatch.setattr(offsets_by_time, "iter_times", held)
    search = asyncio.create_task(asked(client, NEWEST, 0))
    await asyncio.to_thread(begun.wait, 30)
    controller.heartbeat(one, fence=True)
    await until(lambda: one.hosted("t").replica.leader is None)
    go_on.set()
    assert await search == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]


@pytest.mark.parametrize("timestamp", [NEWEST, BASE_MS + 7])
async def test_search_in_recreated_topic_reads_no_old_file(
    one: Broker, controller: Controller, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    """It opened the indexes of the new topic by the old ones' names, and dropped their entries."""
    client, other = await one.client(), await one.client()
    alone = one.clients_routes[ApiKey.LIST_OFFSETS]._aside.queue
    alone.threads = FairPool(1, floor=1)
    for index in (0, 1):
        await client.produce("t", many_records(1_000), index=index)
    old = one.hosted("t", 1)
    begun, go_on = threading.Event(), threading.Event()
    looked_up: list[Segment] = []
    real, position_for = offsets_by_time.iter_times, Segment.position_for

    def held(records: bytes, count: int):
        begun.set()
        assert go_on.wait(30)
        return real(records, count)

    def watched(segment: Segment, offset: int) -> int:
        looked_up.append(segment)
        return position_for(segment, offset)

    monkeypatch.setattr(offsets_by_time, "iter_times", held)
    monkeypatch.setattr(Segment, "position_for", watched)
    first = asyncio.create_task(asked(client, NEWEST, 0))
    await asyncio.to_thread(begun.wait, 30)
    second = asyncio.create_task(asked(other, timestamp, 1))
    await until(lambda: alone.waiting.used == 1)
    gone = TopicObject(namespace="test", name="t", uid="t")
    controller.request(
        TopicObjectGone(object=gone, server_now_ms=1, grace_ms=0, removals_per_hour_max=1)
    )
    controller.create("t", (0,), (0,))
    await until(lambda: one.manager.by_name("t", 1) not in (None, old))
    go_on.set()
    assert await first == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    assert await second == [(Code.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    assert not set(looked_up) & set(old.log.segments)
