"""The memory budget of all clients together: bytes in use, shares by principal, and waiting queues.

There are two pools: unsent replies (`Pool`), and requests that are being received or handled
(`Intake`). A server's sessions and the fetch handler ask before they allocate. This module uses no
sockets and no event loop. Rules: a fetch is granted at most an eighth of what is left for fetches,
so that late fetches still get a batch each (KIP-74). Other replies may use a quarter more than
fetches. When nothing is left, connections wait in the order in which they came. A grant may be
exceeded by one batch, since a batch cannot be cut.

`PrincipalHoldings`: the holdings of each principal in a broker's bounded pools, for the metrics. A
pool is a `FairPool`, keyed by `ConnectionState.holder`: a user, or an address if the listener has
no login. Code that bounds a resource of clients adds its pool here by name; nothing is decided
here. Metrics have a label for each pool and none for a principal, since clients choose names.

`ClientMemory`: the two memory pools of a broker's clients, and the loop callbacks that wake
waiters.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from plimsoll_core.groups.memory import BYTES_ASSUMED
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.quotas.principal_turns import PrincipalTurns
from plimsoll_core.replica.producer_states import PRODUCER_BYTES, PRODUCERS_ASSUMED

MIB = 1024 * 1024
MEMORY_ASSUMED = 1024 * MIB
"""The memory, in bytes, on which the budgets rest if no limit is stated: the default memory of a
broker's pod."""
FRAME_BYTES_MAX = 100 * MIB
FRAME_BYTES_MIN = 2 * MIB
REPLICATED_BYTES_MAX = 112 * MIB
"""The largest request that may be configured, in bytes. A follower receives no reply above 128 MiB
(`peer_connection`), and a batch of such a size may come behind smaller ones."""
_RECENT_PART = 128
_GROUPS_PART = 8
_PRODUCERS_PART = 8
_SEGMENTS_PART = 32
_GRANT_PART = 8
_FETCH_PART = 4
"""The part of the reply pool that fetches may not use: a quarter. Refusals, metadata and produce
responses use it."""
_PARSED_PART = 8
"""The most that is taken for the parsed objects of a request before it is parsed, as a part of the
pool of requests: an eighth. That number is an upper bound, judged by the request's length."""
_ESTIMATE_PART = 8
"""The largest estimate of a reply's size, as a part of the pool: an eighth. The estimate is an
upper bound, which may be many times the real size; the limit lets several connections of a
principal proceed."""


ROOM_WAIT_S = 10.0
"""The time in seconds for which a reply waits for memory, as a request does
(`ListenerLimits.starved_ms_max`)."""


class NoRoom(Exception):
    """Raised if no memory is available for a reply. Its message is the reason for closing the
    connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Memory budgets of a broker for its clients, in bytes except `producers`. `replies`: unsent
    replies. `requests`: requests being received or handled. `frame`: the largest request. `recent`:
    batches that logs cache for readers at the log end. `groups`: consumer groups and their offsets
    (`groups.memory`). `producers`: the number of producers that logs remember
    (`ProducerMemory`). `segments`: segments of logs with several (`SegmentRoom`)."""

    replies: int
    requests: int
    frame: int
    recent: int = MEMORY_ASSUMED // _RECENT_PART
    producers: int = PRODUCERS_ASSUMED
    groups: int = BYTES_ASSUMED
    segments: int = MEMORY_ASSUMED // _SEGMENTS_PART


def budgets_of(
    memory: int | None,
    *,
    replies: int | None = None,
    requests: int | None = None,
    frame: int | None = None,
) -> Budgets:
    """Return the client budgets of a process with `memory` bytes. If `memory` is None, no limit is
    known, and `MEMORY_ASSUMED` is used.

    Replies get a quarter of the memory; requests, producer state and groups an eighth each;
    segments a 32nd, recent batches a 128th. `replies`, `requests` and `frame` override these
    defaults. A frame is never larger than the request pool or REPLICATED_BYTES_MAX.
    """
    memory = memory or MEMORY_ASSUMED
    replies = replies or memory // 4
    requests = requests or memory // 8
    frame = min(frame or FRAME_BYTES_MAX, max(requests, FRAME_BYTES_MIN), REPLICATED_BYTES_MAX)
    recent = memory // _RECENT_PART
    producers = memory // _PRODUCERS_PART // PRODUCER_BYTES
    return Budgets(
        replies=replies,
        requests=requests,
        frame=frame,
        recent=recent,
        producers=producers,
        groups=memory // _GROUPS_PART,
        segments=memory // _SEGMENTS_PART,
    )


class Waiter(Protocol):
    """A connection or a fetch that waits for memory in a pool. The pool calls `wake` once when
    there may be room; the waiter must then ask the pool again."""

    def wake(self) -> None: ...


class Pool:
    """The memory of unsent replies of all client connections, up to `limit` bytes.

    `shares`: the bytes that each principal holds. A reply waits only if its principal has used up
    its share. Principals are woken in turn; the connections of a principal in the order in which
    they came. `notify` is called when a waiting connection could proceed. It must not call back at
    once, but schedule `wake_one`. `refused`: the number of replies and fetches that had to wait.
    """

    __slots__ = ("_accounts", "_for_fetches", "_notify", "_waiting", "limit", "refused", "shares")

    def __init__(self, limit: int, notify: Callable[[], None]) -> None:
        self.limit = limit
        self._for_fetches = limit - limit // _FETCH_PART
        self.shares = FairPool(limit)
        self.refused = 0
        self._notify = notify
        # By principal: waiters for replies other than fetches, with the bytes that each needs.
        self._waiting: PrincipalTurns[Waiter, int] = PrincipalTurns()
        # By principal: accounts with waiting fetches.
        self._accounts: PrincipalTurns[MemoryAccount, None] = PrincipalTurns()

    @property
    def used(self) -> int:
        return self.shares.used

    @property
    def free(self) -> int:
        return self.limit - self.shares.used

    @property
    def free_for_fetches(self) -> int:
        return self._for_fetches - self.shares.used

    @property
    def short(self) -> bool:
        """True if any connection has to wait."""
        return bool(self._waiting or self._accounts)

    def pressing(self) -> frozenset[str]:
        """Return the principals that cause the shortage of reply memory: those that wait for room
        in their own shares, and the largest holder if it has more than an even share. Return an
        empty set if none waits."""
        return _pressing(self.shares, self._waiting, self._accounts)

    def give_back(self, principal: str, size: int) -> None:
        self.shares.give_back(principal, size)
        if self._waiting or self._accounts:
            self.room_made()

    def room_made(self) -> None:
        """Call `notify` if any waiting connection could proceed. Called after memory was given
        back."""
        if self._could_wake():
            self._notify()

    def wait(self, waiter: Waiter, principal: str, size: int = 1) -> None:
        """Queue `waiter`, which is woken once its principal may have room for a reply of `size`
        bytes. Fetches wait by `enqueue` instead."""
        self.refused += self._waiting.add(principal, waiter, size)

    def forget(self, waiter: Waiter) -> None:
        """Remove a waiter, whatever its principal was: it may have been queued before login."""
        self._waiting.forget(waiter)

    def wake_one(self) -> bool:
        """Remove and wake the longest waiting connection of the next principal that has room;
        replies come before fetches. Do nothing if none has. Return True if another connection could
        be woken, too."""
        if (principal := self._could_serve()) is not None:
            self._waiting.take(principal)[1].wake()
        elif (principal := self._could_fetch()) is not None:
            self._accounts.take(principal)[1].wake_one()
        return self._could_wake()

    def _could_wake(self) -> bool:
        return self._could_serve() is not None or self._could_fetch() is not None

    def _could_serve(self) -> str | None:
        """Return the first waiting principal that has room for its next reply, or None."""
        for principal, waiting in self._waiting.items():
            if self.shares.admits(principal, next(iter(waiting.values()))):
                return principal
        return None

    def _could_fetch(self) -> str | None:
        free = self.free_for_fetches
        if free > 0:
            for principal in self._accounts:
                if free > self.shares.held(principal):
                    return principal
        return None

    # --- what accounts ask ----------------------------------------------------------------------

    def portion(self, principal: str, wanted: int) -> int:
        """Return how many of the `wanted` bytes a fetch of this principal may read now, or 0 if it
        must wait; nothing is taken. A fetch gets at most an eighth of the bytes that are free for
        fetches, and about half of what is left to the principal."""
        shares = self.shares
        free = self._for_fetches - shares.used
        if shares.used + wanted < free // _GRANT_PART:
            return wanted  # whatever the principal holds of what is used
        room = (free - shares.held(principal) + 1) // 2
        return 0 if free <= 0 or room <= 0 else max(1, min(wanted, free // _GRANT_PART, room))

    def enqueue(self, account: MemoryAccount) -> None:
        self._accounts.add(account.principal, account, None)

    def dequeue(self, account: MemoryAccount) -> None:
        self._accounts.forget(account, account.principal)


class _Starved(NamedTuple):
    """The need of a waiting connection: `size` more bytes for its unfinished request, which already
    holds `held` bytes of the intake."""

    size: int
    held: int


class Intake:
    """The memory of requests that are being received or handled, up to `limit` bytes.

    `shares`: the bytes that each principal holds. A request waits only if its principal has used up
    its share. `notify` is called when there is room and a connection waits; it must schedule
    `wake_all`, not call it at once.

    Unfinished requests of one principal may hold its whole share while each needs more; then none
    could finish. So one request at a time, of all principals, may take memory outside of the shares
    until it is handled ("goes ahead"). The pool then holds at most `limit` bytes and one
    request."""

    __slots__ = ("_ahead", "_notify", "_waiting", "limit", "refused", "shares")

    def __init__(self, limit: int, notify: Callable[[], None]) -> None:
        self.limit = limit
        self.shares = FairPool(limit)
        self.refused = 0
        self._notify = notify
        # By principal, in order of arrival.
        self._waiting: PrincipalTurns[Waiter, _Starved] = PrincipalTurns()
        # The account whose frame goes ahead, or None.
        self._ahead: RequestAccount | None = None

    @property
    def used(self) -> int:
        return self.shares.used + (0 if self._ahead is None else self._ahead.beyond)

    @property
    def short(self) -> bool:
        return bool(self._waiting)

    def pressing(self) -> frozenset[str]:
        """Return the principals that cause the shortage of request memory: those that wait for room
        in their own shares, and the largest holder if it has more than an even share. Return an
        empty set if none waits."""
        return _pressing(self.shares, self._waiting)

    # --- what accounts ask ----------------------------------------------------------------------

    def goes_ahead(self, account: RequestAccount, held: int) -> bool:
        """Let this account's unfinished request take memory outside of the shares, until
        `is_behind`, and return True, if no other request does so and unfinished requests hold all
        memory of the principal. Otherwise return False. `held`: the bytes of the intake that this
        request holds."""
        if self._ahead is account:
            return True
        principal = account.principal
        if self._ahead is not None or not held:
            return False
        others = self._waiting.get(principal, {}).values()
        if sum(one.held for one in others) + held < self.shares.held(principal):
            return False
        self._ahead = account
        return True

    def is_behind(self, account: RequestAccount) -> None:
        """Record that the account holds no memory outside of the shares any more, so that another
        request may take some, and wake waiters. Do nothing if it held none."""
        if self._ahead is account:
            self._ahead = None
            self._room_made()

    def give_back(self, principal: str, size: int) -> None:
        self.shares.give_back(principal, size)
        if self._waiting:
            self._room_made()

    def _room_made(self) -> None:
        if self._waiting and self._next() is not None:
            self._notify()

    def wait(self, waiter: Waiter, principal: str, size: int, held: int) -> None:
        self.refused += self._waiting.add(principal, waiter, _Starved(size, held))

    def forget(self, waiter: Waiter) -> None:
        """Remove a waiter, whatever its principal was: it may have been queued before login."""
        self._waiting.forget(waiter)

    def wake_all(self) -> None:
        """Wake all waiters that have room; those of a principal in the order in which they came."""
        for _ in range(sum(map(len, self._waiting.values()))):
            found = self._next()
            if found is None:
                return
            self.forget(found)
            found.wake()

    def _next(self) -> Waiter | None:
        for principal, waiting in self._waiting.items():
            waiter, starved = next(iter(waiting.items()))
            if self.shares.admits(principal, starved.size):
                return waiter
            if self._ahead is None:
                stuck = max(waiting, key=lambda one: waiting[one].held)
                held = sum(one.held for one in waiting.values())
                if waiting[stuck].held and held >= self.shares.held(principal):
                    return stuck
        return None


class RequestAccount:
    """The request memory that one connection holds in the `Intake`. Without an intake nothing is
    counted or bounded.

    `principal`: the principal that the bytes are counted for. `held`: bytes within that principal's
    share. `beyond`: bytes outside of the shares, held by a request that goes ahead.
    """

    __slots__ = ("_intake", "beyond", "held", "principal")

    def __init__(self, intake: Intake | None, principal: str = "") -> None:
        self._intake = intake
        self.principal = principal
        self.held = 0
        self.beyond = 0

    def belongs_to(self, principal: str) -> None:
        """Count the bytes that the connection holds for this principal from now on: the client has
        logged in, or logged in again."""
        before, self.principal = self.principal, principal
        if self._intake is not None and self.held and principal != before:
            self._intake.shares.take(principal, self.held)
            self._intake.give_back(before, self.held)

    @property
    def may_hold(self) -> bool:
        """True if the principal has room for one more request that waits for its reply: less than
        half of the intake is used, or its share is not used up. Always True without an intake."""
        intake = self._intake
        if intake is None:
            return True
        shares = intake.shares
        return shares.used * 2 < shares.capacity or shares.admits(self.principal, 1)

    def admit(self, size: int, waiter: Waiter, held: int) -> bool:
        """Take `size` more bytes for an unfinished request and return True: within the principal's
        share, or outside of the shares if the request may go ahead. If there is no room, take
        nothing, queue `waiter` and return False. `held`: the bytes of the intake that the request
        holds already."""
        intake = self._intake
        if intake is None:
            return True
        shares = intake.shares
        if 2 * (shares.used + size) <= shares.capacity:  # whatever the principal holds of that
            shares.take(self.principal, size)
            self.held += size
        elif shares.admit(self.principal, size):
            self.held += size
        elif intake.goes_ahead(self, held):
            self.beyond += size
        else:
            intake.wait(waiter, self.principal, size, held)
            return False
        return True

    def has_ample(self, size: int) -> bool:
        """Return True if less than half of the intake is used with `size` more bytes: whatever the
        principal holds of that, `admit_parsed` would take nothing for so many."""
        intake = self._intake
        return intake is None or 2 * (intake.shares.used + size) <= intake.limit

    def parsed_before(self, most: int) -> int:
        """Return the bytes that are counted for the objects of a request before it is parsed, if
        they are `most` bytes at most."""
        intake = self._intake
        return 0 if intake is None else min(most, intake.limit // _PARSED_PART)

    def admit_parsed(self, most: int, waiter: Waiter, held: int) -> int | None:
        """Make sure that there is room for the parsed objects of a request, which have `most` bytes
        at most. Return the bytes taken: 0 while less than half of the intake is used with them, so
        that a request that is answered at once costs nothing. If there is no room, queue `waiter`
        and return None, unless the principal holds nothing but the `held` bytes of this request."""
        intake = self._intake
        size = self.parsed_before(most)
        if intake is None or self.has_ample(size):
            return 0
        if intake.shares.held(self.principal) <= held:
            self.take(size)
            return size
        return size if self.admit(size, waiter, held) else None

    def take(self, size: int) -> None:
        """Count `size` bytes even if there is no room: they have been allocated already."""
        if self._intake is not None:
            self.held += size
            self._intake.shares.take(self.principal, size)

    def give_back(self, size: int) -> None:
        intake = self._intake
        if intake is None or not size:
            return
        if self.beyond:
            outside = min(size, self.beyond)
            self.beyond -= outside
            size -= outside
            if not self.beyond:
                intake.is_behind(self)
        self.held -= size
        intake.give_back(self.principal, size)

    def forget(self, waiter: Waiter) -> None:
        if self._intake is not None:
            self._intake.forget(waiter)


def _pressing(shares: FairPool, *waiting: Iterable[str]) -> frozenset[str]:
    """Return the principals that wait for room in their own shares, and with them the largest
    holder if it has more than an even share. Return none if no principal waits."""
    found = {principal for some in waiting for principal in some}
    if found:
        largest = shares.largest()
        even = shares.capacity // (shares.principals + 1)
        if largest is not None and shares.held(largest) > even:
            found.add(largest)
    return frozenset(found)


class MemoryAccount:
    """The reply memory that one connection holds in the `Pool`. Without a pool nothing is counted
    or bounded.

    `share`: a connection that holds this many bytes is granted no more until some are sent.
    `principal`: the principal that the bytes are counted for.
    """

    __slots__ = ("_pool", "_share", "_waiting", "held", "principal")

    def __init__(self, pool: Pool | None, share: int, principal: str = "") -> None:
        self._pool = pool
        self._share = share
        self._waiting: dict[Waiter, None] = {}
        self.held = 0
        self.principal = principal

    def belongs_to(self, principal: str) -> None:
        """Count the bytes that the connection holds for this principal from now on, and queue its
        waiting fetches under it: the client has logged in, or logged in again."""
        pool, before = self._pool, self.principal
        if pool is None or principal == before:
            self.principal = principal
            return
        pool.dequeue(self)
        self.principal = principal
        pool.shares.take(principal, self.held)
        pool.give_back(before, self.held)
        if self._waiting and self.held < self._share:
            pool.enqueue(self)

    @property
    def may_serve(self) -> bool:
        """True if the principal has room for one more reply."""
        pool = self._pool
        if pool is None:
            return True
        return pool.shares.admits(self.principal, 1)

    def wait_to_serve(self, waiter: Waiter) -> None:
        """Queue `waiter`, which is woken when there may be room for one more reply of the
        principal. Do nothing without a pool."""
        if self._pool is not None:
            self._pool.wait(waiter, self.principal)

    def forget_to_serve(self, waiter: Waiter) -> None:
        if self._pool is not None:
            self._pool.forget(waiter)

    @property
    def estimate_max(self) -> int:
        """The most bytes that are taken beforehand for a reply of unknown length."""
        return sys.maxsize if self._pool is None else self._pool.limit // _ESTIMATE_PART

    def admit_now(self, size: int) -> int | None:
        """Take `size` bytes for a reply without waiting, and return `size`. If there is no room,
        take nothing and return None. Without a pool, or for a size of 0, take nothing and return
        0."""
        pool = self._pool
        if pool is None or size <= 0:
            return 0
        if not pool.shares.admits(self.principal, size):
            return None
        self.hold(size)
        return size

    async def admit(self, size: int, *, is_estimate: bool = False) -> int:
        """Wait for room for `size` bytes of a reply, take them, and return the bytes taken. Without
        a pool, take nothing and return 0.

        Raises NoRoom if the reply is larger than one principal may ever hold (estimates are
        exempt), or if there was no room for `ROOM_WAIT_S`. Its message is the reason to close the
        connection.
        """
        pool = self._pool
        if pool is None or size <= 0:
            return 0
        if not pool.shares.admit(self.principal, size):
            if not is_estimate and self.held + size > pool.limit // 2:
                raise NoRoom("reply-too-large")
            await self._room(size)
        if self._pool is not None:
            self.held += size
            return size
        return 0

    async def _room(self, size: int) -> None:
        try:
            async with asyncio.timeout(ROOM_WAIT_S):
                while (pool := self._pool) is not None:
                    waiting = _RoomWaiter(asyncio.get_running_loop())
                    pool.wait(waiting, self.principal, size)
                    try:
                        await waiting.there
                    finally:
                        pool.forget(waiting)
                    if self._pool is None or self._pool.shares.admit(self.principal, size):
                        return
        except TimeoutError:
            raise NoRoom("no-memory-for-reply") from None

    def grant(self, wanted: int) -> int:
        """Take up to `wanted` bytes for a fetch, and return the number of bytes that the fetch may
        read; 0 if it must wait. Without a pool take nothing and return `wanted`. A fetch may read
        one batch beyond its grant; `settle` corrects the account."""
        if self._pool is None or wanted <= 0:
            return wanted
        if self.held >= self._share:
            return 0
        granted = self._pool.portion(self.principal, wanted)
        self.hold(granted)
        return granted

    def settle(self, granted: int, size: int) -> None:
        """Correct the account once a fetch has read: of `granted` bytes taken, keep the `size`
        bytes of its reply, and take or give back the difference."""
        if size < granted:
            self.give_back(granted - size)
        elif size > granted:
            self.hold(size - granted)

    def hold(self, size: int) -> None:
        """Count `size` bytes that have been allocated already; a negative size gives bytes back."""
        if size < 0:
            self.give_back(-size)
        elif (pool := self._pool) is not None:
            self.held += size
            pool.shares.take(self.principal, size)

    def give_back(self, size: int) -> None:
        pool = self._pool
        if pool is None or not size:
            return
        self.held -= size
        if self._waiting and self.held < self._share:
            pool.enqueue(self)
        pool.give_back(self.principal, size)

    def wait(self, waiter: Waiter) -> None:
        """Queue a fetch that was granted 0 bytes. The pool wakes `waiter` when the fetch should ask
        again; while the connection holds its `share`, not before replies are sent. Do nothing
        without a pool or if it is queued already."""
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
        """Release all bytes and wake all waiters. From now on nothing is counted.

        Also called when the connection turns out to be a broker's: brokers are outside of the
        budget.
        """
        pool, self._pool = self._pool, None
        waiting, self._waiting = self._waiting, {}
        held, self.held = self.held, 0
        if pool is not None:
            pool.dequeue(self)
            pool.give_back(self.principal, held)
        for waiter in waiting:
            waiter.wake()


class _RoomWaiter:
    """The waiter of `MemoryAccount.admit`. The future `there` completes when the account should ask
    the pool again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.there: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        if not self.there.done():
            self.there.set_result(None)


class PoolState(NamedTuple):
    """The state of one pool for the metrics, in the pool's own units (bytes, connections, …).
    `capacity`: its limit. `used`: the amount held by all. `most`: the amount held by the largest
    holder. `share`: the most that a principal without holdings could take. `principals`: the number
    of holders. `refused`: refused admissions since the start."""

    capacity: int
    used: int
    most: int
    share: int
    principals: int
    refused: int


class PrincipalHoldings:
    """The bounded pools of a broker by name. Reports the amount that each principal holds in each
    pool. A broker has one such object."""

    def __init__(self) -> None:
        self._pools: dict[str, FairPool] = {}
        # Groups of pools that come and go, reported as one.
        self._several: dict[str, Callable[[], Iterable[FairPool]]] = {}

    def add(self, name: str, pool: FairPool) -> FairPool:
        """Report the pool under this name in the metrics from now on, and return the pool."""
        self._pools[name] = pool
        return pool

    def drop(self, name: str, pool: FairPool) -> None:
        """Stop reporting the pool in the metrics. Do nothing if another pool has taken the name."""
        if self._pools.get(name) is pool:
            del self._pools[name]

    def add_several(self, name: str, pools: Callable[[], Iterable[FairPool]]) -> None:
        """Report several pools, each with a bound of its own, under one name: the state of the
        fullest and the refusals of all. `pools` returns the pools that exist at the time."""
        self._several[name] = pools

    def of(self, principal: str) -> Mapping[str, int]:
        """Return the amount that a principal holds in each pool, by the pool's name."""
        held = Counter({name: pool.held(principal) for name, pool in self._pools.items()})
        for name, pools in self._several.items():
            held[name] = sum(pool.held(principal) for pool in pools())
        return held

    def pools(self) -> Iterator[tuple[str, FairPool]]:
        """Yield all pools with their names; several pools may share a name."""
        yield from self._pools.items()
        for name, pools in self._several.items():
            yield from ((name, pool) for pool in pools())

    def states(self) -> Iterator[tuple[str, PoolState]]:
        for name, pool in self._pools.items():
            yield name, _state(pool)
        for name, pools in self._several.items():
            found = list(pools())
            if found:
                fullest = min(found, key=lambda pool: pool.free / max(pool.capacity, 1))
                refused = sum(pool.refused for pool in found)
                yield name, _state(fullest)._replace(refused=refused)


def _state(pool: FairPool) -> PoolState:
    largest = pool.largest()
    return PoolState(
        capacity=pool.capacity,
        used=pool.used,
        most=0 if largest is None else pool.held(largest),
        share=max(min(pool.floor, pool.free), pool.free // 2),
        principals=pool.principals,
        refused=pool.refused,
    )


class ClientMemory:
    """The memory of all client connections of a broker. `replies`: the pool of unsent replies.
    `requests`: the pool of requests being received or handled. `holdings`: the holdings of each
    principal in these and other pools."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.holdings = PrincipalHoldings()
        self.replies = Pool(budgets.replies, self._reply_room)
        self.requests = Intake(budgets.requests, self._request_room)
        self.holdings.add("replies", self.replies.shares)
        self.holdings.add("requests", self.requests.shares)
        self._waking_replies = False
        self._waking_requests = False

    def _reply_room(self) -> None:
        if not self._waking_replies:
            self._waking_replies = True
            asyncio.get_running_loop().call_soon(self._wake_replies)

    def _wake_replies(self) -> None:
        """Wake one waiting connection in each turn of the event loop, since each may read as much
        as a whole reply from the disk."""
        self._waking_replies = False
        if self.replies.wake_one():
            self._reply_room()

    def _request_room(self) -> None:
        if not self._waking_requests:
            self._waking_requests = True
            asyncio.get_running_loop().call_soon(self._wake_requests)

    def _wake_requests(self) -> None:
        self._waking_requests = False
        self.requests.wake_all()
