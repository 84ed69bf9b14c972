"""Consumers that do not read, or ask without end: the broker's memory, and other clients."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
import uvloop
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker.server.client_memory import MIB, Budgets, ClientMemory
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

BATCHES = 40
FILLER = 1_000_000
BATCH = len(a_batch(filler=FILLER))
REPLIES = 16 * MIB


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def one(controller: Controller, broker: Callable[[int], Broker]) -> Broker:
    """A broker with 40 MB in one partition and 16 MiB for replies."""
    made = broker(0)
    made.limits = ListenerLimits(unread_short_ms_max=300)
    made.memory = ClientMemory(Budgets(replies=REPLIES, requests=REPLIES, frame=REPLIES))
    await made.start()
    controller.create("t", (0,))
    client = await made.client()
    for _ in range(BATCHES):
        code, _ = await client.produce("t", a_batch(filler=FILLER))
        assert code == Code.NONE
    client.connection.close()
    return made


def fetch_frame(correlation_id: int, offset: int, *, wait_ms: int = 0) -> bytes:
    values = fetch_values(offset=offset, partition_bytes_max=50 * MIB, max_wait=wait_ms)
    body = encode_request(ApiKey.FETCH, 12, values)
    return request_frame(ApiKey.FETCH, 12, correlation_id, "test", body)


class Sleeper(asyncio.Protocol):
    """Asks and does not read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.pause_reading()  # type: ignore[attr-defined]

    @classmethod
    async def ask(cls, port: int, *frames: bytes) -> Sleeper:
        loop = asyncio.get_running_loop()
        transport, made = await loop.create_connection(cls, "127.0.0.1", port)
        transport.write(b"".join(frames))
        return made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_idle_consumers_hold_no_more_than_budget(one: Broker) -> None:
    assert one.memory is not None
    sleepers = [await Sleeper.ask(one.server.port, fetch_frame(1, 0)) for _ in range(40)]
    requests = one.server.stats.requests
    await until(lambda: requests[ApiKey.FETCH] == len(sleepers))
    assert one.memory.replies.used <= REPLIES * 3 // 4 + FILLER + MIB
    for sleeper in sleepers:
        sleeper.transport.abort()
    await until(lambda: one.memory.replies.used == 0)


async def test_reading_consumer_continues_beside_idle_ones(one: Broker) -> None:
    """Who does not read while memory is short is closed, and the others' turn comes."""
    sleepers = [await Sleeper.ask(one.server.port, fetch_frame(1, 0)) for _ in range(40)]
    client = await one.client()
    offset = 0
    while offset < BATCHES:
        fetched = await client.fetch("t", offset, wait_ms=500)
        assert fetched.code == Code.NONE
        offset += len(fetched.records) // (BATCH)
    for sleeper in sleepers:
        sleeper.transport.abort()


async def test_pipelined_polls_are_not_all_materialised(one: Broker) -> None:
    assert one.memory is not None
    polls = [fetch_frame(number, BATCHES, wait_ms=30_000) for number in range(64)]
    sleepers = [await Sleeper.ask(one.server.port, *polls) for _ in range(4)]
    await until(lambda: one.server.stats.requests[ApiKey.FETCH] == 4 * 64)
    assert one.memory.requests.used > 0, "what is parked is counted"
    client = await one.client()
    await client.produce("t", a_batch(filler=FILLER))
    fetched = await client.fetch("t", BATCHES)
    assert len(fetched.records) == BATCH
    assert one.memory.replies.used <= 8 * (FILLER + 200)
    for sleeper in sleepers:
        sleeper.transport.abort()


async def test_fetch_is_shortened_rather_than_refused(one: Broker) -> None:
    """KIP-74: one batch, whatever the limits say."""
    assert one.memory is not None
    one.memory.replies.shares.take("User:other", REPLIES * 3 // 4 - 1000)
    client = await one.client()
    fetched = await client.fetch("t", 0, wait_ms=30_000)
    assert len(fetched.records) == BATCH
    one.memory.replies.give_back("User:other", REPLIES * 3 // 4 - 1000)


async def test_fetch_without_memory_waits(one: Broker) -> None:
    assert one.memory is not None
    one.memory.replies.shares.take("User:other", REPLIES * 3 // 4)
    client = await one.client()
    fetching = asyncio.create_task(client.fetch("t", 0, wait_ms=30_000))
    await until(lambda: one.memory is not None and one.memory.replies.short)
    assert not fetching.done()
    one.memory.replies.give_back("User:other", REPLIES * 3 // 4)
    assert len((await fetching).records) >= FILLER


async def test_half_a_fetch_s_bytes_are_no_fetch(one: Broker) -> None:
    """What the sleepers of this module send is understood, so that they test what they say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", one.server.port)
    writer.write(fetch_frame(7, 0))
    size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
    assert (size > FILLER, correlation_id) == (True, 7)
    writer.close()


async def test_metrics_show_budgets_and_close_reasons(
    one: Broker,
) -> None:
    assert one.memory is not None
    one.memory.replies.shares.take("User:other", 1234)
    one.server.stats.closed_for["not-reading"] += 2

    values = told(listeners={"clients": one.server, "replication": one.replication})
    expected = {
        "memory_budget_used_bytesreplies": 1234,
        "memory_budget_limit_bytesrequests": REPLIES,
        "memory_budget_waits_totalrequests": 0,
        "listener_connections_limitclients": 4096,
        "connections_closed_totalclientsnot-reading": 2,
        "connections_closed_totalreplicationmade-room": 0,
        "connections_turned_away_totalclients": 0,
    }
    assert {name: values[name] for name in expected} == expected
    one.memory.replies.give_back("User:other", 1234)
