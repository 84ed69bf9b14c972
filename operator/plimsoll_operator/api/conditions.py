"""Merges the conditions of a status, so that their transition times change only with their status:
pure.

Clients read from `lastTransitionTime` how long a condition has lasted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from plimsoll_operator.api.meta import Condition, ConditionStatus

MESSAGE_LENGTH_MAX = 32_768
ENDINGS = ("Complete", "Failed")
"""Types of the conditions that end an object. An object with one of them True is not reconciled any
more."""


def condition(type_: str, status: bool | None, reason: str, message: str) -> Condition:
    """Return a condition without times, which `merge` adds. `status` None: Unknown. A message
    longer than `MESSAGE_LENGTH_MAX` characters is cut."""
    states: dict[bool | None, ConditionStatus] = {True: "True", False: "False", None: "Unknown"}
    return Condition(
        type=type_, status=states[status], reason=reason, message=message[:MESSAGE_LENGTH_MAX]
    )


def is_true(body: dict[str, Any], type_: str) -> bool:
    """Return True if the status in the object `body` shows the condition `type_` as True; False if
    it is absent."""
    shown = (body.get("status") or {}).get("conditions") or ()
    return any(one["type"] == type_ and one["status"] == "True" for one in shown)


def has_ended(shown: Iterable[Condition]) -> bool:
    """Return True if one of these conditions shows that a Reassignment, Rebalance or Verification
    has ended, with success or failure."""
    return any(one.type in ENDINGS and one.status == "True" for one in shown)


def unready(ready: Condition, stalled: Condition) -> Condition:
    """Return the condition Ready to show for a stalled object: `ready` unchanged if it is True,
    else Ready=False with the reason and message of `stalled`."""
    if ready.status == "True":
        return ready
    return condition("Ready", False, stalled.reason, stalled.message)


def merge(
    before: Iterable[Condition], now: Iterable[Condition], generation: int, now_ms: int
) -> tuple[Condition, ...]:
    """Return the conditions `now`, sorted by type, with their times and generation filled in. A
    condition with the same status as in `before` keeps its transition time; any other gets `now_ms`
    (milliseconds since 1970). Conditions that are only in `before` are left out."""
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
    """Format milliseconds since 1970 as RFC 3339 to the second, as Kubernetes does."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(at_ms: int) -> str:
    """Format milliseconds since 1970 as RFC 3339 to the microsecond, as in Leases and Events
    (`MicroTime`)."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def milliseconds(stamp: str) -> int:
    """Parse an RFC 3339 time, with or without fractions of a second. Returns milliseconds since
    1970, rounded down. Raises ValueError for any other text."""
    return int(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000)
