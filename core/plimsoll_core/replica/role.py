"""A replica's role for one partition as one value, and which role may follow which.

Everything that a role is, and every reason for which one follows another, is in this file. Only
`replica.Replica` takes a role, by `succeed`. The broker reports events (`apply`, `halt`, `close`,
`fail`) and reads `Replica.role`; it never assigns it. Source: docs/protocol.md §4.2 and §4.3
(leading, following), §4.8 (a fenced fetch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.replica.leader import Leader


@dataclass(frozen=True, slots=True)
class Leading:
    """The replica accepts produces, answers fetches and moves the high watermark."""

    leader: Leader
    """The state of this leadership. Another leader epoch has another object, and so is another
    role."""


@dataclass(frozen=True, slots=True)
class Following:
    """The replica fetches from the leader that its metadata names, or waits while they name
    none."""


@dataclass(frozen=True, slots=True)
class Halted:
    """The replica neither leads nor fetches until newer metadata gives it a role. Its log is
    online."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The replica's log is offline, for good: a reopened log has a new replica."""


Role = Leading | Following | Halted | Failed

FOLLOWING, HALTED, FAILED = Following(), Halted(), Failed()
"""The roles without state. Each has one instance, compared by identity."""

LED = "newer metadata name this broker the leader"
LED_ELSEWHERE = "metadata of a newer leader epoch name another leader, or none"
CLOSED = "the partition is dropped here, or the broker stops"
BROKEN = "its disk failed, or its log holds a leader epoch that the metadata have not reached"

MAY_FOLLOW: Mapping[type[Role], Mapping[type[Role], str]] = {
    Halted: {  # also how a replica begins: no leader epoch is known yet
        Leading: LED,
        Following: LED_ELSEWHERE,
        Halted: CLOSED,
        Failed: BROKEN,
    },
    Following: {
        Leading: LED,
        Following: LED_ELSEWHERE,
        Halted: f"the leader fences its leader epoch: newer metadata are on their way; or {CLOSED}",
        Failed: BROKEN,
    },
    Leading: {
        Leading: f"{LED}, in a newer leader epoch",
        Following: LED_ELSEWHERE,
        # Nothing may be fetched from a leader of the own leader epoch; no controller commits one.
        Halted: f"metadata of its own leader epoch name another leader; or {CLOSED}",
        Failed: BROKEN,
    },
    Failed: {
        Failed: "its disk failed again: a flush may fail after an append did",
    },
}
"""For each role and each role that may follow it: the cause of that transition. A transition that
is not listed is a bug."""


def succeed(before: Role, after: Role) -> Role:
    """Return `after`, the replica's next role. Fails an assert if `MAY_FOLLOW` does not allow it
    after `before`."""
    assert type(after) in MAY_FOLLOW[type(before)], (before, after)
    return after
