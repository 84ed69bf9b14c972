"""How much of a processor a process gets on this machine while others run, from moment to moment.

`MachineShare.measured()` runs this module as a process beside a test's own: every half a second it
uses a few milliseconds of a processor and prints when it was done and how much longer that took
than the processor time.  `idle_s` converts an interval into the seconds that an idle machine would
have needed for what could be done in it: bounds that are stated in those hold on a busy machine.
Called by chaos_stalls.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator

EVERY_S = 0.5
USED_S = 0.01
ENDED_S = 10.0


class MachineShare:
    """Slowdowns by their times: 1.0 is a processor of one's own."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._slowdowns: list[float] = []

    @classmethod
    @contextlib.contextmanager
    def measured(cls) -> Iterator[MachineShare]:
        share = cls()
        command = [sys.executable, "-m", __name__ if __name__ != "__main__" else __spec__.name]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            reading = threading.Thread(target=share._read, args=(running,), daemon=True)
            reading.start()
            try:
                yield share
            finally:
                assert running.stdin is not None
                running.stdin.close()
                reading.join(ENDED_S)

    def add(self, at_s: float, slowdown: float) -> None:
        """Measured in the interval that ended at `at_s`."""
        self._slowdowns.append(max(1.0, slowdown))
        self._times_s.append(at_s)

    def slowdown(self, began_s: float, ended_s: float) -> float:
        """In the mean; 1.0 for an empty interval."""
        idle_s = self.idle_s(began_s, ended_s)
        return (ended_s - began_s) / idle_s if idle_s else 1.0

    def idle_s(self, began_s: float, ended_s: float) -> float:
        """What the interval is worth on an idle machine.  Before the first and behind the last
        measurement that one counts."""
        times_s, slowdowns = [*self._times_s], self._slowdowns
        found, at_s = 0.0, began_s
        for index in range(bisect_left(times_s, began_s), len(times_s)):
            if at_s >= ended_s:
                break
            until_s = min(times_s[index], ended_s)
            found += (until_s - at_s) / slowdowns[index]
            at_s = until_s
        last = slowdowns[len(times_s) - 1] if times_s else 1.0
        return found + max(0.0, ended_s - at_s) / last

    def _read(self, running: subprocess.Popen[bytes]) -> None:
        assert running.stdout is not None
        for line in running.stdout:
            at_s, slowdown = line.split()
            self.add(float(at_s), float(slowdown))


def main() -> None:
    """Until standard input ends."""
    while not select.select([0], [], [], EVERY_S)[0] or os.read(0, 1):
        began_s, ends_s = time.monotonic(), time.thread_time() + USED_S
        while time.thread_time() < ends_s:
            pass
        now_s = time.monotonic()
        print(now_s, (now_s - began_s) / USED_S, flush=True)


if __name__ == "__main__":
    main()
