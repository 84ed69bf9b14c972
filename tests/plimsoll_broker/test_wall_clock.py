"""Nothing is deleted for its age by a clock that has stepped."""

import os
import time

import pytest
from tests.plimsoll_broker.test_replication import Make
from tests.plimsoll_broker.trio import Controller, a_batch

from plimsoll_broker.clocks import STEP_MS_MAX, WallClock
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_core.errors import Code

pytestmark = pytest.mark.usefixtures("small_segments")

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
def test_stepped_clock_is_distrusted_until_set_back(
    clocks: Clocks, step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.wall_ms += step_ms
    assert wall.now_ms() is None
    assert f"jumped by {step_ms} ms" in caplog.text
    clocks.go_on(DAY_MS)
    assert wall.now_ms() is None
    clocks.wall_ms -= step_ms
    assert wall.now_ms() == clocks.wall_ms


@pytest.mark.parametrize("step_ms", [-7 * DAY_MS, -STEP_MS_MAX - 1])
def test_records_written_while_clock_is_back_stay_young(clocks: Clocks, step_ms: int) -> None:
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.go_on(DAY_MS, slewed=-STEP_MS_MAX)
    assert wall.stamp_ms() == clocks.wall_ms
    clocks.go_on(1, slewed=STEP_MS_MAX)
    true_ms = clocks.wall_ms
    clocks.wall_ms += step_ms
    assert wall.stamp_ms() == true_ms
    clocks.go_on(DAY_MS)
    assert wall.stamp_ms() == true_ms + DAY_MS
    clocks.wall_ms -= step_ms
    assert wall.stamp_ms() == clocks.wall_ms


def test_records_of_wrong_start_clock_get_right_time(
    clocks: Clocks,
) -> None:
    """It may as well have been set ahead: then what is written stays for longer."""
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.go_on(DAY_MS, slewed=7 * DAY_MS)
    assert wall.stamp_ms() == clocks.wall_ms


def test_machine_that_was_suspended_is_believed(clocks: Clocks) -> None:
    """The clock that never steps goes on meanwhile."""
    wall = WallClock(lambda: clocks.monotonic_ms)
    clocks.go_on(7 * DAY_MS)
    assert wall.now_ms() == clocks.wall_ms


async def test_broker_with_clock_ahead_keeps_records(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deleted everything within seconds, and as leader made its followers delete it, too."""
    one = await broker(0).start()
    controller.create("t", (0,), **{"retention.ms": str(DAY_MS)})
    client = await one.client()
    now_ms = time.time_ns() // 1_000_000
    for _ in range(3):
        assert (await client.produce("t", a_batch(1, timestamp=now_ms)))[0] == Code.NONE
    upkeep = PeriodicChores(one.manager)
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms + 7 * DAY_MS) * 1_000_000)
    await upkeep._retain()
    monkeypatch.undo()
    log = one.hosted("t").log
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


@pytest.mark.parametrize("kind", ["LogAppendTime", "CreateTime"])
async def test_record_taken_while_clock_is_back_is_young(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With the broker's time it was a week old at once, by any other clock: a follower's, or its
    own that was set right.  With its producer's time it was refused as one of the future."""
    one = await broker(0).start()
    controller.create("t", (0,), **{"message.timestamp.type": kind})
    client = await one.client()
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms - 7 * DAY_MS) * 1_000_000)
    assert (await client.produce("t", a_batch(1, timestamp=now_ms)))[0] == Code.NONE
    monkeypatch.undo()
    (segment,) = one.hosted("t").log.segments
    assert 0 <= segment.max_timestamp - now_ms < STEP_MS_MAX


@pytest.mark.parametrize("segments", [1, 3])
async def test_records_without_time_stay_as_long(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    """They are as old as their file, which had the time of that clock: once it was set right they
    were a year old, and went."""
    one = await broker(0).start()
    configs = {"retention.ms": str(DAY_MS), "segment.bytes": "1000"}
    controller.create("t", (0,), **configs)
    client, upkeep, log = await one.client(), PeriodicChores(one.manager), one.hosted("t").log
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms - 365 * DAY_MS) * 1_000_000)
    for _ in range(segments):
        assert (await client.produce("t", a_batch(1, timestamp=-1, filler=900)))[0] == Code.NONE
    for segment in log.segments:
        os.utime(segment.path, (now_ms // 1_000 - 365 * 86_400,) * 2)
    await upkeep._retain()
    monkeypatch.undo()
    await upkeep._retain()
    assert (log.log_start_offset, len(log.segments)) == (0, segments)
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms + 2 * DAY_MS) * 1_000_000)
    monkeypatch.setattr(one.manager, "wall_clock", WallClock(one.manager.now_ms))
    await PeriodicChores(one.manager)._retain()
    assert log.log_start_offset == segments


async def test_file_of_stepped_clock_is_not_future(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,))
    client, upkeep = await one.client(), PeriodicChores(one.manager)
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: (now_ms + 365 * DAY_MS) * 1_000_000)
    await upkeep._retain()
    monkeypatch.undo()
    assert (await client.produce("t", a_batch(1, timestamp=-1)))[0] == Code.NONE
    await upkeep._retain()
    (segment,) = one.hosted("t").log.segments
    assert segment.modified_ms() <= time.time_ns() // 1_000_000


async def test_broker_parts_share_one_clock(broker: Make) -> None:
    """Each had its own, begun when it was made: what one stamped for right another would not
    believe."""
    one = await broker(0).start()
    clock = one.manager.wall_clock
    assert ProduceHandler(one.manager, Aside())._clock is clock
    assert PeriodicChores(one.manager)._cleaner._wall_ms.__self__ is clock
