"""New partitions take a bounded share of each turn of the event loop, and their owners take turns,
whichever way their topics were made: by Metadata, by CreateTopics or by objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from uuid import UUID

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.test_role_changes import Turns
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_broker.replication import partition_opener
from plimsoll_broker.replication.partition_opener import (
    OPENED_AT_ONCE,
    OPENING_S,
    REST_S_MAX,
    RESTS,
    Opener,
)
from plimsoll_core.cluster.model import PartitionKey

Make = Callable[[int], Broker]
MALLORY, VICTIM = UUID(int=1), UUID(int=2)


def keys(owner: UUID, count: int) -> list[PartitionKey]:
    return [PartitionKey(owner, index) for index in range(count)]  # type: ignore[arg-type]


class Opening:
    """An opener, and what it opened in which turn; `takes_s`: what the clock says that each
    takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes_s: float = 0.0) -> None:
        self.opened: list[PartitionKey] = []
        self.in_turn: Counter[int] = Counter()
        self.opener = Opener(self._open, lambda key: str(key.topic_id))
        self._takes_s, self._now_s = takes_s, 0.0
        self._turns = Turns()
        clock = SimpleNamespace(monotonic=lambda: self._now_s)
        monkeypatch.setattr(partition_opener, "time", clock)

    def _open(self, key: PartitionKey) -> None:
        self.opened.append(key)
        self.in_turn[self._turns.number] += 1
        self._now_s += self._takes_s

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.opener.run())
        try:
            yield
        finally:
            self._turns.over = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_opener_opens_few_logs_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Opening(monkeypatch)
    wanted = keys(MALLORY, 100)
    opened_at_once = [key for key in wanted if found.opener.open(key)]
    assert opened_at_once == found.opened == wanted[:OPENED_AT_ONCE]
    async with found.runs():
        await until(lambda: len(found.opened) == 100)
    assert found.opened == wanted, "in the order in which they came"
    assert max(found.in_turn.values()) == OPENED_AT_ONCE


async def test_slow_disk_leaves_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten logs, and then a slice of 10 ms, held each turn of a broker for 20 ms."""
    found = Opening(monkeypatch, takes_s=OPENING_S * 0.6)
    for key in keys(MALLORY, 20):
        found.opener.open(key)
    async with found.runs():
        await until(lambda: len(found.opened) == 20)
    assert max(found.in_turn.values()) == 2


async def test_owners_of_new_topics_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Opening(monkeypatch)
    (own,) = keys(VICTIM, 1)
    for key in (*keys(MALLORY, 1_000), own):
        found.opener.open(key)
    async with found.runs():
        await until(lambda: own in found.opened)
    assert found.opened.index(own) <= OPENED_AT_ONCE + 1


async def test_opener_rests_where_processors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Opening(monkeypatch)
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(delay_s: float) -> None:
        rests.append(delay_s)
        await sleep(0)

    waits = iter([0, 0, 0, 2, 2, 50])
    found.opener.thread_waited_ms = lambda: next(waits)
    for key in keys(MALLORY, 4 * OPENED_AT_ONCE):
        found.opener.open(key)
    monkeypatch.setattr(partition_opener.asyncio, "sleep", rest)
    async with found.runs():
        while len(rests) < 3:
            await sleep(0)
    assert rests == [0, RESTS * 0.002, REST_S_MAX]


async def test_many_images_open_few_logs_each_turn(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each image with a few topics used to have ten logs made at once."""
    one = await broker(0).start()
    monkeypatch.setattr(partition_opener, "OPENING_S", 3_600.0)
    one.deaf = True
    for number in range(30):
        before = controller.image
        controller.create(f"t{number}", (0,))
        one.manager.apply_image(before, controller.image)
    assert len(one.manager) == OPENED_AT_ONCE
    await until(lambda: len(one.manager) == 30)
