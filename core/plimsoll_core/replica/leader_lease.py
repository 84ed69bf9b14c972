"""The leader lease: the time until which a leader may answer reads and acks=0/1.

For clusters with `onControllerLoss: StopServing`. The lease is checked when a reply is made, never
by a timer. acks=all needs no lease: a leader that was replaced gathers no quorum.

A leader may answer while *either* of two conditions holds. (a) The newest answer of a proven
controller is young: it was requested less than the session timeout ago, less a margin, so this
broker cannot have been fenced since; and everything committed by then is applied here, so this
broker had not been replaced before. (b) Every replica that the controller could elect has fetched
from this leader as a follower in its present leader epoch within that time, as its next fetch
proves: it acknowledges a reply that was made then, and a follower does not lead.

Unclean elections are outside this bound. Source: docs/protocol.md §7.2.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.replica.leader import Leader

SESSION_TIMEOUT_MS = 6_000
"""The session timeout in ms that is used until a controller has sent its own."""
MARGIN_PARTS = 10
"""The divisor of the session timeout that gives the margin: a tenth, for clocks that differ and for
replies on their way."""
ANSWERS_MAX = 16


class _HeartbeatAnswer(NamedTuple):
    """A confirmed controller's answer to the heartbeat sent at `sent_ms`. It allows serving until
    `until_ms`, once the broker has applied all metadata records below `metadata_end`."""

    sent_ms: int
    until_ms: int
    metadata_end: MetadataOffset


class LeaderLease:
    """Holds the time until which a broker's leaders may serve, from the controller's answers to its
    heartbeats. A broker has one for all its partitions. `window_ms`: for how long an answer allows
    serving, from the time when its heartbeat was sent. Times are in ms of the broker's monotonic
    clock."""

    __slots__ = ("_answers", "_asked_ms", "_until_ms", "window_ms")

    def __init__(self) -> None:
        # Answers that count metadata records which this broker has not applied yet.
        self._answers: deque[_HeartbeatAnswer] = deque(maxlen=ANSWERS_MAX)
        # When the heartbeat of the newest applied answer was sent; None without one.
        self._asked_ms: int | None = None
        self._until_ms: int | None = None
        self.window_ms = _window_ms(SESSION_TIMEOUT_MS)

    def answered(self, sent_ms: int, session_timeout_ms: int, metadata_end: MetadataOffset) -> None:
        """Record that a confirmed controller has answered the heartbeat sent at `sent_ms`.
        `metadata_end`: the number of metadata records committed when it answered."""
        self.window_ms = _window_ms(session_timeout_ms)
        until_ms = sent_ms + self.window_ms
        self._answers.append(_HeartbeatAnswer(sent_ms, until_ms, metadata_end))

    def from_controller(self, now_ms: int, applied: MetadataOffset) -> bool:
        """Return True if condition (a) holds: a heartbeat answer still allows serving at `now_ms`.
        An answer counts once the metadata records below `applied` include all that were committed
        when it was sent."""
        self._take(applied)
        return self._until_ms is not None and now_ms < self._until_ms

    def applied_since(self, since_ms: int, applied: MetadataOffset) -> bool:
        """Return True if the broker has applied every metadata record that was committed at
        `since_ms`: a heartbeat sent at or after that time was answered, and all records that the
        answer counted are below `applied`."""
        self._take(applied)
        return self._asked_ms is not None and self._asked_ms >= since_ms

    def _take(self, applied: MetadataOffset) -> None:
        answers = self._answers
        while answers and answers[0].metadata_end <= applied:
            answer = answers.popleft()
            self._until_ms = max(self._until_ms or 0, answer.until_ms)
            self._asked_ms = max(self._asked_ms or 0, answer.sent_ms)


def from_followers(leader: Leader, image: Partition, since_ms: int) -> bool:
    """Return True if condition (b) holds: every other replica that could be elected has
    acknowledged a reply that this leader sent after `since_ms`. Return False if the newest metadata
    name another leader epoch. `image`: the partition in the newest metadata, since `leader` may not
    know yet which replicas are in the ELR."""
    if image.leader_epoch != leader.epoch:
        return False
    electable = dict.fromkeys((*image.isr, *image.elr, *leader.isr.maximal))
    return all(
        _followed(leader, member, since_ms) for member in electable if member != image.leader
    )


def _followed(leader: Leader, member: BrokerId, since_ms: int) -> bool:
    progress = leader.followers.get(member)
    return (
        progress is not None
        and progress.acknowledged_ms is not None
        and progress.acknowledged_ms > since_ms
    )


def _window_ms(session_timeout_ms: int) -> int:
    return session_timeout_ms - session_timeout_ms // MARGIN_PARTS
