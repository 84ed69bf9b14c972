"""The waits of voluntary actions: each reconciler writes the rows of its own kind of action, and
`status.blocked` and the condition `Blocked` are computed from all rows, worst first.

Pure; called by the drafts of a LogCluster's status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll_operator.api.cluster_status import Action, BlockedAction
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition

STALLED: Final[Action] = "GrowVolume"
"""No waiting ends this one: its rows are shown, and its condition is `Stalled`."""

ORDER: dict[Action, str] = {
    "ReplacePod": "A broker is away for good until a person acts: its partitions lack a replica.",
    "Start": "Brokers that the spec asks for are not there: what depends on them waits, too.",
    "Drain": "Brokers that are to leave keep their replicas; all of them serve.",
    "Restart": "Brokers serve, with another revision of their template.",
    "FinalizeMetadata": "The cluster works as before.",
    "GrowVolume": "Its condition is `Stalled`: the row only names the volume.",
}
"""Every action, worst first, with why it stands there."""

_RANKS = {action: rank for rank, action in enumerate(ORDER)}


def worst_first(rows: Iterable[BlockedAction]) -> list[BlockedAction]:
    """By action; rows of one action stay in the order in which their reconciler wrote them."""
    return sorted(rows, key=lambda row: _RANKS[row.action])


def that_wait(rows: Iterable[BlockedAction]) -> list[BlockedAction]:
    """The rows that can end without a person."""
    return [row for row in rows if row.action != STALLED]


def blocked_condition(rows: Sequence[BlockedAction]) -> Condition:
    """The condition `Blocked` of at least one row that waits, worst first: it states the first; the
    others are in the status."""
    more = f" ({len(rows) - 1} more: see status.blocked.)" if len(rows) > 1 else ""
    return condition("Blocked", True, rows[0].reason, rows[0].sentence + more)
