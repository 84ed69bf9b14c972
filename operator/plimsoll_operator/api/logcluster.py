"""`LogCluster` (plc): brokers, their volumes, and what topics may be declared on them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_core.security.inside import InsideMode
from plimsoll_operator.api import labels
from plimsoll_operator.api.authorization import DeclaredAuthorization
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
    Labels,
    Name,
    ObjectMeta,
    Passed,
    Quantity,
    Release,
    ResourceRequirements,
    Short,
    UncleanRecovery,
)
from plimsoll_operator.api.observed import Logging, PodMonitor
from plimsoll_operator.api.quotas import DefaultQuotas
from plimsoll_operator.api.token_issuers import TokenIssuers

BROKER_COUNT_DEFAULT = 3
MOVEMENT_DEFAULT = "50Mi"
TOPOLOGY_KEY_DEFAULT = labels.ZONE

PassedList = Annotated[tuple[Passed, ...], Meta(max_length=32)]


class PodTemplateMetadata(Api, frozen=True, kw_only=True):
    """Labels and annotations for the broker pods; the only ones that are copied to them."""

    labels: Labels | None = None
    annotations: Labels | None = None


class PodTemplateSpec(Api, frozen=True, kw_only=True):
    """Where broker pods may run."""

    node_selector: Labels | None = None
    tolerations: PassedList | None = None
    affinity: Passed | None = None
    topology_spread_constraints: PassedList | None = None
    priority_class_name: Short | None = None


class PodTemplate(Api, frozen=True, kw_only=True):
    """What is added to the broker pods."""

    metadata: PodTemplateMetadata | None = None
    spec: PodTemplateSpec | None = None


class Brokers(Api, frozen=True, kw_only=True):
    """How many brokers, which numbers they may not have, and what their pods get."""

    count: (
        Annotated[
            int,
            Meta(ge=1, le=100, description="The number of brokers you end with; default 3."),
        ]
        | None
    ) = None
    excluded_ids: (
        Annotated[
            tuple[BrokerNumber, ...],
            Meta(
                max_length=100,
                description="Broker numbers not to use: ids are the first `count` others.",
                extra_json_schema={"x-kubernetes-list-type": "set"},
            ),
        ]
        | None
    ) = None
    resources: ResourceRequirements | None = None
    template: PodTemplate | None = None


RetentionPolicy = Literal["Retain", "Delete"]


class Retention(Api, frozen=True, kw_only=True):
    """What becomes of a broker's volume when the broker is removed.  Volumes of a LogCluster that
    is deleted are always kept."""

    when_scaled: (
        Annotated[
            RetentionPolicy,
            Meta(
                description=(
                    "Retain (default): the volume claim of a removed broker stays, and a broker "
                    "that gets its number again starts on it. Delete: it is deleted, once no "
                    "partition has a replica there and the broker is unregistered."
                ),
            ),
        ]
        | None
    ) = None


class Storage(Api, frozen=True, kw_only=True):
    """Each broker's volume.  Volumes are kept unless `retention` says otherwise."""

    size: Annotated[Quantity, Meta(description="Size of each broker's volume; never shrinks.")]
    storage_class_name: (
        Annotated[Short, Meta(description="Immutable; empty is the default class.")] | None
    ) = None
    retention: Retention | None = None


RackPolicy = Literal["Required", "Preferred", "Ignored"]


class Racks(Api, frozen=True, kw_only=True):
    """What a rack is.  Brokers get theirs when they register; what is placed is never moved."""

    topology_key: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=316,
                pattern=(
                    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
                    r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
                ),
                description=(
                    "The label of a broker's node whose value is its rack; default "
                    f"{TOPOLOGY_KEY_DEFAULT}."
                ),
            ),
        ]
        | None
    ) = None
    policy: (
        Annotated[
            RackPolicy,
            Meta(
                description=(
                    "Preferred (default): racks place replicas when all brokers have one. "
                    "Required: a broker without a rack does not register, and no partition "
                    "with several replicas is placed in one rack while there are two. "
                    "Ignored: racks place nothing."
                ),
            ),
        ]
        | None
    ) = None


OnControllerLoss = Literal["KeepServing", "StopServing"]


AutoRebalance = Literal["Off", "Propose", "Automatic"]


class Movement(Api, frozen=True, kw_only=True):
    """How replicas are moved."""

    bytes_per_second: (
        Annotated[
            Amount,
            Release,
            Meta(
                description=(
                    "How fast each broker takes in the replicas that it is given; default 50Mi. "
                    "A replica that merely fell behind is not held back."
                )
            ),
        ]
        | None
    ) = None
    auto_rebalance: (
        Annotated[
            AutoRebalance,
            Meta(
                description=(
                    "Whether brokers that were added are given replicas. Propose (default): a "
                    "Rebalance shows its plan and waits for your approval. Automatic: it begins by "
                    "itself. Off: none is made."
                )
            ),
        ]
        | None
    ) = None


class LogClusterSpec(Api, frozen=True, kw_only=True):
    """What a cluster should be."""

    version: (
        Annotated[
            Release,
            Meta(
                description=(
                    "The release that brokers run, such as 0.2; changing it rolls them. Unset: the "
                    "one at creation, which status.versions.pinned shows; another operator does "
                    "not change it."
                )
            ),
        ]
        | None
    ) = None
    metadata_version: (
        Annotated[
            Release,
            Meta(
                description=(
                    "What the metadata log may hold. Unset: the newest that every broker "
                    "understands, finalised by itself after a roll. Set: it waits there, and until "
                    "a newer one is finalised the brokers' version can be taken back. What is "
                    "finalised is never lowered."
                )
            ),
        ]
        | None
    ) = None
    image: Annotated[Image, Meta(description="Overrides the broker image.")] | None = None
    cluster_id: (
        Annotated[
            str,
            Meta(
                max_length=36,
                pattern=r"^([A-Za-z0-9_-]{22}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$",
                description="Only to adopt existing volumes and their log.  Immutable once set.",
            ),
        ]
        | None
    ) = None
    brokers: Brokers | None = None
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
    pod_monitor: (
        Annotated[
            PodMonitor,
            Meta(
                description=(
                    "A PodMonitor of its own beside the brokers, where the operator may make one "
                    "(the chart's metrics.podMonitor.perLogCluster)."
                )
            ),
        ]
        | None
    ) = None
    unclean_recovery: (
        Annotated[
            UncleanRecovery,
            Meta(
                description=(
                    "The leader of a partition whose every complete replica was lost.  Balanced "
                    "(default): the most complete one, once all that may be complete are back. "
                    "Proactive: the most complete of those that answer within seconds; may lose "
                    "acknowledged records.  Manual: none, until a Topic names a leader."
                ),
            ),
        ]
        | None
    ) = None
    logging: Logging | None = None
    on_controller_loss: (
        Annotated[
            OnControllerLoss,
            Meta(
                description=(
                    "What brokers do without a controller. KeepServing (default): everything "
                    "but elections, ISR changes and administration. StopServing: a leader answers "
                    "reads and acks=0/1 only as long as no other broker can lead: for 5.4 s (with "
                    "the default session timeout), and after that where every other replica in ISR "
                    "and ELR follows it. So partitions with one replica serve on, and those that "
                    "are below min ISR, or lose an ISR member meanwhile, stop. acks=all goes on "
                    "in both. Brokers read it when they start."
                ),
            ),
        ]
        | None
    ) = None


class LogCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The object."""

    metadata: ObjectMeta
    spec: LogClusterSpec

    @property
    def count(self) -> int:
        """The declared number of brokers."""
        brokers = self.spec.brokers
        return (brokers.count if brokers else None) or BROKER_COUNT_DEFAULT

    @property
    def excluded_ids(self) -> tuple[int, ...]:
        brokers = self.spec.brokers
        return (brokers.excluded_ids if brokers else None) or ()

    @property
    def deletes_volumes(self) -> bool:
        """True if the volume of a removed broker is deleted with it."""
        retention = self.spec.storage.retention
        return retention is not None and retention.when_scaled == "Delete"

    @property
    def listeners(self) -> tuple[DeclaredListener, ...]:
        """The declared listeners; empty: the one plaintext listener."""
        return self.spec.listeners or ()

    @property
    def stated_inside(self) -> InsideMode | None:
        """The declared mode of internal connections; None if undeclared
        (`reconcile.cluster.inside_mode`)."""
        stated = self.spec.certificates and self.spec.certificates.internal
        return InsideMode(stated.mode) if stated and stated.mode else None

    @property
    def auto_rebalance(self) -> AutoRebalance:
        movement = self.spec.movement
        return (movement.auto_rebalance if movement else None) or "Propose"

    @property
    def topology_key(self) -> str:
        """The node label that holds a broker's rack."""
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
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name
