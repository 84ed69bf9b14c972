"""A parked fetch that lacks bytes does not read what is there whenever something comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.handlers import fetch, fetch_poll
from plimsoll_broker.handlers.fetch_poll import Growth
from plimsoll_broker.handlers.fetch_reading import Asked, ReadsTo
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey

Make = Callable[[int], Broker]
LARGE = a_batch(1, filler=100_000)
SMALL = a_batch(1)


@pytest.fixture
async def one(controller: Controller, broker: Make) -> Broker:
    made = await broker(0).start()
    controller.create("t", (0,), (0,))
    await until(lambda: len(made.manager) == 2)
    return made


@pytest.fixture(params=["short", "long"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each partition was read."""
    found: Counter[int] = Counter()
    real = fetch_poll.read

    def read(manager: Any, hosted: Any, *rest: Any, **named: Any) -> Any:
        found[hosted.key.index] += 1
        return real(manager, hosted, *rest, **named)

    monkeypatch.setattr(fetch_poll, "read", read)
    if request.param == "long":
        monkeypatch.setattr(fetch, "THINGS_AT_ONCE", 1)
    return found


async def fetched(client: Client, min_bytes: int, **more: Any) -> bytes:
    """Of both partitions; the first that is asked for fills its reply first."""
    wanted = {"max_wait": 60_000, "min_bytes": min_bytes, **more}
    values = fetch_values("t", (0, 1), **wanted)
    reply: Any = await client.ask(ApiKey.FETCH, 12, values)
    (topic,) = reply.responses
    assert {int(each.error_code) for each in topic.partitions} == {Code.NONE}
    return b"".join(bytes(each.records or b"") for each in topic.partitions)


def is_parked(broker: Broker) -> bool:
    return all(broker.hosted("t", index).replica.parked._for_commit for index in (0, 1))


async def test_poll_is_read_again_once_bytes_suffice(one: Broker, reads: Counter[int]) -> None:
    """Each record had every poll read all of it: a few polls of megabytes held up everybody."""
    consumer, producer = await one.client(), await one.client()
    await producer.produce("t", LARGE, index=0)
    enough = len(LARGE) + 10 * len(SMALL)
    poll = asyncio.create_task(fetched(consumer, enough))
    for _ in range(9):
        await until(lambda: is_parked(one))
        await producer.produce("t", SMALL, index=1)
    await until(lambda: is_parked(one))
    assert reads == {0: 1, 1: 1}
    assert not poll.done()
    await producer.produce("t", LARGE, index=1)
    found = await asyncio.wait_for(poll, 30)
    assert len(found) == 2 * len(LARGE) + 9 * len(SMALL)
    assert reads == {0: 2, 1: 2}


async def test_small_poll_is_answered_at_the_byte(one: Broker, reads: Counter[int]) -> None:
    consumer, producer = await one.client(), await one.client()
    await producer.produce("t", SMALL, index=0)
    poll = asyncio.create_task(fetched(consumer, 3 * len(SMALL)))
    await until(lambda: is_parked(one))
    await producer.produce("t", SMALL, index=1)
    await until(lambda: is_parked(one))
    assert not poll.done()
    await producer.produce("t", SMALL, index=1)
    assert len(await asyncio.wait_for(poll, 30)) == 3 * len(SMALL)


async def test_large_poll_is_answered_at_the_record(one: Broker, reads: Counter[int]) -> None:
    consumer, producer = await one.client(), await one.client()
    await producer.produce("t", LARGE, index=0)
    poll = asyncio.create_task(fetched(consumer, len(LARGE) + len(SMALL)))
    await until(lambda: is_parked(one))
    await producer.produce("t", SMALL, index=1)
    assert len(await asyncio.wait_for(poll, 30)) == len(LARGE) + len(SMALL)


async def test_growth_beyond_partition_limit_is_not_awaited_twice(
    one: Broker, reads: Counter[int]
) -> None:
    consumer, producer = await one.client(), await one.client()
    size = len(SMALL)
    limits = {"partition_bytes_max": 3 * size, "max_bytes": 2**20}
    poll = asyncio.create_task(fetched(consumer, 6 * size, **limits))
    for _ in range(20):
        await until(lambda: is_parked(one))
        await producer.produce("t", SMALL, index=0)
    for _ in range(3):
        assert not poll.done()
        await producer.produce("t", SMALL, index=1)
    assert len(await asyncio.wait_for(poll, 30)) == 6 * size


async def test_whole_batches_below_available_bytes_suffice(
    one: Broker, reads: Counter[int]
) -> None:
    """As in Kafka: else a consumer with min.bytes = max.partition.fetch.bytes waits each time."""
    consumer, producer = await one.client(), await one.client()
    for _ in range(3):
        await producer.produce("t", LARGE, index=0)
    limit = 2 * len(LARGE) + 10
    poll = fetched(consumer, limit, partition_bytes_max=limit)
    assert len(await asyncio.wait_for(poll, 30)) == 2 * len(LARGE)


async def test_end_of_a_segment_keeps_nobody_waiting(
    one: Broker, controller: Controller, reads: Counter[int]
) -> None:
    controller.create("r", (0,), **{"segment.bytes": "250000"})
    await until(lambda: len(one.manager) == 3)
    consumer, producer = await one.client(), await one.client()
    for _ in range(5):
        await producer.produce("r", LARGE)
    assert len(one.hosted("r").log.segments) == 3
    values = fetch_values("r", (0,), max_wait=60_000, min_bytes=3 * len(LARGE))
    reply: Any = await asyncio.wait_for(consumer.ask(ApiKey.FETCH, 12, values), 30)
    assert len(bytes(reply.responses[0].partitions[0].records)) == 2 * len(LARGE)


async def test_long_poll_listens_to_partitions_moved_meanwhile(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 1 moves before a look reads it, and partition 0 after that look had read it."""
    monkeypatch.setattr(fetch, "THINGS_AT_ONCE", 1)
    consumer, producer = await one.client(), await one.client()
    real, walks, moved = fetch_poll.in_turns, list[int](), asyncio.Event()
    reading = 3  # to watch, to listen, to look

    async def in_turns(items: Any) -> Any:
        first = True
        async for item in real(items):
            yield item
            if first and isinstance(item, Asked):
                first = False
                walks.append(1)
                if len(walks) == reading:
                    for index in (1, 0):
                        await producer.produce("t", SMALL, index=index)
                    moved.set()

    monkeypatch.setattr(fetch_poll, "in_turns", in_turns)
    poll = asyncio.create_task(fetched(consumer, 10 * len(SMALL)))
    await asyncio.wait_for(moved.wait(), 30)
    await until(lambda: is_parked(one))
    for _ in range(10):
        await producer.produce("t", SMALL, index=1)
    assert len(await asyncio.wait_for(poll, 30)) >= 10 * len(SMALL)


async def test_poll_with_full_reply_is_not_reread(one: Broker, reads: Counter[int]) -> None:
    """What comes to partition 0 does not fit, however much it is."""
    consumer, producer = await one.client(), await one.client()
    await producer.produce("t", SMALL, index=0)
    more = {"partition_bytes_max": len(SMALL), "max_bytes": 2**20}
    poll = asyncio.create_task(fetched(consumer, 2 * len(SMALL) + 1, **more))
    for _ in range(40):
        await until(lambda: is_parked(one))
        await producer.produce("t", SMALL, index=0)
    await until(lambda: is_parked(one))
    assert not poll.done()
    assert reads[0] <= 7, "twice as much has to come each time"
    poll.cancel()


@pytest.mark.usefixtures("reads")
async def test_poll_of_failed_partition_is_answered_at_once(
    one: Broker,
) -> None:
    consumer, producer = await one.client(), await one.client()
    await producer.produce("t", LARGE, index=0)
    values = fetch_values("t", (0, 1), max_wait=60_000, min_bytes=2**20)
    poll = asyncio.create_task(consumer.ask(ApiKey.FETCH, 12, values))
    await until(lambda: is_parked(one))
    hosted = one.hosted("t", 1)
    hosted.replica.fail()
    one.manager.touch(hosted)
    reply: Any = await asyncio.wait_for(poll, 30)
    codes = [int(each.error_code) for each in reply.responses[0].partitions]
    assert codes == [Code.NONE, Code.KAFKA_STORAGE_ERROR]


def test_unknown_growth_is_read() -> None:
    growth = Growth(ReadsTo.HIGH_WATERMARK)
    growth.found(0, 0)
    assert growth.is_enough, "there was no memory: what is there is not known"
    growth.found(0, 100)
    assert not growth.is_enough
    assert not list(growth.take_moved())
