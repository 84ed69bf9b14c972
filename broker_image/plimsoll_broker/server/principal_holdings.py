"""What each principal holds of a broker's bounded pools: one account, and what metrics tell of it.

A pool is a `FairPool` by the principal that clients hold something of it for
(`ConnectionState.holder`): a user, or the address where a listener has no login.  Whoever bounds
something for clients adds its pool here by name; nothing is decided here.  Metrics have a label for
each pool and none for a principal: clients choose names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from plimsoll_core.quotas.fair_pool import FairPool


class PoolState(NamedTuple):
    """One pool now, in its own units.  `most`: of the principal that holds most; `share`: what one
    that holds nothing yet could take; `refused`: admissions, since the start."""

    capacity: int
    used: int
    most: int
    share: int
    principals: int
    refused: int


class PrincipalHoldings:
    """One for each lifetime of a broker."""

    def __init__(self) -> None:
        self._pools: dict[str, FairPool] = {}
        # Pools of one kind that come and go, told of as one.
        self._several: dict[str, Callable[[], Iterable[FairPool]]] = {}

    def add(self, name: str, pool: FairPool) -> FairPool:
        """The pool, which is told of by this name from now on."""
        self._pools[name] = pool
        return pool

    def drop(self, name: str, pool: FairPool) -> None:
        """It is not told of any more, unless another one goes by that name by now."""
        if self._pools.get(name) is pool:
            del self._pools[name]

    def add_several(self, name: str, pools: Callable[[], Iterable[FairPool]]) -> None:
        """Pools that are bounded each for itself: the one in which a newcomer has least is told of,
        and the refusals of all."""
        self._several[name] = pools

    def of(self, principal: str) -> Mapping[str, int]:
        """What a principal holds, by pool."""
        held = Counter({name: pool.held(principal) for name, pool in self._pools.items()})
        for name, pools in self._several.items():
            held[name] = sum(pool.held(principal) for pool in pools())
        return held

    def pools(self) -> Iterator[tuple[str, FairPool]]:
        """All of them by name; a name may be that of several."""
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
