"""Pools of brokers (`LogCluster.spec.pools`): each has its own kind of hardware and its own ids.

A broker's pool follows from its id alone, so it needs no record, and a pool keeps its brokers when
it is renamed.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from msgspec import Meta

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.planner.traffic_capacity import TrafficCapacity
from plimsoll_operator.api.meta import (
    Amount,
    Api,
    Config,
    Name,
    Quantity,
    ResourceRequirements,
    Short,
    described,
)
from plimsoll_operator.api.pod_template import PodTemplate
from plimsoll_operator.api.quantities import bytes_per_second

IDS_OF_A_POOL = 100
BROKERS_MAX = 100


class PoolStorage(Api, frozen=True, kw_only=True):
    """The volumes of the pool's brokers."""

    size: Annotated[
        Quantity,
        described(
            "Size of each volume. Volumes grow with it and never shrink: a smaller size is for "
            "brokers that join later."
        ),
    ]
    storage_class_name: Annotated[
        Short | None, described("Immutable; unset: spec.storage.storageClassName.")
    ] = None


class PoolCapacity(Api, frozen=True, kw_only=True):
    """The traffic that each broker of the pool can carry. A Rebalance weighs traffic by it if all
    brokers declare theirs, and its plan brings no broker above it."""

    bytes_in_per_second: Annotated[
        Amount | None,
        described("The most bytes that its replicas may write in a second, such as 100Mi."),
    ] = None
    bytes_out_per_second: Annotated[
        Amount | None,
        described(
            "The most bytes that the broker may send to consumers and followers in a second."
        ),
    ] = None

    @property
    def traffic(self) -> TrafficCapacity:
        came, went = self.bytes_in_per_second, self.bytes_out_per_second
        return TrafficCapacity(
            bytes_in=None if came is None else bytes_per_second(came),
            bytes_out=None if went is None else bytes_per_second(went),
        )


class Pool(Api, frozen=True, kw_only=True):
    """Brokers with the same hardware, with 100 ids of their own. A field that a pool leaves unset
    has the value of the whole cluster, from `spec.brokers` or `spec.storage`."""

    name: Name
    first_id: Annotated[
        int,
        Meta(
            ge=0,
            le=999_900,
            multiple_of=IDS_OF_A_POOL,
            description=(
                "The lowest id of the pool's brokers, a multiple of 100; ids go up to firstId + "
                "99. Immutable. Brokers of a cluster without pools have ids from 0 on, so the pool "
                "with firstId 0 takes them over."
            ),
        ),
    ]
    brokers: Annotated[
        int,
        Meta(
            ge=0,
            le=BROKERS_MAX,
            description=(
                "The desired number of brokers. Fewer, or 0: the brokers with the highest ids are "
                "drained first. A pool that is taken off the list is drained, too."
            ),
        ),
    ]
    storage: PoolStorage | None = None
    resources: ResourceRequirements | None = None
    capacity: PoolCapacity | None = None
    config: Annotated[
        Config | None,
        described(
            "Broker configs of this pool, which replace those of spec.config: limits of "
            "connections, memory, threads and the cleaner."
        ),
    ] = None
    template: Annotated[
        PodTemplate | None, described("Replaces spec.brokers.template as a whole.")
    ] = None

    @property
    def ids(self) -> range:
        return range(self.first_id, self.first_id + IDS_OF_A_POOL)


Pools = Annotated[
    tuple[Pool, ...],
    Meta(
        min_length=1,
        max_length=16,
        description=(
            "Pools of brokers with different hardware, instead of brokers.count. Unset: all "
            "brokers are alike. A broker with an id of no pool is drained and removed."
        ),
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ),
]

POOLS_RULES = (
    (
        "!has(self.pools) || !has(self.brokers) || !has(self.brokers.count)",
        "brokers.count is not allowed with pools: each pool states its number of brokers.",
    ),
    (
        "!has(self.pools) || self.pools.all(p, self.pools.exists_one(q, q.firstId == p.firstId))",
        "Two pools must not have the same firstId.",
    ),
    (
        "!has(self.pools) || self.pools.exists(p, p.brokers > 0)",
        "At least one pool must have brokers. To stop the cluster, delete the LogCluster.",
    ),
    (
        f"!has(self.pools) || self.pools.map(p, p.brokers).sum() <= {BROKERS_MAX}",
        f"All pools together must not have more than {BROKERS_MAX} brokers.",
    ),
    (
        "!has(self.pools) || !has(oldSelf.pools) || self.pools.all(p, oldSelf.pools.all(o, "
        "o.name != p.name || o.firstId == p.firstId))",
        "pools[].firstId is immutable, because it decides which brokers are the pool's. Add "
        "another pool.",
    ),
    (
        "!has(self.pools) || !has(oldSelf.pools) || self.pools.all(p, oldSelf.pools.all(o, "
        "o.firstId != p.firstId || p.?storage.storageClassName == o.?storage.storageClassName))",
        "pools[].storage.storageClassName is immutable: add a pool with the new class, and set "
        "brokers of this one to 0.",
    ),
    (
        "!has(self.pools) || has(oldSelf.pools) || self.pools.all(p, p.firstId != 0 || "
        "!has(p.storage) || !has(p.storage.storageClassName) || "
        "p.?storage.storageClassName == oldSelf.storage.?storageClassName)",
        "The pool with firstId 0 takes over the present brokers, so its storageClassName must be "
        "theirs. For another class, add a pool with another firstId.",
    ),
)
"""Rules of the CRD about `spec.pools`."""


def refusal_of(pools: tuple[Pool, ...]) -> Refusal | None:
    """Return a refusal if the pools break a rule of `POOLS_RULES` that an API server without CEL
    does not check: shared names or ids, no broker, too many."""
    for field, values in (
        ("name", [pool.name for pool in pools]),
        ("firstId", [str(pool.first_id) for pool in pools]),
    ):
        value, times = Counter(values).most_common(1)[0]
        if times > 1:
            return _refused(
                f"spec.pools has {times} pools with {field} {value}: give each pool its own."
            )
    total = sum(pool.brokers for pool in pools)
    if not total:
        return _refused(
            "spec.pools has no broker, but a cluster needs at least one. To stop the cluster, "
            "delete the LogCluster."
        )
    if total > BROKERS_MAX:
        return _refused(f"spec.pools has {total} brokers; the maximum is {BROKERS_MAX}.")
    return None


def _refused(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidConfig, message=message)
