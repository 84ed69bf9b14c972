"""Readers of committed transactions: what Fetch and ListOffsets show them, and when they wake."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.handlers import fetch_reading
from plimsoll_broker.replication.transactional_appends import (
    ProducerLife,
    append_batch,
    append_marker,
)
from plimsoll_broker.storage import aborted_search
from plimsoll_broker.storage.disk import Buffer
from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_values import Append
from plimsoll_wire import batches
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import (
    HEADER_SIZE,
    TRANSACTIONAL,
    Batches,
    iter_headers,
    parse_header,
    seal,
)
from plimsoll_wire.control_records import EndMarker

COMMIT, ABORT = EndMarker(True, 0), EndMarker(False, 0)
Three = tuple[Broker, Broker, Broker]


def transactional(pid: int, sequence: int, records: int = 1) -> bytearray:
    plain = a_batch(records, producer=(pid, 0, sequence))
    header = parse_header(plain)._replace(attributes=TRANSACTIONAL)
    return bytearray(seal(header, plain[HEADER_SIZE:]))


def write(broker: Broker, pid: int, sequence: int, records: int = 1) -> int:
    placed = append_batch(broker.manager, broker.hosted("t"), transactional(pid, sequence, records))
    assert isinstance(placed, Append), placed
    return placed.base_offset


def end(broker: Broker, pid: int, marker: EndMarker) -> int:
    placed = append_marker(broker.manager, broker.hosted("t"), ProducerLife(pid, 0), marker, 1_000)
    assert isinstance(placed, Append), placed
    return placed.base_offset


async def fetch(client: Client, offset: int = 0, version: int = 12, **fields: Any) -> Any:
    values = fetch_values(offset=offset, **{"isolation_level": 1, **fields})
    reply: Any = await client.ask(ApiKey.FETCH, version, values)
    return reply.responses[0].partitions[0]


def bases(found: Any) -> list[int]:
    return [header.base_offset for header in iter_headers(found.records or b"")]


def aborted(found: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in found.aborted_transactions]


async def latest(client: Client, *, isolation: int = 1, timestamp: int = -1) -> tuple[int, int]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [partition]}]
    values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
    reply: Any = await client.ask(ApiKey.LIST_OFFSETS, 7, values)
    one = reply.topics[0].partitions[0]
    return int(one.error_code), one.offset


@pytest.fixture
async def one(controller: Controller, three: Three) -> Broker:
    controller.create("t", (0,))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    return three[0]


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_read_committed_fetch_ends_at_open_transaction(one: Broker, version: int) -> None:
    client = await one.client()
    await client.produce("t", a_batch(2))
    write(one, 7, 0)
    await client.produce("t", a_batch(1))
    await until(lambda: one.hosted("t").replica.high_watermark == 4)
    found = await fetch(client, version=version)
    assert (found.high_watermark, found.last_stable_offset) == (4, 2)
    assert (bases(found), aborted(found)) == ([0], [])
    other = await fetch(client, version=version, isolation_level=0)
    assert (other.last_stable_offset, bases(other)) == (2, [0, 2, 3])
    assert other.aborted_transactions is None
    assert (await fetch(client, 3, version)).error_code == Code.NONE, "behind it there is nothing"


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_read_committed_fetch_lists_aborted_transactions(one: Broker, version: int) -> None:
    client = await one.client()
    write(one, 7, 0)  # 0
    write(one, 8, 0)  # 1
    end(one, 7, ABORT)  # 2
    end(one, 8, COMMIT)  # 3
    write(one, 7, 1)  # 4
    end(one, 7, ABORT)  # 5
    await until(lambda: one.hosted("t").replica.high_watermark == 6)
    found = await fetch(client, version=version)
    assert bases(found) == [0, 1, 2, 3, 4, 5]
    assert aborted(found) == [(7, 0), (7, 4)]
    assert aborted(await fetch(client, 3, version)) == [(7, 4)], "resumed behind the first"
    assert aborted(await fetch(client, 2, version)) == [(7, 0), (7, 4)], "at its marker"
    assert aborted(await fetch(client, 0, version, partition_bytes_max=1)) == [(7, 0)]


async def test_own_copy_ends_at_its_last_stable_offset(one: Broker) -> None:
    client = await one.client()
    write(one, 7, 0)  # 0
    end(one, 7, ABORT)  # 1
    await client.produce("t", a_batch(1))  # 2
    write(one, 8, 0)  # 3
    await client.produce("t", a_batch(1))  # 4
    await until(lambda: one.hosted("t").replica.high_watermark == 5)
    found = await fetch(client, replica_id=-2)
    assert (found.last_stable_offset, bases(found), aborted(found)) == (3, [0, 1, 2], [(7, 0)])
    assert bases(await fetch(client, 3, replica_id=-2)) == []
    every = await fetch(client, replica_id=-2, isolation_level=0)
    assert (bases(every), every.aborted_transactions) == ([0, 1, 2, 3, 4], None)


async def test_read_committed_fetch_walks_no_batches_without_transactions(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`end_of` reads the header of each batch of the reply."""
    walked: list[int] = []

    def end_of(data: Buffer | Batches) -> int:
        walked.append(len(data))
        return batches.end_of(data)

    monkeypatch.setattr(fetch_reading, "end_of", end_of)
    client = await one.client()
    await client.produce("t", a_batch(2))
    assert bases(await fetch(client)) == [0]
    assert not walked
    write(one, 7, 0)
    end(one, 7, ABORT)
    await until(lambda: one.hosted("t").replica.high_watermark == 4)
    assert aborted(await fetch(client)) == [(7, 2)]
    assert walked


async def test_committed_reader_lists_offsets_below_stable_one(one: Broker) -> None:
    client = await one.client()
    await client.produce("t", a_batch(1, timestamp=10))
    await client.produce("t", a_batch(1, timestamp=20))
    write(one, 7, 0)
    await client.produce("t", a_batch(1, timestamp=2_000))
    assert await latest(client) == (Code.NONE, 2)
    assert await latest(client, isolation=0) == (Code.NONE, 4)
    assert await latest(client, timestamp=15) == (Code.NONE, 1)
    assert await latest(client, timestamp=1_500) == (Code.NONE, -1)
    assert await latest(client, timestamp=1_500, isolation=0) == (Code.NONE, 3)
    end(one, 7, COMMIT)
    await until(lambda: one.hosted("t").replica.high_watermark == 5)
    assert await latest(client) == (Code.NONE, 5)


async def test_parked_committed_reader_wakes_as_transaction_ends(one: Broker) -> None:
    consumer, client = await one.client(), await one.client()
    write(one, 7, 0)
    poll = asyncio.create_task(fetch(consumer, max_wait=60_000))
    parked = one.hosted("t").replica.parked
    await until(lambda: bool(parked.for_stable))
    await client.produce("t", a_batch(1))
    assert parked.for_stable, "a commit behind an open transaction wakes no such reader"
    end(one, 7, ABORT)
    found = await asyncio.wait_for(poll, 30)
    assert (bases(found), aborted(found)) == ([0, 1, 2], [(7, 0)])


async def test_parked_committed_reader_hears_of_lost_leadership(one: Broker) -> None:
    consumer = await one.client()
    write(one, 7, 0)
    poll = asyncio.create_task(fetch(consumer, max_wait=60_000))
    await until(lambda: bool(one.hosted("t").replica.parked.for_stable))
    one.hosted("t").replica.fail()
    one.manager.touch(one.hosted("t"))
    assert (await asyncio.wait_for(poll, 30)).error_code == Code.KAFKA_STORAGE_ERROR


async def test_long_search_for_aborted_transactions_is_sliced(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted_search, "ENTRIES_AT_ONCE", 2)
    client = await one.client()
    write(one, 8, 0)  # open all the time, so that no entry ends the search
    for number in range(7):
        write(one, 7, number)
        end(one, 7, ABORT)
    end(one, 8, COMMIT)
    await until(lambda: one.hosted("t").replica.high_watermark == 16)
    found = await fetch(client, max_wait=1_000)
    assert bases(found) == list(range(16))
    assert aborted(found) == [(7, offset) for offset in range(1, 15, 2)]


async def test_followers_know_transactions_and_lead_with_them(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    await until(lambda: three[0].manager.by_name("t", 0) is not None)
    write(three[0], 7, 0)
    end(three[0], 7, ABORT)
    write(three[0], 8, 0)
    await until(lambda: all(b.hosted("t").replica.high_watermark == 3 for b in three))
    for broker in three:
        assert broker.hosted("t").replica.last_stable_offset == 2
        assert broker.hosted("t").log.aborted_transactions(0, 2) == [(7, 0)]


async def test_stale_markers_and_plain_batches_are_refused(one: Broker) -> None:
    write(one, 7, 0)
    hosted, client = one.hosted("t"), await one.client()
    assert (await client.produce("t", a_batch(1, producer=(7, 0, 1))))[0] == Code.INVALID_TXN_STATE
    placed = append_marker(one.manager, hosted, ProducerLife(7, 1), EndMarker(True, 3), 0)
    assert isinstance(placed, Append)
    for producer, epoch, code in (
        ((7, 0), 3, Code.INVALID_PRODUCER_EPOCH),
        ((7, 1), 2, Code.TRANSACTION_COORDINATOR_FENCED),
    ):
        assert (
            append_marker(one.manager, hosted, ProducerLife(*producer), EndMarker(True, epoch), 0)
            is code
        )
    batch = transactional(7, 1)
    assert append_batch(one.manager, hosted, batch) is Code.INVALID_PRODUCER_EPOCH


async def test_client_cannot_write_transactional_batches(one: Broker) -> None:
    client = await one.client()
    assert (await client.produce("t", bytes(transactional(7, 0))))[0] == Code.INVALID_RECORD
