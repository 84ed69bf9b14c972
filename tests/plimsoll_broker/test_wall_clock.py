"""Nothing is deleted for its age by a clock that has stepped."""

import time

import pytest
from tests.plimsoll_broker.test_replication import Make
from tests.plimsoll_broker.trio import Controller, a_batch

from plimsoll_broker.replication.periodic_chores import Upkeep
from plimsoll_broker.replication.wall_clock import STEP_MS_MAX, WallClock
from plimsoll_core.errors import Code

DAY_MS = 86_400_000


class Clocks:
    """Both in milliseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.monotonic_ms = 1_800_000_000_000, 5_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ms * 1_000_000)

    def go_on(self, ms: int, *, slewed: int = 0) -> None:
        self.wall_ms += ms + slewed
        self.monotonic_ms += ms


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_clock_that_goes_on_is_believed(clocks: Clocks) -> None:
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.go_on(30 * DAY_MS, slewed=STEP_MS_MAX)
    assert wall.now_ms() == clocks.wall_ms


@pytest.mark.parametrize("step_ms", [7 * DAY_MS, -7 * DAY_MS, STEP_MS_MAX + 1])
def test_clock_that_stepped_is_not_believed_until_it_is_set_back(
    clocks: Clocks, step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.wall_ms += step_ms
    assert wall.now_ms() is None
    assert f"stepped by {step_ms} ms" in caplog.text
    clocks.go_on(DAY_MS)
    assert wall.now_ms() is None
    clocks.wall_ms -= step_ms
    assert wall.now_ms() == clocks.wall_ms


def test_machine_that_was_suspended_is_believed(clocks: Clocks) -> None:
    """The clock that never steps goes on meanwhile."""
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.go_on(7 * DAY_MS)
    assert wall.now_ms() == clocks.wall_ms


async def test_broker_whose_clock_is_a_week_ahead_keeps_what_it_holds(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deleted everything within seconds, and as leader made its followers delete it, too."""
    one = await broker(0).start()
    controller.create("t", (0,), **{"retention.ms": str(DAY_MS)})
    client = await one.client()
    now_ms = time.time_ns() // 1_000_000
    for _ in range(3):
        assert (await client.produce("t", a_batch(1, timestamp=now_ms)))[0] == Code.NONE
    upkeep = Upkeep(one.manager)
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms + 7 * DAY_MS) * 1_000_000)
    await upkeep._retain()
    monkeypatch.undo()
    log = one.hosted("t").log
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
