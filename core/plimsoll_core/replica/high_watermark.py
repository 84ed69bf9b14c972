"""How far a leader's high watermark may go: the commit rule.

Called by `replica.Replica` once per turn of the event loop, after appends, fetches and changes of
the ISR.  Sources: the protocol's commit rule; KIP-497 (the maximal ISR counts), KIP-966 (frozen
below min ISR).
"""

from __future__ import annotations

from plimsoll_core.replica.leader import Leader


def committable(leader: Leader, log_end: int) -> int | None:
    """How far the log is on every replica that may be in sync; None = nothing may commit.

    Frozen while the committed in-sync set is below its minimum: a replica outside it may be
    elected then and must hold everything that was ever committed.
    """
    if len(leader.isr.committed) < leader.min_isr:
        return None
    candidate = log_end
    for follower in leader.quorum:
        end = follower.log_end
        if end is None:
            return None
        if end < candidate:
            candidate = end
    return candidate
