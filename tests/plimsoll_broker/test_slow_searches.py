"""Fetches whose first batch is far behind an entry of the index: they search in slices."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.test_own_copy_fetch import bases, own_copy, written
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.handlers import fetch_poll
from plimsoll_broker.server.client_memory import MemoryAccount
from plimsoll_broker.storage import segment
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey

Three = tuple[Broker, Broker, Broker]
BATCHES = 20


class Steps:
    """Counts the steps of searches in each turn of the event loop."""

    def __init__(self) -> None:
        self.in_turn: Counter[int] = Counter()
        self.turn = 0
        self.is_over = False

    def next_turn(self) -> None:
        self.turn += 1
        if not self.is_over:
            asyncio.get_running_loop().call_soon(self.next_turn)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Steps of five batches."""
    found = Steps()
    real = segment._is_step

    def is_step(batches: int, size: int) -> bool:
        ends = real(batches, size)
        found.in_turn[found.turn] += ends
        return ends

    monkeypatch.setattr(segment, "SEARCH_BATCHES", 5)
    monkeypatch.setattr(segment, "_is_step", is_step)
    return found


async def test_far_batch_is_searched_over_turns(
    controller: Controller, three: Three, steps: Steps
) -> None:
    """It held the event loop for as long as the search took."""
    await written(controller, three, BATCHES)
    client = await three[0].client()
    log = three[0].hosted("t").log
    log.reader.forget()
    steps.next_turn()
    found = await client.fetch("t", 3 * BATCHES - 3)
    steps.is_over = True
    assert (found.code, found.records) == (Code.NONE, log.read(57, 1, 60))
    assert sum(steps.in_turn.values()) >= 3
    assert max(steps.in_turn.values()) == 1


@pytest.mark.usefixtures("steps")
async def test_far_batch_is_not_corrupt_to_auditor(controller: Controller, three: Three) -> None:
    """An auditor took the end of a search for damage."""
    await written(controller, three, BATCHES)
    for broker in three:
        found = await own_copy(await broker.client(), 3 * BATCHES - 3, 1)
        assert (found.code, bases(found)) == (Code.NONE, [3 * BATCHES - 3])


@pytest.mark.usefixtures("steps")
async def test_search_is_not_misled_by_cut_batches(controller: Controller, three: Three) -> None:
    await written(controller, three, BATCHES)
    made = three[0].hosted("t").log.segments[-1]
    for _ in range(4):
        try:
            assert made.find_in_steps(57) is not None
        except segment.SearchUnfinished:
            continue
        break
    assert len(made._reached) == 3
    size = len(a_batch(3))
    made.cut(12 * size, 36)
    assert [position for _, position in made._reached] == [5 * size, 10 * size]
    assert made.find_in_steps(33) == made.find(33)


def test_stored_index_interval_is_limited_when_applied() -> None:
    """A client could have every fetch search a whole segment."""
    assert LogConfig.of({"index.interval.bytes": str(2**31 - 1)}).index_interval_bytes == 2**16
    assert LogConfig.of({"index.interval.bytes": "5000"}).index_interval_bytes == 5000


async def test_short_fetch_that_is_slow_takes_turns(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the number of its partitions counted."""
    controller.create("t", *[(0, 1, 2)] * 3)
    await until(lambda: all(len(broker.manager) == 3 for broker in three))
    client = await three[0].client()
    for index in range(3):
        assert (await client.produce("t", a_batch(3), index=index))[0] == Code.NONE
    monkeypatch.setattr(fetch_poll, "SLICE_S", 0.0)
    served: list[object] = []
    real = fetch_poll.LongPoll.run

    async def run(self: fetch_poll.LongPoll, *args: Any) -> Any:
        served.append(self)
        return await real(self, *args)

    monkeypatch.setattr(fetch_poll.LongPoll, "run", run)
    reply: Any = await client.ask(ApiKey.FETCH, 12, fetch_values("t", range(3)))
    assert [bool(one.records) for one in reply.responses[0].partitions] == [True] * 3
    assert len(served) == 1


async def test_woken_fetch_that_is_slow_is_cut(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", *[(0, 1, 2)] * 3)
    await until(lambda: all(len(broker.manager) == 3 for broker in three))
    client, producer = await three[0].client(), await three[0].client()
    for index in range(2):
        assert (await producer.produce("t", a_batch(3), index=index))[0] == Code.NONE
    values = fetch_values("t", range(3), max_wait=60_000, min_bytes=2 * len(a_batch(3)) + 1)
    poll = asyncio.create_task(client.ask(ApiKey.FETCH, 12, values))
    await until(lambda: bool(three[0].hosted("t", 2).replica.parked._for_commit))
    monkeypatch.setattr(fetch_poll, "SLICE_S", 0.0)
    assert (await producer.produce("t", a_batch(3), index=2))[0] == Code.NONE
    reply: Any = await asyncio.wait_for(poll, 30)
    assert [one.error_code for one in reply.responses[0].partitions] == [0, 0, 0]
    found = [bool(one.records) for one in reply.responses[0].partitions]
    assert found == [True, False, False]


async def test_repeated_partition_is_answered_once_by_last(
    controller: Controller, three: Three
) -> None:
    await written(controller, three, 2)
    client = await three[0].client()
    values = fetch_values("t", (0, 0), partition_bytes_max=1)
    values["topics"][0]["partitions"][1]["fetch_offset"] = 3
    reply: Any = await client.ask(ApiKey.FETCH, 12, values)
    (topic,) = reply.responses
    (one,) = topic.partitions
    assert bytes(one.records) == three[0].hosted("t").log.read(3, 1, 6)


async def test_auditor_without_reply_memory_is_told(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It got no records and no error, as at the end of the log."""
    await written(controller, three, 2)
    client = await three[1].client()
    monkeypatch.setattr(MemoryAccount, "grant", lambda self, wanted: 0)
    assert (await own_copy(client, 0)).code == Code.REQUEST_TIMED_OUT
    assert (await own_copy(client, 6)).code == Code.NONE, "the end of the log"
