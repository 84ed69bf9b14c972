"""When records are committed, and which requests are answered then.

`replica.Replica` calls it once per turn of the event loop, after appends, fetches and changes of
the ISR.  `committable` is the commit rule.  The checks of acks=all compare with min ISR: the
*committed* ISR before an append, the *maximal* ISR after it.  `Waiters` holds the requests that
wait for an offset, `ParkedFetches` the long polls.  Tokens are whatever the caller wants back;
nothing here knows a socket or a clock.

Sources: the rules of docs/protocol.md for Produce, committing, ListOffsets and DeleteRecords;
KIP-497 (the maximal ISR counts), KIP-966 (frozen below min ISR), KIP-107 (DeleteRecords).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.replica.leader import Leader


def countable_end(log_end: int, flushed_end: int, flush_messages: int | None) -> int:
    """Return the end of the acknowledged part of the log: all of it, unless a flush is due.

    `flush_messages`: at most this many acknowledged records are unflushed; None: no limit.
    `flushed_end`: everything below it is on disk.
    """
    if flush_messages is None or log_end - flushed_end < flush_messages:
        return log_end
    return flushed_end


def committable(leader: Leader, log_end: int) -> int | None:
    """Return the offset below which every replica that may be in sync has the log, or None.

    None: the high watermark is frozen, because the committed ISR is below min ISR.  A replica
    outside the ISR may be elected then, and must hold everything that was ever committed.
    """
    if len(leader.isr.committed) < leader.min_isr:
        return None
    candidate = log_end
    for follower in leader.quorum:
        end = follower.log_end
        if end is None:
            return None
        if end < candidate:
            candidate = end
    return candidate


def check_before_append(leader: Leader, acks: int) -> Code:
    """NOT_ENOUGH_REPLICAS: nothing is written."""
    if acks == -1 and not leader.enough_in_sync:
        return Code.NOT_ENOUGH_REPLICAS
    return Code.NONE


def check_at_commit(leader: Leader) -> Code:
    """Return the error for a batch below the high watermark; the batch is written in any case."""
    short = len(leader.isr.maximal) < leader.min_isr
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE


def check_waiting(leader: Leader) -> Code:
    """Return the error for waiting batches after a change of the ISR; NONE: they keep waiting.

    Below min ISR the high watermark is frozen: waiting longer could only end in a timeout.
    """
    short = not leader.enough_in_sync
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE


def latest_for_consumer(leader: Leader, high_watermark: int) -> int | Code:
    """Return the high watermark, or OFFSET_NOT_AVAILABLE while a new leader does not know how far
    the former term committed: a lower value would look to a consumer like lost records."""
    if high_watermark < leader.start_offset:
        return Code.OFFSET_NOT_AVAILABLE
    return high_watermark


def deletable_offset(offset: int, high_watermark: int) -> int | Code:
    """Return the new log start: `offset`, or for -1 the high watermark."""
    wanted = high_watermark if offset == -1 else offset
    return wanted if 0 <= wanted <= high_watermark else Code.OFFSET_OUT_OF_RANGE


def low_watermark(leader: Leader, log_start: int) -> int:
    """Return the least log start of all replicas that may be in sync or elected cleanly, by their
    fetches. A follower that has not fetched in this term may still have older records."""
    return min(
        [
            log_start,
            *(
                follower.log_start
                for broker_id, follower in leader.followers.items()
                if leader.may_be_next(broker_id)
            ),
        ]
    )


class AckWaiter(NamedTuple):
    """A request that waits until the high watermark is at least `required_offset`."""

    required_offset: int
    deadline_ms: int
    token: object


class Answered(NamedTuple):
    """The answer for one waiter."""

    token: object
    code: Code


def _required(waiter: AckWaiter) -> int:
    return waiter.required_offset


class AckWaiters:
    """Produce requests that wait for acknowledgement, in order of the offset they wait for."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: deque[AckWaiter] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: AckWaiter) -> None:
        waiters = self._waiters
        if not waiters or waiters[-1].required_offset <= waiter.required_offset:
            waiters.append(waiter)
            return
        # Only a retry of an older batch waits for less than the newest one does.
        ordered = list(waiters)
        insort(ordered, waiter, key=_required)
        self._waiters = deque(ordered)

    def reached(self, high_watermark: int, code: Code) -> list[Answered]:
        """Answer all waiters up to the high watermark with `code`."""
        waiters = self._waiters
        answered = []
        while waiters and waiters[0].required_offset <= high_watermark:
            answered.append(Answered(waiters.popleft().token, code))
        return answered

    def fail_all(self, code: Code) -> list[Answered]:
        answered = [Answered(waiter.token, code) for waiter in self._waiters]
        self._waiters.clear()
        return answered

    def expire(self, now_ms: int) -> list[Answered]:
        """Return the waiters that have timed out. Their batches stay in the log and may still
        commit."""
        late = [waiter for waiter in self._waiters if waiter.deadline_ms <= now_ms]
        if late:
            self._waiters = deque(w for w in self._waiters if w.deadline_ms > now_ms)
        return [Answered(waiter.token, Code.REQUEST_TIMED_OUT) for waiter in late]


class Waiters:
    """Produces of one partition: `for_commit` with acks=all, `for_flush` with acks=1, where what is
    acknowledged must be on the leader's disk; `for_start`: deletions, until the log of every
    in-sync replica begins there."""

    __slots__ = ("for_commit", "for_flush", "for_start")

    def __init__(self) -> None:
        self.for_commit = AckWaiters()
        self.for_flush = AckWaiters()
        self.for_start = AckWaiters()

    def __bool__(self) -> bool:
        return bool(self.for_commit or self.for_flush or self.for_start)

    def fail_all(self, code: Code) -> list[Answered]:
        produces = self.for_commit.fail_all(code) + self.for_flush.fail_all(code)
        return produces + self.for_start.fail_all(code)

    def expire(self, now_ms: int) -> list[Answered]:
        produces = self.for_commit.expire(now_ms) + self.for_flush.expire(now_ms)
        return produces + self.for_start.expire(now_ms)


class ParkedFetches:
    """Long polls on one partition: followers wait for the log's end, consumers for commits."""

    __slots__ = ("_for_commit", "_for_end")

    def __init__(self) -> None:
        # Dicts keep the order in which they came: first parked, first woken.
        self._for_end: dict[object, None] = {}
        self._for_commit: dict[object, None] = {}

    def park(self, token: object, *, for_commit: bool) -> None:
        (self._for_commit if for_commit else self._for_end)[token] = None

    def forget(self, token: object) -> None:
        self._for_commit.pop(token, None)
        self._for_end.pop(token, None)

    def take(self, *, end_moved: bool, commit_moved: bool) -> list[object]:
        """Remove and return the parked fetches with new data; each is parked again only by its own
        request."""
        woken: list[object] = []
        if end_moved and self._for_end:
            woken.extend(self._for_end)
            self._for_end.clear()
        if commit_moved and self._for_commit:
            woken.extend(self._for_commit)
            self._for_commit.clear()
        return woken
