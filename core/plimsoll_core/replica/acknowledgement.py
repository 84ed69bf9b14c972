"""The checks of acks=all against min ISR, before and after an append.

Called by `replica.Replica`.  Before the append the *committed* ISR counts, after it the *maximal*
one.  Source: the protocol's rule for Produce.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
from plimsoll_core.replica.leader import Leader


def check_before_append(leader: Leader, acks: int) -> Code:
    """NOT_ENOUGH_REPLICAS: nothing is written."""
    if acks == -1 and not leader.enough_in_sync:
        return Code.NOT_ENOUGH_REPLICAS
    return Code.NONE


def check_at_commit(leader: Leader) -> Code:
    """What a batch below the high watermark is answered with: it is written in any case."""
    short = len(leader.isr.maximal) < leader.min_isr
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE


def check_waiting(leader: Leader) -> Code:
    """What the batches that wait are answered with when the ISR has changed; NONE: they wait on.

    Below min ISR the high watermark is frozen: waiting longer could only end in a timeout.
    """
    short = not leader.enough_in_sync
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE
