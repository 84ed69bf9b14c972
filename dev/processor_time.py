"""Measures how busy this machine's processors were while something ran or waited, from
/proc/stat.
"""

import os
from pathlib import Path

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
