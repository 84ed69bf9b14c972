"""Whether this machine had too much to do while something ran, or waited: by /proc/stat."""

import os
from pathlib import Path

STAT = Path("/proc/stat")
TICKS = os.sysconf("SC_CLK_TCK")


def read() -> tuple[float, float, float]:
    """Return the seconds of all processors that were busy, idle, and stolen by other machines."""
    words = STAT.read_text().split("\n", 1)[0].split()
    user, nice, system, idle, waiting, irq, softirq, stolen = (int(n) / TICKS for n in words[1:9])
    return user + nice + system + irq + softirq, idle + waiting, stolen


class Busy:
    """The processors of this machine from now on, with pods and all other programs."""

    def __init__(self) -> None:
        self._began = read()

    def told(self) -> str:
        busy, idle, stolen = (now - then for now, then in zip(read(), self._began, strict=True))
        return f"processors: busy {busy:.0f} s, idle {idle:.0f} s, stolen {stolen:.0f} s"
