"""PrincipalHoldings: the holdings of each principal in a broker's bounded pools, for the metrics.

A pool is a `FairPool`, keyed by `ConnectionState.holder`: a user, or an address if the listener has
no login. Code that bounds a resource of clients adds its pool here by name; nothing is decided
here. Metrics have a label for each pool and none for a principal, since clients choose names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from plimsoll_core.quotas.fair_pool import FairPool


class PoolState(NamedTuple):
    """The state of one pool, in its own units. `most`: the largest holding. `share`: the most that
    a principal without holdings could take. `refused`: refused admissions since the start."""

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
        # Groups of pools that come and go, reported as one.
        self._several: dict[str, Callable[[], Iterable[FairPool]]] = {}

    def add(self, name: str, pool: FairPool) -> FairPool:
        """Report the pool under this name from now on, and return it."""
        self._pools[name] = pool
        return pool

    def drop(self, name: str, pool: FairPool) -> None:
        """Stop reporting the pool, unless another one has taken the name."""
        if self._pools.get(name) is pool:
            del self._pools[name]

    def add_several(self, name: str, pools: Callable[[], Iterable[FairPool]]) -> None:
        """Add pools with separate bounds, reported as one: the state of the fullest, the refusals
        of all."""
        self._several[name] = pools

    def of(self, principal: str) -> Mapping[str, int]:
        """Return a principal's holdings, by pool."""
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
