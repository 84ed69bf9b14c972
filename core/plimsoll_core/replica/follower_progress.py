"""How far one follower is, as its fetches prove it, and since when it has been caught up.

Kept by `leader.Leader` and by the sessions of followers that fetch.  A fetch at the leader's end
means caught up now; one at the end as it was at the fetch before, caught up then.  Source: the
protocol's rule for shrinking an ISR; KIP-227 (sessions).
"""

from __future__ import annotations

from plimsoll_core.replica.replica_values import FollowerFetch


class Presence:
    """When a follower's fetch session was heard last, and which reply it acknowledged then.

    An incremental fetch names only what has changed, and counts for every partition of its session.
    A follower that is settled has nothing left to fetch: its progress reads the times here, so that
    a fetch costs nothing for it.
    """

    __slots__ = ("acknowledged_ms", "fetch_ms")

    def __init__(self) -> None:
        self.fetch_ms = 0
        self.acknowledged_ms: int | None = None


class FollowerProgress:
    """How far one follower is, as its fetches in this term tell; None = not heard of."""

    __slots__ = (
        "_acknowledged_ms",
        "_caught_up_ms",
        "_fetch_leader_end",
        "_fetch_ms",
        "_presence",
        "broker_epoch",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_ms: int | None) -> None:
        self.log_end: int | None = None
        self.log_start = 0
        self.broker_epoch: int | None = None
        self._fetch_ms = 0
        self._fetch_leader_end: int | None = None
        self._caught_up_ms = caught_up_ms
        self._acknowledged_ms: int | None = None
        self._presence: Presence | None = None

    @property
    def caught_up_ms(self) -> int | None:
        """When it certainly had everything."""
        return self._caught_up_ms if self._presence is None else self._presence.fetch_ms

    @property
    def acknowledged_ms(self) -> int | None:
        """When it certainly followed in this term."""
        return self._acknowledged_ms if self._presence is None else self._presence.acknowledged_ms

    def settle(self, presence: Presence) -> None:
        """It has everything: until the leader's end moves, each fetch of its session says so."""
        self._presence = presence

    def unsettle(self, session: Presence) -> None:
        """The leader's end has moved, or the session ends: what its last fetch said stays.

        Another connection of the follower may have taken the session's place meanwhile."""
        if self._presence is session:
            self._leave_session(session)

    def _leave_session(self, presence: Presence | None) -> None:
        if presence is not None:
            self._presence = None
            self._caught_up_ms = self._fetch_ms = presence.fetch_ms
            self._fetch_leader_end = self.log_end
            self._acknowledged_ms = presence.acknowledged_ms

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> None:
        """A fetch at an offset proves that everything below it is on the follower's disk."""
        self._leave_session(self._presence)
        offset = fetch.offset
        if offset >= leader_end:
            self._caught_up_ms = now_ms
        elif self._fetch_leader_end is not None and offset >= self._fetch_leader_end:
            self._caught_up_ms = self._fetch_ms
        self._fetch_ms = now_ms
        self._fetch_leader_end = leader_end
        self.log_end = offset
        self.log_start = fetch.log_start
        self.broker_epoch = fetch.broker_epoch
        if fetch.leader_epoch is not None:
            self._acknowledged_ms = fetch.acknowledged_ms
