"""Merges conditions so that they change only when something changed: pure.

`lastTransitionTime` moves only with a condition's status; clients read from it how long the
condition has lasted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from plimsoll_operator.api.meta import Condition, ConditionStatus

MESSAGE_LENGTH_MAX = 32_768
ENDINGS = ("Complete", "Failed")
"""Conditions that end an object: it is not reconciled any more."""


def condition(type_: str, status: bool | None, reason: str, message: str) -> Condition:
    """Return a condition without times; `merge` adds them."""
    states: dict[bool | None, ConditionStatus] = {True: "True", False: "False", None: "Unknown"}
    return Condition(
        type=type_, status=states[status], reason=reason, message=message[:MESSAGE_LENGTH_MAX]
    )


def is_true(body: dict[str, Any], type_: str) -> bool:
    """Return True if the object's status shows the condition as True."""
    shown = (body.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in shown)


def has_ended(shown: Iterable[Condition]) -> bool:
    """Return True if these conditions show a Reassignment, Rebalance or Verification as over, well
    or not."""
    return any(one.type in ENDINGS and one.status == "True" for one in shown)


def unready(ready: Condition, stalled: Condition) -> Condition:
    """Return Ready unchanged for a stalled cluster that still serves, else not Ready with the
    reason of Stalled."""
    if ready.status == "True":
        return ready
    return condition("Ready", False, stalled.reason, stalled.message)


def merge(
    before: Iterable[Condition], now: Iterable[Condition], generation: int, now_ms: int
) -> tuple[Condition, ...]:
    """Return `now`, with the transition times of conditions in `before` that have the same
    status."""
    known = {c.type: c for c in before}
    merged = []
    for new in sorted(now, key=lambda c: c.type):
        old = known.get(new.type)
        unchanged = old is not None and old.status == new.status and old.last_transition_time
        merged.append(
            msgspec.structs.replace(
                new,
                observed_generation=generation,
                last_transition_time=(
                    old.last_transition_time if unchanged and old else timestamp(now_ms)
                ),
            )
        )
    return tuple(merged)


def timestamp(at_ms: int) -> str:
    """Format as RFC 3339 to the second, as Kubernetes does."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(at_ms: int) -> str:
    """Format as RFC 3339 to the microsecond, as in Leases and Events (`MicroTime`)."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def milliseconds(stamp: str) -> int:
    """Parse a `timestamp`, also with fractions of a second."""
    return int(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000)
