"""Requests that wait for a partition to move, as data: nothing here knows a socket or a clock.

`AckWaiters` holds acks=all produces until the high watermark passes them; `ParkedFetches` holds
long polls until there is something new to read.  Tokens are whatever the shell wants back.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import NamedTuple

from plimsoll_core.errors import Code


class AckWaiter(NamedTuple):
    """A request that waits until the high watermark is at least `required_offset`."""

    required_offset: int
    deadline_ms: int
    token: object


class Answered(NamedTuple):
    """What to tell a waiter."""

    token: object
    code: Code


def _required(waiter: AckWaiter) -> int:
    return waiter.required_offset


class AckWaiters:
    """In order of the offset they wait for."""

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
        """All waiters up to the high watermark are answered with `code`."""
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
        """The waits that timed out.  The batch stays in the log and may still commit."""
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
        """The parked fetches with new data; each is parked again only by its own request."""
        woken: list[object] = []
        if end_moved and self._for_end:
            woken.extend(self._for_end)
            self._for_end.clear()
        if commit_moved and self._for_commit:
            woken.extend(self._for_commit)
            self._for_commit.clear()
        return woken
