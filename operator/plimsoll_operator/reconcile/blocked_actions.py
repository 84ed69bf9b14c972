"""Shows the operator's actions that wait, in `status.blocked` and in the condition `Blocked`.

An action is voluntary if the cluster serves without it: a restart, a drain, a Rebalance. A
reconciler writes one row (`BlockedAction`) for each of its actions that waits. `status.blocked` and
`Blocked` are computed from all rows, worst first. An object with a True condition Blocked gets a
row too (`row_of`), so every reason in an object's status also reaches the LogCluster, an Event and
the metric.

Pure; called by the term whenever an object is shown, and when a LogCluster's status is drafted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from msgspec.structs import replace

from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import DOWN, down_text
from plimsoll_operator.api.cluster_status import Action, BlockedAction
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition, Conditions

UNTIL_MAX = 4096
"""Maximum length of a row's `until`, in characters."""

STALLED: Final[Action] = "GrowVolume"
"""Name of the one action that does not complete by waiting, since a person must act. It has rows in
`status.blocked`, but is reported by the condition `Stalled` instead of `Blocked`."""

# A broker stays away until a person acts; brokers that the spec asks for do not run; brokers that
# leave still have replicas; the brokers serve, and only the named action waits; they run another
# revision; replicas are not moved yet; a user keeps its login and rights; a verdict is late; the
# metadata version is not raised; a volume cannot grow.
ORDER: tuple[Action, ...] = (
    "ReplacePod",
    "Start",
    "Drain",
    "Hibernate",
    "Restart",
    "Rebalance",
    "Reassignment",
    "User",
    "Verification",
    "FinalizeMetadata",
    "GrowVolume",
)
"""Kinds of actions in `status.blocked`, worst first."""

_RANKS = {action: rank for rank, action in enumerate(ORDER)}


def row_of(action: str, name: str, shown: Iterable[Condition], now: str) -> list[BlockedAction]:
    """Return a list with the row that shows a blocked object in the LogCluster's status. Return an
    empty list if `shown`, the object's conditions, holds no True condition Blocked. `action`: the
    object's kind; `name`: its namespace/name; `now`: the timestamp that the row states as its
    start."""
    blocked = next((c for c in shown if c.type == "Blocked" and c.status == "True"), None)
    if blocked is None:
        return []
    return [
        BlockedAction(
            action=cast("Action", action),
            object=name,
            reason=blocked.reason,
            until=blocked.message[:UNTIL_MAX],
            since=now,
        )
    ]


def with_pod_causes(shown: Iterable[Condition], troubles: Mapping[BrokerId, str]) -> Conditions:
    """Return the conditions `shown`, where each message about a broker that is down also says why
    its pod does not start. `troubles`: that reason as Kubernetes states it, by broker id; brokers
    without an entry get no addition."""
    return tuple(
        replace(one, message=_with_causes(one.message, troubles)) if DOWN in one.message else one
        for one in shown
    )


def _with_causes(text: str, troubles: Mapping[BrokerId, str]) -> str:
    for broker_id, why in troubles.items():
        said = down_text(broker_id)
        text = text.replace(said, f"{said} (its pod: {why.rstrip('.')})")
    return text[:UNTIL_MAX]


def worst_first(rows: Iterable[BlockedAction]) -> list[BlockedAction]:
    """Return the rows sorted by the rank of their action in `ORDER`. Rows of one action keep their
    order."""
    return sorted(rows, key=lambda row: _RANKS[row.action])


def that_wait(rows: Iterable[BlockedAction]) -> list[BlockedAction]:
    """Return the rows without those of `STALLED`: the rows that can end without a person."""
    return [row for row in rows if row.action != STALLED]


def blocked_condition(rows: Sequence[BlockedAction]) -> Condition:
    """Return the True condition `Blocked` for `rows`, which must not be empty and are sorted worst
    first. Its reason and message are those of the first row; the message counts the others."""
    more = f" ({len(rows) - 1} more: see status.blocked.)" if len(rows) > 1 else ""
    return condition("Blocked", True, rows[0].reason, rows[0].sentence + more)
