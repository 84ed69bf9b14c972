"""`LogCluster` (plc): declares brokers, their volumes, listeners and security, and rules for topics
and users.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from plimsoll_core.controller.brokers.membership import IdRange
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.request import EvenLoad
from plimsoll_core.planner.traffic_capacity import TrafficCapacity
from plimsoll_core.security.inside import InsideMode
from plimsoll_operator.api import labels
from plimsoll_operator.api.authorization import DeclaredAuthorization
from plimsoll_operator.api.backup import Backup
from plimsoll_operator.api.certificates import Certificates
from plimsoll_operator.api.cluster_topics import Topics
from plimsoll_operator.api.cluster_users import ClusterUsers
from plimsoll_operator.api.listeners import DeclaredListener, Listeners
from plimsoll_operator.api.maintenance import Maintenance
from plimsoll_operator.api.meta import (
    Amount,
    Api,
    BrokerNumber,
    Config,
    Image,
    Name,
    ObjectMeta,
    Quantity,
    Release,
    ResourceRequirements,
    Short,
    UncleanRecovery,
    described,
)
from plimsoll_operator.api.observed import Logging, PodMonitor
from plimsoll_operator.api.pod_template import AddedMetadata, PodTemplate
from plimsoll_operator.api.pools import Pool, Pools
from plimsoll_operator.api.quotas import DefaultQuotas
from plimsoll_operator.api.rollout import Rollout
from plimsoll_operator.api.token_issuers import TokenIssuers

BROKER_COUNT_DEFAULT = 3
MOVEMENT_DEFAULT = "50Mi"
TOPOLOGY_KEY_DEFAULT = labels.ZONE


class Brokers(Api, frozen=True, kw_only=True):
    """The number of brokers, excluded ids, and the settings of their pods."""

    count: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        described("The desired number of brokers; default 3. Not allowed with spec.pools."),
    ] = None
    excluded_ids: Annotated[
        Annotated[
            tuple[BrokerNumber, ...],
            Meta(max_length=100, extra_json_schema={"x-kubernetes-list-type": "set"}),
        ]
        | None,
        described("Ids that no broker may have; brokers get the first `count` other ids."),
    ] = None
    resources: ResourceRequirements | None = None
    template: PodTemplate | None = None
    service_metadata: Annotated[
        AddedMetadata | None,
        described("Labels and annotations of the Services inside Kubernetes."),
    ] = None


RetentionPolicy = Literal["Retain", "Delete"]


class Retention(Api, frozen=True, kw_only=True):
    """Retention of the volume of a removed broker. Volumes of a deleted LogCluster are always
    kept."""

    when_scaled: Annotated[
        RetentionPolicy | None,
        described(
            "Retain (default): the volume claim of a removed broker stays; a later broker "
            "with the same id uses it again. Delete: the claim is deleted once no "
            "partition has a replica on it and the broker is unregistered."
        ),
    ] = None


class Storage(Api, frozen=True, kw_only=True):
    """The volume of each broker. Volumes are kept unless `retention` says otherwise."""

    size: Annotated[Quantity, described("Size of each broker's volume; can grow, but not shrink.")]
    storage_class_name: Annotated[
        Short | None, described("Immutable; unset: the default StorageClass.")
    ] = None
    retention: Retention | None = None


RackPolicy = Literal["Required", "Preferred", "Ignored"]


class Racks(Api, frozen=True, kw_only=True):
    """Racks of brokers, by which replicas are placed. A broker gets its rack when it registers.
    Existing replicas are never moved because of racks."""

    topology_key: Annotated[
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=316,
                pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
                r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            ),
        ]
        | None,
        described(f"The node label that states a broker's rack; default {TOPOLOGY_KEY_DEFAULT}."),
    ] = None
    policy: Annotated[
        RackPolicy | None,
        described(
            "Preferred (default): placement spreads replicas over racks if every broker "
            "has one. Required: a broker without a rack cannot register, and a partition "
            "with several replicas is never placed in a single rack if there are two. "
            "Ignored: racks do not affect placement."
        ),
    ] = None


OnControllerLoss = Literal["KeepServing", "StopServing"]


AutoRebalance = Literal["Off", "Propose", "Automatic"]


class EvenLoadWish(Api, frozen=True, kw_only=True):
    """When the operator creates a Rebalance of mode Load by itself."""

    mode: Annotated[
        AutoRebalance | None,
        described(
            "Propose: the Rebalance shows its plan and waits for your approval. Automatic: it is "
            "carried out at once. Off (default): none is made."
        ),
    ] = None
    percent: Annotated[
        Annotated[int, Meta(ge=5, le=1_000)] | None,
        described(
            "By how many percent a broker's bytes on disk, bytes in or bytes out must exceed the "
            "mean; default 25."
        ),
    ] = None
    for_seconds: Annotated[
        Annotated[int, Meta(ge=60, le=604_800)] | None,
        described("How long the load must be uneven, in seconds; default 3600."),
    ] = None

    @property
    def allowed(self) -> int:
        return self.percent or 25

    @property
    def lasting_ms(self) -> int:
        return 1000 * (self.for_seconds or 3_600)

    @property
    def goal(self) -> EvenLoad:
        return EvenLoad(percent=(self.allowed, self.allowed, self.allowed))


class Movement(Api, frozen=True, kw_only=True):
    """How replicas are moved between brokers."""

    bytes_per_second: (
        Annotated[
            Amount,
            Release,
            Meta(
                description=(
                    "Most bytes per second that each broker copies for replicas it newly gets; "
                    "default 50Mi. A replica that only fell behind is not throttled."
                )
            ),
        ]
        | None
    ) = None
    auto_rebalance: Annotated[
        AutoRebalance | None,
        described(
            "Rebalance for added brokers. Propose (default): one is made, shows its plan "
            "and waits for your approval. Automatic: it is carried out at once. Off: none "
            "is made."
        ),
    ] = None
    even_load: Annotated[
        EvenLoadWish | None, described("Rebalance for brokers that are loaded unevenly for long.")
    ] = None


class LogClusterSpec(Api, frozen=True, kw_only=True):
    """The desired state of the cluster."""

    version: Annotated[
        Release | None,
        described(
            "The release of the brokers, such as 0.3; a change restarts them in turn. "
            "Unset: the release at creation (status.versions.pinned); an upgrade of the "
            "operator does not change it."
        ),
    ] = None
    metadata_version: Annotated[
        Release | None,
        described(
            "The kinds of records that the metadata log may hold. Unset: after a roll, the "
            "newest version that every broker understands is finalised. Set: this version "
            "stays; until a newer one is finalised, the brokers' version can be taken "
            "back. A finalised version is never lowered."
        ),
    ] = None
    image: Annotated[Image | None, described("Overrides the broker image of the release.")] = None
    cluster_id: Annotated[
        Annotated[
            str,
            Meta(
                max_length=36,
                pattern=r"^([A-Za-z0-9_-]{22}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$",
            ),
        ]
        | None,
        described(
            "The id of a former cluster, to adopt its volumes and metadata log. Immutable once set."
        ),
    ] = None
    brokers: Brokers | None = None
    pools: Pools | None = None
    rollout: Rollout | None = None
    storage: Storage
    racks: Racks | None = None
    listeners: Listeners | None = None
    certificates: Certificates | None = None
    token_issuers: TokenIssuers | None = None
    authorization: DeclaredAuthorization | None = None
    quotas: DefaultQuotas | None = None
    topics: Topics | None = None
    users: ClusterUsers | None = None
    config: Config | None = None
    movement: Movement | None = None
    maintenance: Maintenance | None = None
    backup: Backup | None = None
    paused: Annotated[
        bool | None,
        described(
            "true: nothing voluntary begins: no broker is restarted, added or removed, no replica "
            "is moved, no topic's data is deleted. What has begun ends. Elections, fencing and "
            "rights go on. Default false."
        ),
    ] = None
    hibernated: Annotated[
        bool | None,
        described(
            "true: the brokers stop one after another; their volumes and all objects stay, and "
            "clients are not served. false (default): they start again, with everything that was "
            "acknowledged."
        ),
    ] = None
    pod_monitor: Annotated[
        PodMonitor | None,
        described(
            "Set, even to {}: the operator makes a PodMonitor beside the brokers; needs the "
            "chart's metrics.podMonitor.perLogCluster."
        ),
    ] = None
    unclean_recovery: Annotated[
        UncleanRecovery | None,
        described(
            "Election for a partition that has lost every complete replica. Balanced "
            "(default): the most complete replica leads, once all that may be complete are "
            "back. Proactive: the most complete replica among those that answer within "
            "seconds leads; acknowledged records may be lost. Manual: no replica leads "
            "until a Topic names one."
        ),
    ] = None
    logging: Logging | None = None
    on_controller_loss: Annotated[
        OnControllerLoss | None,
        described(
            "Behaviour of brokers without a controller. KeepServing (default): brokers "
            "serve everything except elections, ISR changes and administration. "
            "StopServing: a leader answers reads and acks=0/1 only while no other broker "
            "can lead: for 5.4 s (with the default session timeout), and longer if every "
            "other replica in ISR and ELR still follows it. Partitions with one replica "
            "therefore continue; partitions below min ISR, or that lose an ISR member "
            "meanwhile, stop. acks=all continues in both. Brokers read this setting at "
            "their start."
        ),
    ] = None


class LogCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka-compatible cluster of brokers."""

    metadata: ObjectMeta
    spec: LogClusterSpec

    @property
    def count(self) -> int:
        """Return the declared number of brokers."""
        if self.spec.pools:
            return sum(pool.brokers for pool in self.spec.pools)
        brokers = self.spec.brokers
        return (brokers.count if brokers else None) or BROKER_COUNT_DEFAULT

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """Return the number of brokers for each range of ids: one range without pools."""
        if not self.spec.pools:
            return (IdRange(0, None, self.count),)
        return tuple(IdRange(p.ids.start, p.ids.stop, p.brokers) for p in self.spec.pools)

    def pool_of(self, broker_id: int) -> Pool | None:
        """Return the pool that has the broker's id. Return None if the cluster has no pools,
        or the broker's pool is no longer one of them."""
        return next((pool for pool in self.spec.pools or () if broker_id in pool.ids), None)

    def is_without_pool(self, broker_id: int) -> bool:
        """Return True if the cluster has pools and the broker is in none of them."""
        return bool(self.spec.pools) and self.pool_of(broker_id) is None

    def traffic_capacities(self, broker_ids: Iterable[BrokerId]) -> dict[BrokerId, TrafficCapacity]:
        """Return the declared capacity of those brokers that have one."""
        pools = {broker_id: self.pool_of(broker_id) for broker_id in broker_ids}
        return {
            broker_id: pool.capacity.traffic
            for broker_id, pool in pools.items()
            if pool is not None and pool.capacity is not None
        }

    def as_pool(self, pool: Pool) -> LogCluster:
        """Return the LogCluster as it would be if all its brokers were like those of the pool."""
        spec, own = self.spec, pool.storage
        storage = spec.storage
        if own is not None:
            name = own.storage_class_name or storage.storage_class_name
            storage = replace(storage, size=own.size, storage_class_name=name)
        stated = spec.brokers or Brokers()
        brokers = replace(
            stated,
            resources=pool.resources or stated.resources,
            template=pool.template or stated.template,
        )
        config = {**(spec.config or {}), **(pool.config or {})}
        of_pool = replace(spec, brokers=brokers, storage=storage, config=config, pools=None)
        return replace(self, spec=of_pool)

    @property
    def excluded_ids(self) -> tuple[int, ...]:
        brokers = self.spec.brokers
        return (brokers.excluded_ids if brokers else None) or ()

    @property
    def deletes_volumes(self) -> bool:
        """Return True if the spec asks to delete the volume of a broker that is removed from the
        cluster."""
        retention = self.spec.storage.retention
        return retention is not None and retention.when_scaled == "Delete"

    @property
    def listeners(self) -> tuple[DeclaredListener, ...]:
        """Return the declared listeners; if none is declared, the default one, without TLS and
        login."""
        return self.spec.listeners or ()

    @property
    def stated_inside(self) -> InsideMode | None:
        """Return the mode of TLS between brokers and the operator that the spec states, or None if
        it states none; `reconcile.cluster.inside_mode` then chooses."""
        stated = self.spec.certificates and self.spec.certificates.internal
        return InsideMode(stated.mode) if stated and stated.mode else None

    @property
    def even_load(self) -> EvenLoadWish:
        movement = self.spec.movement
        return (movement.even_load if movement else None) or EvenLoadWish()

    @property
    def auto_rebalance(self) -> AutoRebalance:
        movement = self.spec.movement
        return (movement.auto_rebalance if movement else None) or "Propose"

    @property
    def topology_key(self) -> str:
        """Return the node label that holds the rack of the brokers on the node."""
        return (self.spec.racks and self.spec.racks.topology_key) or TOPOLOGY_KEY_DEFAULT

    @property
    def movement_bytes_per_second(self) -> str | int:
        movement = self.spec.movement
        return (movement.bytes_per_second if movement else None) or MOVEMENT_DEFAULT

    @property
    def rack_policy(self) -> RackPolicy:
        return (self.spec.racks and self.spec.racks.policy) or "Preferred"

    @property
    def on_controller_loss(self) -> OnControllerLoss:
        return self.spec.on_controller_loss or "KeepServing"

    @property
    def unclean_recovery(self) -> UncleanRecovery:
        return self.spec.unclean_recovery or "Balanced"

    @property
    def key(self) -> tuple[Name, Name]:
        """Return the object's (namespace, name)."""
        return self.metadata.namespace, self.metadata.name
