"""Processor time of processes, from outside them, and what else the machine did meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KERNEL_THREADS_PARENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The pids of one measurement. `controllers`: empty if the brokers are the controllers."""

    brokers: Sequence[int]
    controllers: Sequence[int] = ()
    clients: Sequence[int] = ()

    @property
    def all(self) -> list[int]:
        return [*self.brokers, *self.controllers, *self.clients]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Processor time between two looks. `others_cores`: programs that are no part of the
    measurement; `kernel_cores`: interrupts, writing back; both in processors."""

    seconds: float
    brokers_s: float
    controllers_s: float
    clients_s: float
    others_cores: float
    kernel_cores: float
    steal_cores: float


def used_s(pid: int) -> float:
    """Return the processor time of a process with all its threads, ended ones too; 0 if it is gone.
    Linux has a clock for each process, which counts nanoseconds; `/proc` counts ticks."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def processor_s(pids: Sequence[int]) -> float:
    """Return the processor time of some processes together."""
    return sum(map(used_s, pids))


def resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


class Spent(NamedTuple):
    """Seconds that a process has used, and those of its children that have ended."""

    own_s: float
    children_s: float


def since(before: Mapping[int, Spent], now: Mapping[int, Spent]) -> float:
    """Return the seconds that processes used between two looks. A compiler lives for less than a
    look: it is in its parent's seconds only. A child that ended is there with all that it had used
    before, unless a process that we do not see has waited for it."""
    nothing = Spent(0.0, 0.0)
    own_s = sum(one.own_s - before.get(pid, nothing).own_s for pid, one in now.items())
    children_s = sum(
        one.children_s - before[pid].children_s for pid, one in now.items() if pid in before
    )
    ended_s = sum(sum(one) for pid, one in before.items() if pid not in now)
    return own_s + max(0.0, children_s - ended_s)


class Meter:
    """Looks once when it is made, and again at each `used`."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._own = {*processes.all, os.getpid()}
        self._others = self._of_others()
        self._machine = _machine()
        self._before = self._look()

    def used(self) -> Use:
        """Return what was used since the meter was made."""
        now = self._look()
        machine, others = _machine(), self._of_others()
        took = {key: now[key] - self._before[key] for key in now}
        seconds = took["wall"]
        strangers = since(self._others, others)
        busy = machine[0] - self._machine[0]
        own = took["brokers"] + took["controllers"] + took["clients"] + took["harness"]
        return Use(
            seconds=seconds,
            brokers_s=took["brokers"],
            controllers_s=took["controllers"],
            clients_s=took["clients"],
            others_cores=strangers / seconds,
            kernel_cores=max(0.0, busy - own - strangers) / seconds,
            steal_cores=(machine[1] - self._machine[1]) / seconds,
        )

    def _look(self) -> dict[str, float]:
        return {
            "brokers": processor_s(self._processes.brokers),
            "controllers": processor_s(self._processes.controllers),
            "clients": processor_s(self._processes.clients),
            "harness": time.process_time(),
            "wall": time.perf_counter(),
        }

    def _of_others(self) -> dict[int, Spent]:
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in self._own:
                continue
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) != KERNEL_THREADS_PARENT:
                own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
                found[int(name)] = Spent(own * TICK_S, children * TICK_S)
        return found


def _machine() -> tuple[float, float]:
    """Seconds of all processors: busy, and stolen by other machines of the same host."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    user, nice, system, _idle, _waiting, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq) * TICK_S, steal * TICK_S
