"""The tail stream: what a leader pushes to a follower whose fetch waits, and what is outstanding.

A follower in the ISR that has the whole log waits at its leader with a fetch. If it says so, the
leader does not answer that fetch when records are appended; it pushes them, and the follower
acknowledges each push with its next fetch position. An acknowledgement is a fetch to the leader's
rules (`Replica.follower_fetch`). The stream lasts as long as the fetch waits. Whatever is not plain
appending is left to the fetch and its reply. Source: docs/protocol.md §4.15.
"""

from __future__ import annotations

from collections import deque

from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica_context import LogView

PUSH_BYTES_MIN = 4096
"""The bytes that a smaller push counts for. So a follower that rested has a bounded number of
pushes to take in one turn of its event loop."""


class Pushed:
    """The end offsets of what was pushed to a follower of one partition, and of what it has
    acknowledged.

    `had_all_ms`: the latest known time, in ms of the leader's clock, at which the leader's log had
    nothing that is not acknowledged now; None if there is none since the last fetch. A follower
    that acknowledges a stream without a pause never reaches the log end of the moment.
    """

    __slots__ = ("_sample", "acknowledged", "had_all_ms", "sent")

    def __init__(self) -> None:
        self.acknowledged = self.sent = 0
        self.had_all_ms: int | None = None
        # The leader's log end at the time of a push that is not acknowledged, and that time.
        self._sample: tuple[int, int] | None = None

    @property
    def outstanding(self) -> bool:
        """True if the follower has not acknowledged all that was pushed."""
        return self.sent > self.acknowledged

    def begin(self, offset: int) -> None:
        """Record that the follower fetches from `offset`: it will not acknowledge earlier
        pushes."""
        self.acknowledged = self.sent = offset
        self.had_all_ms = self._sample = None

    def pushed_at(self, log_end: int, now_ms: int) -> None:
        """Record that a push is sent at `now_ms`, when the leader's log ends at `log_end`."""
        if self._sample is None:
            self._sample = log_end, now_ms

    def acknowledge(self, end: int) -> None:
        """Record that the follower has the records below `end`."""
        self.acknowledged = end
        sample = self._sample
        if sample is not None and end >= sample[0]:
            self.had_all_ms, self._sample = sample[1], None


class SendWindow:
    """The bytes on one connection that were pushed and not acknowledged, of all its partitions. A
    follower acknowledges in the order of the pushes."""

    __slots__ = ("_bytes_max", "_in_flight", "unacknowledged")

    def __init__(self) -> None:
        self._bytes_max = 0
        self._in_flight: deque[tuple[Pushed, int, int]] = deque()
        self.unacknowledged = 0

    def begin(self, bytes_max: int) -> None:
        """Begin anew with a fetch that permits so many bytes: the follower sent it after it had
        received all pushes."""
        self._bytes_max = bytes_max
        self._in_flight.clear()
        self.unacknowledged = 0

    @property
    def room(self) -> int:
        """The number of bytes that may be pushed now; 0 or less if none may."""
        return self._bytes_max - self.unacknowledged

    def push(self, to: Pushed, end: int, size: int) -> None:
        """Record a push of `size` bytes, of the records up to the offset `end`."""
        to.sent, size = end, max(size, PUSH_BYTES_MIN)
        self._in_flight.append((to, end, size))
        self.unacknowledged += size

    def acknowledge(self, by: Pushed, end: int) -> bool:
        """Record that the follower has the records below `end`, and return True. Return False if no
        follower can say so: it had more already, or was not sent that much."""
        if not by.acknowledged <= end <= by.sent:
            return False
        by.acknowledge(end)
        in_flight = self._in_flight
        while in_flight and in_flight[0][0].acknowledged >= in_flight[0][1]:
            self.unacknowledged -= in_flight.popleft()[2]
        return True


def may_push(
    leader: Leader | None, follower: BrokerId, asked: FetchPosition, pushed: Pushed, log: LogView
) -> bool:
    """Return True if what is appended to the leader's log may be pushed to the follower. `asked`:
    the position of its newest fetch or acknowledgement.

    The follower is in the committed ISR, since other copies are slow or limited. It follows this
    leader epoch, and its log is a prefix of this one: its progress here is what it asked for. It
    has a record, so that its log is durable. The log has no holes: a push tells its predecessor by
    its offset. No flush is due, which an acknowledgement would wait for.
    """
    if leader is None or asked.leader_epoch != leader.epoch or asked.last_fetched_epoch is None:
        return False
    progress = leader.followers.get(follower)
    return (
        progress is not None
        and progress.log_end == asked.fetch_offset == pushed.acknowledged
        and follower in leader.isr.committed
        and not log.holes
        and log.countable_end == log.log_end_offset
    )


def may_take(asked: FetchPosition, leader_epoch: int, base_offset: int, log: LogView) -> bool:
    """Return True if a follower may append a push at once. `asked`: its newest fetch or
    acknowledgement, which is still its position. `leader_epoch`, `base_offset`: of the push."""
    return (
        leader_epoch == asked.leader_epoch
        and base_offset == asked.fetch_offset
        and asked.last_fetched_epoch is not None
        and not log.holes
    )
