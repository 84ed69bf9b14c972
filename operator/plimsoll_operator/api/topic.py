"""`Topic` (plt): declares a topic, and shows its state."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    ClusterObject,
    ClusterRef,
    Conditions,
    Config,
    Count,
    Quantity,
    Short,
    Time,
    TopicName,
    UncleanRecovery,
    described,
)

Strategy = Literal["RoundRobin", "Blocked", "Explicit"]
DeletionPolicy = Literal["Delete", "Retain"]


class PartitionAssignment(Api, frozen=True, kw_only=True):
    """Replicas of one partition, the preferred leader first."""

    partition: Annotated[int, Meta(ge=0, le=999)]
    replicas: Annotated[
        tuple[BrokerNumber, ...],
        Meta(min_length=1, max_length=32, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ]


class Placement(Api, frozen=True, kw_only=True):
    """How replicas of new partitions are placed on brokers."""

    strategy: Annotated[
        Strategy | None, described("RoundRobin (default), Blocked or Explicit.")
    ] = None
    assignment: Annotated[
        Annotated[
            tuple[PartitionAssignment, ...],
            Meta(
                max_length=1000,
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["partition"],
                },
            ),
        ]
        | None,
        described(
            "Required with Explicit, not allowed otherwise: every partition, such as "
            "{partition: 0, replicas: [0, 1, 2]}, each broker at most once."
        ),
    ] = None


class NamedLeader(Api, frozen=True, kw_only=True):
    """A replica to elect as leader although it may lack acknowledged records."""

    partition: Annotated[int, Meta(ge=0, le=9_999)]
    leader: Annotated[
        BrokerNumber,
        described("The broker that shall lead; must be active and have reported its log."),
    ]
    at_leader_epoch: Annotated[
        int,
        Meta(
            ge=0,
            le=2_147_483_647,
            description=(
                "The partition's leaderEpoch in status.unhealthy. The election happens only in "
                "this epoch, so once."
            ),
        ),
    ]


class TopicUncleanRecovery(Api, frozen=True, kw_only=True):
    """Recovery of partitions that have lost every replica with all acknowledged records."""

    strategy: Annotated[
        UncleanRecovery | None,
        described("Manual, Balanced or Proactive; default is the LogCluster's strategy."),
    ] = None
    elect: Annotated[
        Annotated[
            tuple[NamedLeader, ...],
            Meta(
                max_length=1000,
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["partition"],
                },
            ),
        ]
        | None,
        described(
            "Leaders for leaderless partitions, under any strategy. status.unhealthy shows "
            "the estimated loss."
        ),
    ] = None


class TopicSpec(Api, frozen=True, kw_only=True):
    """The desired state of the topic."""

    cluster_ref: ClusterRef
    topic_name: Annotated[
        TopicName | None,
        described("The topic's name in Kafka; default is the object's name. Immutable."),
    ] = None
    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        described("The number of partitions; can grow, but not shrink."),
    ] = None
    replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32)] | None,
        described("Replicas of each partition, on different brokers."),
    ] = None
    min_in_sync_replicas: Annotated[
        Annotated[int, Meta(ge=1, le=32)] | None,
        described("In-sync replicas that acks=all requires; at most replicationFactor."),
    ] = None
    placement: Placement | None = None
    config: Config | None = None
    deletion_policy: Annotated[
        DeletionPolicy | None,
        described(
            "Delete (default): deleting the object deletes the topic after the "
            "LogCluster's grace period. Retain: the topic stays."
        ),
    ] = None
    unclean_recovery: TopicUncleanRecovery | None = None


class Health(Api, frozen=True, kw_only=True):
    """Numbers of partitions by health."""

    full_isr: Count = msgspec.field(name="fullISR")
    at_min_isr: Count = msgspec.field(name="atMinISR")
    under_min_isr: Count = msgspec.field(name="underMinISR")
    offline: Count


BrokerList = Annotated[tuple[BrokerNumber, ...], Meta(max_length=32)]


class EstimatedLoss(Api, frozen=True, kw_only=True):
    """Records that would be lost if `leader` were elected now: the difference of its log from the
    longest reported log. Brokers in `waitsFor` have not reported and may hold more."""

    leader: BrokerNumber
    records: Count


class UnhealthyPartition(Api, frozen=True, kw_only=True):
    """A partition with replicas outside its ISR, or without a leader (-1). `cause`: why the brokers
    in `waitsFor` are away. `since`: when that began, as far as the present controller knows."""

    partition: Count
    leader: int
    leader_epoch: Count
    isr: BrokerList
    elr: BrokerList | None = None
    last_known_elr: BrokerList | None = None
    waits_for: BrokerList
    estimated_loss: EstimatedLoss | None = None
    cause: Short
    since: Time


class TopicMove(Api, frozen=True, kw_only=True):
    """Number of the topic's partitions with moving replicas, and the bytes still to copy."""

    partitions: Count
    bytes_left: Quantity
    eta_seconds: Count | None = None


class TopicStatus(Api, frozen=True, kw_only=True):
    """Observed state of the topic. Written by the operator, which never reads it back."""

    observed_generation: Count | None = None
    topic_name: Annotated[
        Short | None, described("The requested name, even if it was refused.")
    ] = None
    topic_id: Short | None = None
    partitions: Count | None = None
    replication_factor: Count | None = None
    min_in_sync_replicas: Count | None = None
    strategy: Annotated[
        Strategy | None, described("Placement strategy of partitions to be added.")
    ] = None
    health: Health | None = None
    assignment: Annotated[
        Annotated[tuple[Short, ...], Meta(max_length=200)] | None,
        described(
            "Replicas of each partition; the index is the partition. Left out above 200 partitions."
        ),
    ] = None
    drifted: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        described("Number of partitions that the formula would now place otherwise."),
    ] = None
    move: TopicMove | None = None
    unhealthy: Annotated[tuple[UnhealthyPartition, ...], Meta(max_length=20)] | None = None
    conditions: Conditions = ()


class Topic(ClusterObject, frozen=True, kw_only=True):
    """A topic of a LogCluster."""

    spec: TopicSpec

    @property
    def topic_name(self) -> str:
        """Return the topic's name in Kafka: `spec.topicName`, else the object's own name."""
        return self.spec.topic_name or self.metadata.name
