"""The leader lease: whether a leader may still answer reads and acks=0/1.

For clusters that ask for it (`onControllerLoss: StopServing`); asked when a reply is made, never by
a timer.  acks=all needs no lease: a leader that was replaced gathers no quorum.

A leader may answer while *either* of two holds.  (a) The newest answer of a controller that could
show that it is the controller is young: it was asked less than the session timeout ago, less a
margin, so this broker cannot have been fenced since; and everything that was committed when it
answered is applied here, so this broker had not been replaced before.  (b) Every replica that the
controller could elect has followed this leader in its present term within that time, as their next
fetch proves: it acknowledges a reply that was made then, and who follows does not lead.

Unclean elections are outside this bound.  Source: docs/protocol.md §7.2.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.replica.leader import Leader

SESSION_TIMEOUT_MS = 6_000
"""Until a controller has told its own."""
MARGIN_PARTS = 10
"""One part in ten of the session timeout: for clocks that differ, and replies on their way."""
ANSWERS_MAX = 16


class _HeartbeatAnswer(NamedTuple):
    """A confirmed answer to a heartbeat: when it was asked for, and until when it is good, once how
    much is applied."""

    sent_ms: int
    until_ms: int
    metadata_end: MetadataOffset


class LeaderLease:
    """What a broker knows from its heartbeats; one for all its partitions."""

    __slots__ = ("_answers", "_asked_ms", "_until_ms", "window_ms")

    def __init__(self) -> None:
        # Those of which not everything is applied yet.
        self._answers: deque[_HeartbeatAnswer] = deque(maxlen=ANSWERS_MAX)
        # When the newest of the others was asked for.
        self._asked_ms: int | None = None
        self._until_ms: int | None = None
        self.window_ms = _window_ms(SESSION_TIMEOUT_MS)

    def answered(self, sent_ms: int, session_timeout_ms: int, metadata_end: MetadataOffset) -> None:
        """A confirmed controller has answered a heartbeat of `sent_ms`; `metadata_end`: how many
        records were committed then."""
        self.window_ms = _window_ms(session_timeout_ms)
        until_ms = sent_ms + self.window_ms
        self._answers.append(_HeartbeatAnswer(sent_ms, until_ms, metadata_end))

    def from_controller(self, now_ms: int, applied: MetadataOffset) -> bool:
        """(a): with so many records applied here, whether a controller's answer is still good."""
        self._take(applied)
        return self._until_ms is not None and now_ms < self._until_ms

    def applied_since(self, since_ms: int, applied: MetadataOffset) -> bool:
        """With so many records applied here, whether all that was committed at `since_ms` is: a
        controller that was asked later has told how much that was."""
        self._take(applied)
        return self._asked_ms is not None and self._asked_ms >= since_ms

    def _take(self, applied: MetadataOffset) -> None:
        answers = self._answers
        while answers and answers[0].metadata_end <= applied:
            answer = answers.popleft()
            self._until_ms = max(self._until_ms or 0, answer.until_ms)
            self._asked_ms = max(self._asked_ms or 0, answer.sent_ms)


def from_followers(leader: Leader, image: Partition, since_ms: int) -> bool:
    """(b): whether every replica that could be elected follows since `since_ms`.

    `image`: the partition as the newest metadata has it; a leader that has changed its in-sync set
    may not know yet who was put beside it (the ELR).
    """
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
