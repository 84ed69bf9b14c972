"""Counts how long an event loop was held, and decides which holds are logged.

Fed by `loop_watch`.  One turn of a loop is what runs between two chances for a timer: no other
connection is served meanwhile, no heartbeat is sent.  Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from plimsoll_process.log_lines import LineLimit

HELD_S_MAX = 0.05
"""No request and no chore holds the loop longer."""
BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECENT_S = 60.0


class LoopTurn(NamedTuple):
    """`late_s`: by how much a timer ran late; `cpu_s`: how much of that the loop's thread computed;
    `waited_s`: how much of it the thread waited for a processor.

    A machine that gives the process no turn makes it late as well, and that is no fault of ours.
    The rest is a wait for the interpreter's lock, for a disk, or for the end of a CPU limit.
    """

    late_s: float
    cpu_s: float
    waited_s: float = 0.0


class LoopHolds:
    """Statistics of holds of the event loop. All but `recent_max_s` only grow."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.too_long = 0
        self.worst_cpu_s = 0.0
        self.waited_s = 0.0
        """Time in which the loop's thread waited for a processor; `hang_watch` counts it."""
        self._maxima = (0.0, 0.0)
        self._window_began_s = 0.0
        self._limit = LineLimit()

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def recent_max_s(self) -> float:
        """The longest hold of the last one to two minutes."""
        return max(self._maxima)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return the number of turns up to each bound; Prometheus' buckets, without the last."""
        total, found = 0, []
        for bound, count in zip(BOUNDS_S, self.counts[:-1], strict=True):
            total += count
            found.append((bound, total))
        return found

    def note(self, turn: LoopTurn, now_s: float, where: str) -> str | None:
        """Count it; the line to log, if it is worth one.  `where`: what was seen running."""
        self.counts[bisect_left(BOUNDS_S, turn.late_s)] += 1
        self.sum_s += turn.late_s
        self.worst_cpu_s = max(self.worst_cpu_s, turn.cpu_s)
        if now_s - self._window_began_s >= RECENT_S:
            self._window_began_s = now_s
            self._maxima = (0.0, self._maxima[0])
        self._maxima = (max(self._maxima[0], turn.late_s), self._maxima[1])
        if turn.late_s <= HELD_S_MAX:
            return None
        if turn.cpu_s > HELD_S_MAX:
            self.too_long += 1
        return self._line(turn, now_s, where)

    def _line(self, turn: LoopTurn, now_s: float, where: str) -> str | None:
        more = self._limit.due(now_s)
        if more is None:
            return None
        late_ms, cpu_ms, waited_ms = (round(seconds * 1000) for seconds in turn)
        without = f", {waited_ms} ms without a processor" if waited_ms else ""
        held = f"the event loop was held for {late_ms} ms, {cpu_ms} ms of CPU{without}"
        return f"{held}: {where}{more}"
