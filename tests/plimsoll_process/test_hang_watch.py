"""HangWatch: real processes that hang, and threads' times as the kernel tells them."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.plimsoll_broker.test_replication import until

from plimsoll_process import hang_watch
from plimsoll_process.hang_watch import EXIT_HUNG, HangWatch, read_times
from plimsoll_process.loop_watch import LoopHolds

PROGRAM = """
import asyncio, sys, time
from plimsoll_process import hang_watch
from plimsoll_process import hang_watch
from plimsoll_process.loop_watch import LoopHolds

hang_watch.HUNG_S, hang_watch.SILENT_CPU_S = 0.5, {silent_cpu_s}

async def main():
    hang_watch.HangWatch(LoopHolds(), every_s=0.05).start()
    await asyncio.sleep(0)
    {hang}

asyncio.run(main())
"""


def run(hang: str, silent_cpu_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(hang=hang, silent_cpu_s=silent_cpu_s)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["time.sleep(3600)", "while True: pass"])
def test_process_whose_loop_hangs_ends_itself(hang: str):
    ended = run(hang)
    assert ended.returncode == EXIT_HUNG, ended.stderr
    assert "the event loop is hung" in ended.stderr


@pytest.mark.slow
def test_native_code_that_keeps_the_lock_is_ended():
    """No thread of Python can look then; the kernel counts the processor time."""
    ended = run("sum(range(10 ** 15))", silent_cpu_s=0.5)
    assert ended.returncode == -signal.SIGPROF, ended.stderr


async def test_loop_that_answers_goes_on():
    holds = LoopHolds()
    watch = HangWatch(holds, every_s=0.01)
    watch.start()
    try:
        await asyncio.sleep(0.2)
        assert watch._judge.proven_s < 1
    finally:
        watch.stop()
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0.0


async def test_waits_of_the_thread_are_counted(monkeypatch: pytest.MonkeyPatch):
    """The kernel's figures are stood in for: another second of waiting at each look."""
    waited_s = iter(range(1_000_000))
    monkeypatch.setattr(
        hang_watch,
        "read_times",
        lambda _: hang_watch.ThreadTimes(float(next(waited_s)), on_disk=False),
    )
    holds = LoopHolds()
    watch = HangWatch(holds, every_s=0.001)
    watch.start()
    try:
        await until(lambda: holds.waited_s >= 3)
    finally:
        watch.stop()


def test_times_of_a_thread_are_the_kernels():
    times = read_times(threading.get_native_id())
    assert times is not None
    assert 0 <= times.waited_s < time.clock_gettime(time.CLOCK_BOOTTIME)
    assert not times.on_disk


@pytest.mark.parametrize(("state", "on_disk"), [("D", True), ("S", False), ("R", False)])
def test_disk_wait_is_read_behind_any_name(tmp_path: Path, state: str, on_disk: bool):
    thread = tmp_path / "7"
    thread.mkdir()
    (thread / "schedstat").write_text("100 2500000000 3\n")
    (thread / "stat").write_text(f"7 (D) S (odd)) {state} 1 2 3\n")
    times = read_times(7, tmp_path)
    assert times is not None
    assert times.on_disk is on_disk
    assert times.waited_s >= 2.5


def test_times_of_unknown_thread_are_none(tmp_path: Path):
    assert read_times(7, tmp_path) is None


def test_kernel_without_schedstat_tells_nothing(tmp_path: Path):
    """It shows zeros: a starved process would be taken for a hung one."""
    thread = tmp_path / "7"
    thread.mkdir()
    (thread / "schedstat").write_text("0 0 0\n")
    (thread / "stat").write_text("7 (python) R 1 2 3\n")
    assert read_times(7, tmp_path) is None


async def test_interval_that_cannot_be_read_proves_nothing(monkeypatch: pytest.MonkeyPatch):
    looks = 0

    def refused(_: int) -> None:
        nonlocal looks
        looks += 1
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(hang_watch, "read_times", refused)
    watch = HangWatch(LoopHolds(), every_s=0.001)
    watch.start()
    try:
        await until(lambda: looks > 3)
    finally:
        watch.stop()
    assert watch._judge.proven_s == 0.0
