"""What a watch over an event loop sees, counts and says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from types import FrameType

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.test_replication import until

from plimsoll_process import loop_watch
from plimsoll_process.loop_watch import LoopHolds, LoopTurn


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_loop_watch_counts_holds_and_names_function(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = loop_watch.LoopWatch()
    watch.start()
    try:
        await asyncio.sleep(0)
        compute(0.2)
        await until(lambda: watch.holds.too_long > 0)
    finally:
        watch.stop()
    assert watch.holds.worst_cpu_s > 0.1
    assert watch.holds.recent_max_s > 0.1
    assert "the event loop of this process was blocked for" in caplog.text
    assert "compute" in caplog.text


async def test_loop_watch_counts_while_thread_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The two met in one Counter: "dictionary changed size during iteration" ended the broker.
    Here the thread's look comes between any two lines of the tick, whoever's they are."""
    watch = loop_watch.LoopWatch()
    looks = iter(range(1_000))
    monkeypatch.setattr(loop_watch, "_what_runs", lambda _: f"line {next(looks)}")
    watch.start()
    watch.stop()
    watch._loop_thread = threading.get_ident()

    def between_lines(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_name.startswith("_look_once"):
            return None
        if event == "line":
            watch._look_once()
        return between_lines

    before = sys.gettrace()
    sys.settrace(between_lines)
    try:
        for _ in range(3):
            watch._tick()
    finally:
        sys.settrace(before)
        watch.stop()
    assert next(looks) > 10
    assert len(watch._seen) < loop_watch.LOOKS_MAX


def test_process_that_gets_no_turn_holds_nothing() -> None:
    """Stopped, swapped out, or on a machine that is too busy: late, but not by computing."""
    holds = LoopHolds()
    line = holds.note(LoopTurn(late_s=3.0, cpu_s=0.001, waited_s=2.9), now_s=1.0, where="asleep")
    assert holds.too_long == 0
    assert line == (
        "3000 ms (1 ms of CPU time, 2900 ms waiting for a processor); the code that ran: asleep"
    )


def test_loop_holds_log_one_line_a_second() -> None:
    holds = LoopHolds()
    lines = [holds.note(LoopTurn(0.1, 0.1), now_s=n / 10, where="x") for n in range(1, 22)]
    line = "100 ms (100 ms of CPU time); the code that ran: x"
    more = " (9 similar lines were left out)"
    assert [one for one in lines if one] == [line, line + more, line + more]
    assert holds.too_long == 21


def test_recent_maximum_is_forgotten_after_two_minutes() -> None:
    holds = LoopHolds()
    holds.note(LoopTurn(0.4, 0.4), now_s=61.0, where="x")
    holds.note(LoopTurn(0.0, 0.0), now_s=122.0, where="")
    assert holds.recent_max_s == 0.4
    holds.note(LoopTurn(0.0, 0.0), now_s=183.0, where="")
    assert holds.recent_max_s == 0.0


def test_metrics_are_monotonic_histogram_and_counter() -> None:
    class One(Collector):
        def collect(self):
            yield from loop_watch.loop_metrics("plimsoll_broker_", holds)

    holds = LoopHolds()
    holds.note(LoopTurn(0.002, 0.002), now_s=1.0, where="")
    holds.note(LoopTurn(0.3, 0.2), now_s=1.1, where="x")
    registry = CollectorRegistry()
    registry.register(One())
    text = generate_latest(registry).decode()
    for line in (
        'plimsoll_broker_loop_held_seconds_bucket{le="0.001"} 0.0',
        'plimsoll_broker_loop_held_seconds_bucket{le="0.05"} 1.0',
        'plimsoll_broker_loop_held_seconds_bucket{le="+Inf"} 2.0',
        "plimsoll_broker_loop_held_seconds_max 0.3",
        "plimsoll_broker_loop_holds_total 1.0",
    ):
        assert line in text


@pytest.mark.slow
async def test_test_can_tell_who_held_the_loop() -> None:
    async def long() -> None:
        compute(0.08)

    with pytest.raises(AssertionError, match="long"), nothing_holds_the_loop():
        await asyncio.create_task(long())
    with nothing_holds_the_loop():
        await asyncio.sleep(0.06)


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_loop_watch_leaves_the_collector_unchanged(
    monkeypatch: pytest.MonkeyPatch, collects: bool, fails: bool
) -> None:
    """A collection there stopped the process: the runtime's lock is held."""
    enabled: list[bool] = []

    def frames() -> dict[int, FrameType]:
        enabled.append(gc.isenabled())
        if fails:
            raise MemoryError
        return {}

    monkeypatch.setattr(sys, "_current_frames", frames)
    was = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with pytest.raises(MemoryError) if fails else contextlib.nullcontext():
            loop_watch.LoopWatch()._look_once()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if was else gc.disable)()
    assert enabled == [False]
