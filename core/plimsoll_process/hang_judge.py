"""HangJudge: decides when an event loop that makes no progress is hung, and not only starved.

Fed by `hang_watch`.  A process that got no processor, was stopped, or waits for a disk makes no
progress either, and a restart would only add to the load: such time proves nothing.  Hung is a loop
that made no progress for `HUNG_S` although it could have run all that time.  Pure.
"""

from __future__ import annotations

from typing import NamedTuple

LOOK_EVERY_S = 5.0
HUNG_S = 60.0
STARVED_S = 10.0
"""A wait for a processor of this length is logged."""
STARVED_SHARE = 4
"""A process is starved if it waited for a processor for at least 1/4 of the time."""


def is_starved(waited_ms: int, interval_ms: int) -> bool:
    """Return True if `waited_ms` without a processor make an interval one of starvation."""
    return waited_ms > 0 and waited_ms * STARVED_SHARE >= interval_ms


class LoopInterval(NamedTuple):
    """One interval between two looks at the loop.

    `interval_s`: wall time.  `waited_s`: of it, how long the loop's thread waited for a processor.
    `on_disk`: it waits for a disk now (state D), where no signal ends it either.  `progressed`: the
    loop answered since the last look.
    """

    interval_s: float
    waited_s: float
    on_disk: bool
    progressed: bool


class HangJudge:
    """`silent_s`: since when the loop has made no progress; `proven_s`: how much of that counts."""

    def __init__(self) -> None:
        self.silent_s = 0.0
        self.proven_s = 0.0

    @property
    def is_hung(self) -> bool:
        return self.proven_s >= HUNG_S

    def look(self, look: LoopInterval) -> float:
        """Count one interval.  Returns for how many seconds the loop was silent before it answered,
        0.0 unless it answered now after `STARVED_S` of them."""
        if look.progressed:
            ended_s, self.silent_s, self.proven_s = self.silent_s, 0.0, 0.0
            return ended_s if ended_s >= STARVED_S else 0.0
        self.silent_s += look.interval_s
        if not look.on_disk:
            # A look that comes late was starved, or stopped with the process: no proof.
            self.proven_s += max(0.0, min(look.interval_s, LOOK_EVERY_S) - look.waited_s)
        return 0.0
