"""The memory budget of all clients together: sums of bytes, shares of them, and the queue.

Two pools: unsent replies, and requests that are being received or still looked at.  A server's
sessions and the fetch handler ask before they make bytes; nothing here knows sockets or the loop.
Rules: a fetch is granted at most an eighth of what fetches have left, so that the last ones still
get a batch each (KIP-74) instead of nothing; other replies may use a quarter more; when nothing is
left, connections wait, in the order in which they came.  Whoever may be exceeded says by how much:
a grant by one batch, since a batch cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from plimsoll_core.replica.producer_memory import PRODUCER_BYTES, PRODUCERS_ASSUMED

MIB = 1024 * 1024
MEMORY_ASSUMED = 1024 * MIB
"""Where no limit is stated: the one that the brokers' pods have by default."""
FRAME_BYTES_MAX = 100 * MIB
FRAME_BYTES_MIN = 2 * MIB
_RECENT_PART = 128
_PRODUCERS_PART = 8
_GRANT_PART = 8
_FETCH_PART = 4
"""A quarter of the replies' pool is no fetch's: refusals, metadata, answers to producers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Bytes.  `replies`: not sent yet; `requests`: being received or looked at; `frame`: one;
    `recent`: requests whose batches the logs keep for who reads at their ends.  `producers` is a
    number of them: those that the logs remember (`producer_memory`)."""

    replies: int
    requests: int
    frame: int
    recent: int = MEMORY_ASSUMED // _RECENT_PART
    producers: int = PRODUCERS_ASSUMED


def budgets_of(
    memory: int | None,
    *,
    replies: int | None = None,
    requests: int | None = None,
    frame: int | None = None,
) -> Budgets:
    """What a process with `memory` bytes gives its clients; None: not said.

    A quarter to replies, an eighth to requests, an eighth to what logs know of producers, a 128th
    to what was written last, and never a frame that its pool cannot hold.
    """
    memory = memory or MEMORY_ASSUMED
    replies = replies or memory // 4
    requests = requests or memory // 8
    frame = min(frame or FRAME_BYTES_MAX, max(requests, FRAME_BYTES_MIN))
    recent = memory // _RECENT_PART
    producers = memory // _PRODUCERS_PART // PRODUCER_BYTES
    return Budgets(
        replies=replies, requests=requests, frame=frame, recent=recent, producers=producers
    )


class Waiter(Protocol):
    """Asked to try again, once, when there may be room."""

    def wake(self) -> None: ...


class Pool:
    """A sum of bytes.  `notify` is called when a waiting connection could go on; it must not call
    back at once, but have `wake_one` called soon."""

    __slots__ = ("_accounts", "_notify", "_waiting", "limit", "refused", "used")

    def __init__(self, limit: int, notify: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0
        self._notify = notify
        self._waiting: dict[Waiter, None] = {}
        self._accounts: dict[Account, None] = {}

    @property
    def free(self) -> int:
        return self.limit - self.used

    @property
    def free_for_fetches(self) -> int:
        return self.limit - self.limit // _FETCH_PART - self.used

    @property
    def short(self) -> bool:
        """Whether any connection has to wait."""
        return bool(self._waiting or self._accounts)

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size
        assert self.used >= 0, "given back twice"
        if (self._waiting and self.free > 0) or (self._accounts and self.free_for_fetches > 0):
            self._notify()

    def wait(self, waiter: Waiter) -> None:
        """For room for anything but fetches."""
        if waiter not in self._waiting:
            self.refused += 1
            self._waiting[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def wake_one(self) -> bool:
        """Let the longest waiting connection try again; whether another one could, too."""
        if self._waiting and self.free > 0:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter.wake()
        elif self._accounts and self.free_for_fetches > 0:
            account = next(iter(self._accounts))
            del self._accounts[account]
            account.wake_one()
        more = self._waiting and self.free > 0
        return bool(more or (self._accounts and self.free_for_fetches > 0))

    # --- what accounts ask ----------------------------------------------------------------------

    def portion(self, wanted: int) -> int:
        """What a fetch may have now; 0: it must wait."""
        free = self.free_for_fetches
        return 0 if free <= 0 else max(1, min(wanted, free // _GRANT_PART))

    def enqueue(self, account: Account) -> None:
        self._accounts.setdefault(account)

    def dequeue(self, account: Account) -> None:
        self._accounts.pop(account, None)


class Intake:
    """Bytes of requests that are being received or handled.

    `notify` is called when room was made and a connection waits; `wake_all` has to follow, not at
    once.  Frames that have all of it and wait for more would wait for each other: one of them goes
    ahead, beyond the limit, until it is whole.
    """

    __slots__ = ("_ahead", "_notify", "_stuck", "_waiting", "limit", "refused", "used")

    def __init__(self, limit: int, notify: Callable[[], None]) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0
        self._notify = notify
        self._waiting: dict[Waiter, None] = {}
        # What unfinished frames have that wait for more, by their receivers.
        self._stuck: dict[object, int] = {}
        # The receiver whose unfinished frame may exceed the limit.
        self._ahead: object | None = None

    @property
    def short(self) -> bool:
        return bool(self._waiting)

    def admit(self, size: int, waiter: Waiter, receiver: object, held: int) -> bool:
        """Take so many bytes, or have `waiter` woken when there may be room; one alone is never
        refused.  `held`: what the receiver's unfinished frame has already."""
        over = self.used and self.used + size > self.limit
        if over and not self._goes_ahead(receiver, held):
            if waiter not in self._waiting:
                self.refused += 1
                self._waiting[waiter] = None
            self._stuck[receiver] = held
            return False
        self._waiting.pop(waiter, None)
        self._stuck.pop(receiver, None)
        self.used += size
        return True

    def _goes_ahead(self, receiver: object, held: int) -> bool:
        """Whether nothing is given back unless it goes on."""
        if self._ahead not in (None, receiver):
            return False
        others = sum(size for one, size in self._stuck.items() if one is not receiver)
        if not held or others + held < self.used:
            return False
        self._ahead = receiver
        return True

    def ended(self, receiver: object) -> None:
        """Its frame is whole, or will never be."""
        self._stuck.pop(receiver, None)
        if self._ahead is receiver:
            self._ahead = None

    def take(self, size: int) -> None:
        """Bytes that are there already."""
        self.used += size

    def give_back(self, size: int) -> None:
        if not size:
            return
        self.used -= size
        assert self.used >= 0, "given back twice"
        if self._waiting:
            self._notify()

    def forget(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def wake_all(self) -> None:
        """All waiting connections try again, in the order in which they came."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.wake()


class Account:
    """What one connection holds of the replies' pool; with no pool it is not bounded at all.

    `share`: a connection that holds as much gets nothing more granted until some of it is sent.
    """

    __slots__ = ("_pool", "_share", "_waiting", "held")

    def __init__(self, pool: Pool | None, share: int) -> None:
        self._pool = pool
        self._share = share
        self._waiting: dict[Waiter, None] = {}
        self.held = 0

    @property
    def may_serve(self) -> bool:
        """Whether a request that makes a reply may be begun: a session asks where the pool is used
        up, since a broker's account is outside of it."""
        pool = self._pool
        return pool is None or pool.used < pool.limit

    def grant(self, wanted: int) -> int:
        """Bytes that a fetch may read, now held; 0: it has to wait.  At most one batch more is
        read than that: `settle` says what it came to."""
        if self._pool is None or wanted <= 0:
            return wanted
        granted = 0 if self.held >= self._share else self._pool.portion(wanted)
        self.hold(granted)
        return granted

    def settle(self, granted: int, size: int) -> None:
        """A grant came to `size` bytes."""
        if size > granted:
            self.hold(size - granted)
        else:
            self.give_back(granted - size)

    def hold(self, size: int) -> None:
        """Bytes that are there already."""
        if self._pool is not None:
            self.held += size
            self._pool.take(size)

    def give_back(self, size: int) -> None:
        if self._pool is None or not size:
            return
        self.held -= size
        if self._waiting and self.held < self._share:
            self._pool.enqueue(self)
        self._pool.give_back(size)

    def wait(self, waiter: Waiter) -> None:
        """A fetch was granted nothing: it is woken when it might be."""
        if self._pool is None or waiter in self._waiting:
            return
        self._pool.refused += 1
        self._waiting[waiter] = None
        if self.held < self._share:
            self._pool.enqueue(self)

    def forget(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)
        if self._pool is not None and not self._waiting:
            self._pool.dequeue(self)

    def wake_one(self) -> None:
        if self._pool is None or not self._waiting:
            return
        waiter = next(iter(self._waiting))
        del self._waiting[waiter]
        if self._waiting and self.held < self._share:
            self._pool.enqueue(self)
        waiter.wake()

    def close(self) -> None:
        """Release all and wake all; from now on nothing is counted.

        Also for a connection that turns out to be a broker's: those are outside the budget.
        """
        pool, self._pool = self._pool, None
        waiting, self._waiting = self._waiting, {}
        held, self.held = self.held, 0
        if pool is not None:
            pool.dequeue(self)
            pool.give_back(held)
        for waiter in waiting:
            waiter.wake()
