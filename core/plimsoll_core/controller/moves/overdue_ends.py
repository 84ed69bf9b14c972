"""Ends the moves whose end was reached without a change of their partition.

Called by ticks.  A restart that was granted and never began holds the end of a move up, and so does
a controller of an earlier release that knew a stricter rule; no ISR changes when either is over.
Source: docs/protocol.md 3.0, step 1.
"""

from __future__ import annotations

from itertools import islice

from plimsoll_core.controller.kernel.availability_margin import away
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, ends_now


def end_moves(turn: DecisionContext) -> None:
    """At most a slice of them; the others end with the next ticks."""
    absent = away(turn.image)
    found = (turn.image.partitions.get(key) for key in turn.soft.moving)
    over = (p for p in found if p is not None and p.moving and ends_now(p, absent))
    now = list(islice(over, turn.settings.slice_partitions_max))
    turn.change([(p, PartitionUpdate()) for p in now], "reassignment completed")
