"""When a shard judges its deadlines, above all in a process that did not run for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from plimsoll_broker.coordinator.coordinator_shard import AT_ONCE, DeadlineTimer
from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.late_timers import LATE_MS, READ_MS


class Loop:
    """Of one timer, at the times that a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.at_ms, self.expired = 0, 0, list[Hashable]()
        self.deadlines = Deadlines()
        self.timer = DeadlineTimer(self.deadlines, lambda: self.now_ms, self.expired.append)
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self)

    def call_later(self, wait_s: float, call: object) -> Loop:
        self.at_ms = self.now_ms + round(wait_s * 1000)
        return self

    def cancel(self) -> None:
        """As a timer of the loop."""

    def fire(self, *, late_ms: int) -> int:
        """How many deadlines were judged."""
        before, self.now_ms = len(self.expired), self.at_ms + late_ms
        self.timer._fired()
        return len(self.expired) - before


def test_heartbeat_read_late_prevents_expiry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(monkeypatch)
    loop.deadlines.set("heard", 1_000)
    loop.deadlines.set("silent", 1_000)
    loop.timer.arm()
    assert loop.fire(late_ms=2_000) == 0
    loop.deadlines.set("heard", 9_000)
    loop.timer.arm()
    assert loop.at_ms == 3_000 + READ_MS
    loop.fire(late_ms=0)
    assert loop.expired == ["silent"]
    assert loop.at_ms == 9_000


def test_timer_that_is_late_again_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    loop.deadlines.set("m", 1_000)
    loop.timer.arm()
    assert [loop.fire(late_ms=2_000) for _ in range(2)] == [0, 1]


def test_punctual_timer_judges_due_members_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(monkeypatch)
    for number in range(3 * AT_ONCE):
        loop.deadlines.set(number, 1_000)
    loop.timer.arm()
    judged = [loop.fire(late_ms=LATE_MS - 1) for _ in range(3)]
    assert judged == [AT_ONCE] * 3
