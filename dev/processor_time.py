"""Measures how busy this machine's processors were while something ran or waited, and which
processes use them, from /proc.
"""

import os
import time
from pathlib import Path

import psutil

STAT = Path("/proc/stat")
TICKS = os.sysconf("SC_CLK_TCK")


def read() -> tuple[float, float, float]:
    """Return the total seconds for which this machine's processors were busy, idle, and used by
    other virtual machines."""
    words = STAT.read_text().split("\n", 1)[0].split()
    user, nice, system, idle, waiting, irq, softirq, stolen = (int(n) / TICKS for n in words[1:9])
    return user + nice + system + irq + softirq, idle + waiting, stolen


class Busy:
    """Measures how busy this machine's processors are from its creation on, with pods and all other
    programs."""

    def __init__(self) -> None:
        self._began = read()

    def told(self) -> str:
        busy, idle, stolen = (now - then for now, then in zip(read(), self._began, strict=True))
        return f"processors: busy {busy:.0f} s, idle {idle:.0f} s, stolen {stolen:.0f} s"


class Busiest:
    """Finds the processes of this machine, pods' too, that use the most processor time between two
    calls of `told`: a client or a broker that spins takes it from all tests."""

    COUNT = 3
    LEAST = 0.5
    """Processors that a process uses at least to be named."""
    WIDTH = 60

    def __init__(self) -> None:
        # Processor seconds of each process by pid and start time, and when they were read.
        self._used: dict[tuple[int, float], float] = {}
        self._read_s = time.monotonic()
        self.told()

    def told(self) -> list[str]:
        """Return the share of a processor, the pid and the command of those that used the most
        since the last call; a process that is new since then is left out."""
        before, before_s = self._used, self._read_s
        found = list(psutil.process_iter(["pid", "create_time", "cpu_times"]))
        self._read_s = time.monotonic()
        self._used, shares = {}, []
        for process in found:
            info = process.info
            if (times := info["cpu_times"]) is None:
                continue
            key = (info["pid"], info["create_time"])
            self._used[key] = used = times.user + times.system
            if (then := before.get(key)) is not None:
                shares.append(((used - then) / max(self._read_s - before_s, 0.001), process))
        shares.sort(key=lambda one: -one[0])
        return [
            f"{share:.0%} {process.pid} {_command(process)[: self.WIDTH]}"
            for share, process in shares[: self.COUNT]
            if share >= self.LEAST
        ]


def _command(process: psutil.Process) -> str:
    """Return the last words of the process's command, which tell one Java or Python program from
    another; "?" if it has ended."""
    try:
        words = process.cmdline() or [process.name()]
    except psutil.Error:
        return "?"
    names = [word.rpartition("/")[2] for word in words]
    return " ".join((names[0], *[name for name in names[1:] if not name.startswith("-")][-3:]))
