"""Decides when records are committed, and which requests are answered then.

`replica.Replica` calls it once per turn of the event loop, after appends, fetches and changes of
the ISR. `committable` is the commit rule. The checks of acks=all compare with min ISR: the
*committed* ISR before an append, the *maximal* ISR after it. `AckWaiters` holds the requests that
wait for an offset, `ParkedFetches` the long polls. A token identifies a request to the caller; it
is stored and returned. Pure: no socket, no clock.

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
    """Return the offset below which the leader's records count for acknowledgements.

    That is `log_end`, or `flushed_end` once `flush_messages` records or more are not flushed.
    `flushed_end`: every record below this offset is on disk. `flush_messages`: None means that a
    flush is never required.
    """
    if flush_messages is None or log_end - flushed_end < flush_messages:
        return log_end
    return flushed_end


def committable(leader: Leader, log_end: int) -> int | None:
    """Return the offset up to which the high watermark may advance: every replica of the maximal
    ISR has all records below it.

    Return None if the high watermark must not move: a member of the ISR has not fetched in this
    leader epoch, or the committed ISR is smaller than min ISR. In the latter case a replica outside
    the ISR may be elected, and it must hold everything that was ever committed.
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
    """Check a produce before its append. Return NOT_ENOUGH_REPLICAS if the produce asks for
    acks=all and the committed ISR is smaller than min ISR, so that nothing may be written;
    otherwise NONE."""
    if acks == -1 and not leader.enough_in_sync:
        return Code.NOT_ENOUGH_REPLICAS
    return Code.NONE


def check_at_commit(leader: Leader) -> Code:
    """Return the answer to a produce with acks=all when the high watermark has passed its batch.
    Return NOT_ENOUGH_REPLICAS_AFTER_APPEND if the maximal ISR is smaller than min ISR; the batch
    stays in the log."""
    short = len(leader.isr.maximal) < leader.min_isr
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE


def check_waiting(leader: Leader) -> Code:
    """Return the answer to waiting produces with acks=all after the ISR has changed. Return NONE if
    they keep waiting.

    Below min ISR the high watermark is frozen, so waiting longer could only end in a timeout.
    """
    short = not leader.enough_in_sync
    return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else Code.NONE


def latest_for_consumer(leader: Leader, high_watermark: int, end: int) -> int | Code:
    """Return the end offset to answer to a consumer's ListOffsets: `end`, which is the high
    watermark or the last stable offset. Return OFFSET_NOT_AVAILABLE while a new leader does not
    know how far the leader before it committed: a lower value would look to a consumer like lost
    records."""
    if high_watermark < leader.start_offset:
        return Code.OFFSET_NOT_AVAILABLE
    return end


def deletable_offset(offset: int, high_watermark: int) -> int | Code:
    """Return the new log start for a DeleteRecords request: `offset`, or the high watermark if
    `offset` is -1. Return OFFSET_OUT_OF_RANGE if `offset` is otherwise negative or above the high
    watermark."""
    wanted = high_watermark if offset == -1 else offset
    return wanted if 0 <= wanted <= high_watermark else Code.OFFSET_OUT_OF_RANGE


def low_watermark(leader: Leader, log_start: int) -> int:
    """Return the lowest log start among the leader and all replicas in the maximal ISR or the ELR,
    as their fetches state it. A follower that has not fetched in this leader epoch counts as 0: it
    may still have older records."""
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
    """A parked request. It is answered when the offset that it waits for (such as the high
    watermark) reaches `required_offset`, or with an error at `deadline_ms`, by the clock of
    `expire`."""

    required_offset: int
    deadline_ms: int
    token: object


class Answered(NamedTuple):
    """The error code with which one parked request is answered."""

    token: object
    code: Code


def _required(waiter: AckWaiter) -> int:
    return waiter.required_offset


class AckWaiters:
    """The parked requests of one kind, in order of the offset that they wait for."""

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
        """Remove the requests with a required offset at or below the high watermark, and return an
        answer with `code` for each."""
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
        """Remove the requests with a deadline that has passed, and return REQUEST_TIMED_OUT for
        each. Their batches stay in the log and may still commit."""
        late = [waiter for waiter in self._waiters if waiter.deadline_ms <= now_ms]
        if late:
            self._waiters = deque(w for w in self._waiters if w.deadline_ms > now_ms)
        return [Answered(waiter.token, Code.REQUEST_TIMED_OUT) for waiter in late]


class Waiters:
    """Requests of one partition that wait for an offset.

    `for_commit`: produces with acks=all, which wait for the high watermark. `for_flush`: produces
    with acks=1, which wait until the leader has flushed them, if the topic requires that.
    `for_start`: DeleteRecords requests, which wait until the log of each in-sync replica begins at
    that offset.
    """

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
    """Long-polling fetches of one partition. Followers wait for the log end to move, consumers for
    the high watermark, or for the last stable offset if they read committed transactions only
    (`for_stable`)."""

    __slots__ = ("_for_commit", "_for_end", "for_stable")

    def __init__(self) -> None:
        # Dicts keep the order in which they came: first parked, first woken.
        self._for_end: dict[object, None] = {}
        self._for_commit: dict[object, None] = {}
        self.for_stable: dict[object, None] = {}

    def park(self, token: object, *, for_commit: bool, for_stable: bool = False) -> None:
        """Keep a fetch until `take` returns it. `for_commit`: True for a consumer's; `for_stable`:
        True for a consumer's that reads committed transactions only."""
        parked = self.for_stable if for_stable else self._for_commit
        (parked if for_commit else self._for_end)[token] = None

    def forget(self, token: object) -> None:
        self._for_commit.pop(token, None)
        self._for_end.pop(token, None)
        self.for_stable.pop(token, None)

    def take_stable(self) -> list[object]:
        """Remove and return the tokens of the fetches that wait for the last stable offset."""
        woken = list(self.for_stable)
        self.for_stable.clear()
        return woken

    def take(self, *, end_moved: bool, commit_moved: bool) -> list[object]:
        """Remove and return the tokens of the fetches to wake: followers' if the log end has moved,
        consumers' if the high watermark has. A fetch is parked again only when its request runs
        again."""
        woken: list[object] = []
        if end_moved and self._for_end:
            woken.extend(self._for_end)
            self._for_end.clear()
        if commit_moved and self._for_commit:
            woken.extend(self._for_commit)
            self._for_commit.clear()
        return woken
