"""What happened to partitions is seen to once a turn, a portion at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.replication.log_writer import Stepping


class Parked:
    """A fetch that notes when it is woken."""

    def __init__(self, woken: list[Parked], *, for_follower: bool = False) -> None:
        self.for_follower = for_follower
        self._woken = woken

    def moved(self, hosted: Any) -> None:
        """Nothing is counted."""

    def wake(self) -> None:
        self._woken.append(self)


async def test_thousand_consumers_are_woken_over_turns() -> None:
    """A record for which 640 fetches waited held the event loop for 120 ms."""
    woken: list[Parked] = []
    consumers = [Parked(woken) for _ in range(5 * AT_ONCE)]
    followers = [Parked(woken, for_follower=True) for _ in range(2)]
    of: dict[Any, list[Parked]] = {"t": consumers, "u": followers}
    stepping = Stepping(lambda hosted, found: found.update(dict.fromkeys(of[hosted])))
    partitions: Any = "t", "u"
    stepping.touch(partitions[0])
    await asyncio.sleep(0)
    assert 0 < len(woken) <= AT_ONCE
    stepping.touch(partitions[1])
    await asyncio.sleep(0)
    assert set(followers) < set(woken)
    assert len(woken) <= 2 * AT_ONCE + len(followers)
    while len(woken) < len(consumers) + len(followers):
        before = len(woken)
        await asyncio.sleep(0)
        assert before < len(woken) <= before + AT_ONCE
    assert [one for one in woken if not one.for_follower] == consumers, "first parked, first woken"


async def test_fetches_are_woken_when_broker_stops() -> None:
    woken: list[Parked] = []
    consumers = [Parked(woken) for _ in range(3 * AT_ONCE)]
    stepping = Stepping(lambda _, found: found.update(dict.fromkeys(consumers)))
    partition: Any = "t"
    stepping.touch(partition)
    stepping.finish()
    assert woken == consumers
