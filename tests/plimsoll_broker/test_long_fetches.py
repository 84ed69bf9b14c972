"""Fetches of more partitions than are looked at in one go: in slices, and none misses anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.handlers import fetch, fetch_poll
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.fetch import TooManyNamed, decode_request
from plimsoll_wire.messages import encode_request
from plimsoll_wire.primitives import MalformedMessage

Make = Callable[[int], Broker]
HERE = 5
MANY = 600


def of(count: int, *, offset: int = 0, wait_ms: int = 0, min_bytes: int = 1) -> dict[str, Any]:
    return fetch_values("t", range(count), offset, max_wait=wait_ms, min_bytes=min_bytes)


async def asked(client: Client, **request: Any) -> list[Any]:
    reply: Any = await client.ask(ApiKey.FETCH, 12, of(**request))
    return [partition for topic in reply.responses for partition in topic.partitions]


@pytest.fixture
async def one(controller: Controller, broker: Make) -> Broker:
    made = await broker(0).start()
    controller.create("t", *[(0,)] * HERE)
    await until(lambda: len(made.manager) == HERE)
    return made


async def test_fetch_of_many_partitions_takes_many_turns(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await one.client()
    await client.produce("t", a_batch(3), index=HERE - 1)
    loop, turn, over = asyncio.get_running_loop(), 0, False
    looked_up: Counter[int] = Counter()
    real = one.manager.by_name

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    def by_name(*name: Any) -> Any:
        looked_up[turn] += 1
        return real(*name)

    monkeypatch.setattr(one.manager, "by_name", by_name)
    next_turn()
    found = await asked(client, count=MANY)
    over = True
    assert [each.partition_index for each in found] == list(range(MANY))
    codes = [each.error_code for each in found]
    assert codes[:HERE] == [Code.NONE] * HERE
    assert set(codes[HERE:]) == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert [len(each.records or b"") > 0 for each in found[:HERE]] == [False] * 4 + [True]
    assert max(looked_up.values()) <= AT_ONCE


@pytest.fixture
def long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all partitions are there."""
    monkeypatch.setattr(fetch, "THINGS_AT_ONCE", 1)


@pytest.mark.usefixtures("long_ones")
async def test_long_poll_is_answered_by_any_partition(one: Broker) -> None:
    consumer, producer = await one.client(), await one.client()
    poll = asyncio.create_task(asked(consumer, count=HERE, wait_ms=30_000))
    hosted = one.hosted("t", 3)
    await until(lambda: bool(hosted.replica.parked._for_commit))
    await producer.produce("t", a_batch(2), index=3)
    found = await poll
    assert [len(each.records or b"") > 0 for each in found] == [i == 3 for i in range(HERE)]
    assert not hosted.replica.parked._for_commit


@pytest.mark.usefixtures("long_ones")
async def test_long_poll_waits_on_until_there_is_enough(one: Broker) -> None:
    consumer, producer = await one.client(), await one.client()
    size = len(a_batch(1))
    poll = asyncio.create_task(asked(consumer, count=HERE, wait_ms=30_000, min_bytes=2 * size))
    hosted = one.hosted("t", 3)
    await until(lambda: bool(hosted.replica.parked._for_commit))
    await producer.produce("t", a_batch(1), index=3)
    await until(lambda: bool(hosted.replica.parked._for_commit))
    assert not poll.done()
    await producer.produce("t", a_batch(1), index=2)
    assert sum(len(each.records or b"") for each in await poll) == 2 * size


@pytest.mark.usefixtures("long_ones")
async def test_long_poll_notices_records_during_read(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records come for the first partition when the last is being looked at."""
    consumer, producer = await one.client(), await one.client()
    real, begun = fetch_poll.read, asyncio.Event()
    produced: list[asyncio.Task[Any]] = []

    def read(manager: Any, hosted: Any, *rest: Any, **named: Any) -> Any:
        result = real(manager, hosted, *rest, **named)
        if hosted.key.index == HERE - 1 and not produced:
            produced.append(asyncio.create_task(producer.produce("t", a_batch(1), index=0)))
            begun.set()
        return result

    monkeypatch.setattr(fetch_poll, "read", read)
    found = await asyncio.wait_for(asked(consumer, count=HERE, wait_ms=60_000), 30)
    assert len(found[0].records or b"") > 0
    await produced[0]


@pytest.mark.usefixtures("long_ones")
async def test_long_poll_ends_with_time_or_connection(one: Broker) -> None:
    client = await one.client()
    found = await asked(client, count=HERE, wait_ms=1)
    assert [each.error_code for each in found] == [Code.NONE] * HERE
    poll = asyncio.create_task(asked(client, count=HERE, wait_ms=30_000))
    hosted = one.hosted("t", 0)
    await until(lambda: bool(hosted.replica.parked._for_commit))
    for session in list(one.server._open.clients):
        session.close("idle")
    await until(lambda: not hosted.replica.parked._for_commit)
    with pytest.raises(PeerLost):
        await poll


async def test_client_naming_too_many_partitions_gets_error(one: Broker) -> None:
    client = await one.client()
    reply: Any = await client.ask(ApiKey.FETCH, 12, of(fetch.NAMED_MAX + 1))
    assert reply.error_code == 42
    assert reply.responses == ()
    assert (await asked(client, count=1))[0].error_code == Code.NONE, "and may go on"


@pytest.mark.parametrize("version", [4, 7, 12])
def test_fetch_of_too_many_partitions_reads_none(version: int) -> None:
    body = memoryview(encode_request(ApiKey.FETCH, version, of(10)))
    assert len(decode_request(body, version, 11).topics[0].partitions) == 10
    with pytest.raises(TooManyNamed):
        decode_request(body, version, 10)
    assert issubclass(TooManyNamed, MalformedMessage), "older versions have no place for a code"
