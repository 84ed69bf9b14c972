"""Keeps the driver of a continuous run running: starts it again as soon as it ends.

Called by `verification`. It is a small process beside Spark: if the JVM or the driver dies, the
next driver begins within seconds, in the same directory. A Job would wait longer after each death.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType

PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
LIVED_S = 60.0
"""A driver that lived so long has not failed at its start: the next one begins after `PAUSE_S`."""
STOP_WITHIN_S = 10.0
SUPERSEDED = 4
"""The exit code of a driver that ended because another pod's works on the run."""
ENDINGS = (0, 2, SUPERSEDED)

log = logging.getLogger(__name__)


def keep_running(words: Sequence[str]) -> int:
    """Run the command, and again each time it ends, until its exit code is that of a verdict, a
    refusal or another pod's driver, which is returned. On SIGTERM end it, and return 143."""
    pause_s = PAUSE_S
    stopped: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        if child is not None:
            child.terminate()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while not stopped:
            began_s = time.monotonic()
            child = subprocess.Popen(words)
            code = _ended(child, stopped)
            if stopped or code in ENDINGS:
                break
            lived_s = time.monotonic() - began_s
            pause_s = PAUSE_S if lived_s >= LIVED_S else min(PAUSE_MAX_S, 2 * pause_s)
            log.warning(
                "the driver process of the Verification ended with exit code %d after %.0f s; a "
                "new one starts in %.0f s, continues the run, and nothing needs to be done "
                "unless this repeats",
                *(code, lived_s, pause_s),
            )
            until_s = time.monotonic() + pause_s
            while not stopped and time.monotonic() < until_s:
                time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    return 128 + signal.SIGTERM if stopped else code


def _ended(child: subprocess.Popen[bytes], stopped: list[int]) -> int:
    """Wait for the child's end and return its exit code. Kill it if it has not ended
    `STOP_WITHIN_S` seconds after it was to stop."""
    while True:
        try:
            return child.wait(STOP_WITHIN_S if stopped else 1.0)
        except subprocess.TimeoutExpired:
            if stopped:
                child.kill()
