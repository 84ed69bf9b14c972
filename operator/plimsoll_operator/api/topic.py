"""`Topic` (plt): a topic as its owner wants it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    ClusterRef,
    Conditions,
    Config,
    Count,
    ObjectMeta,
    Quantity,
    Short,
    Time,
    TopicName,
    UncleanRecovery,
)

Strategy = Literal["RoundRobin", "Blocked", "Explicit"]
DeletionPolicy = Literal["Delete", "Retain"]


class PartitionAssignment(Api, frozen=True, kw_only=True):
    """One partition's replicas, the preferred leader first."""

    partition: Annotated[int, Meta(ge=0, le=999)]
    replicas: Annotated[
        tuple[BrokerNumber, ...],
        Meta(min_length=1, max_length=32, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ]


class Placement(Api, frozen=True, kw_only=True):
    """Which brokers hold which partitions, at creation and growth."""

    strategy: (
        Annotated[Strategy, Meta(description="RoundRobin (default), Blocked or Explicit.")] | None
    ) = None
    assignment: (
        Annotated[
            tuple[PartitionAssignment, ...],
            Meta(
                max_length=1000,
                description=(
                    "Only with Explicit: every partition, such as {partition: 0, replicas: "
                    "[0, 1, 2]}, each broker at most once."
                ),
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["partition"],
                },
            ),
        ]
        | None
    ) = None


class NamedLeader(Api, frozen=True, kw_only=True):
    """A replica that shall lead a partition although it may lack acknowledged records."""

    partition: Annotated[int, Meta(ge=0, le=9_999)]
    leader: Annotated[
        BrokerNumber, Meta(description="A replica that takes part and has reported its log.")
    ]
    at_leader_epoch: Annotated[
        int,
        Meta(
            ge=0,
            le=2_147_483_647,
            description=(
                "The partition's leaderEpoch in status.unhealthy; in any other epoch nothing "
                "happens, so that this fires once."
            ),
        ),
    ]


class TopicUncleanRecovery(Api, frozen=True, kw_only=True):
    """What becomes of partitions whose every complete replica was lost."""

    strategy: (
        Annotated[
            UncleanRecovery,
            Meta(description="Manual, Balanced or Proactive; default is the LogCluster's."),
        ]
        | None
    ) = None
    elect: (
        Annotated[
            tuple[NamedLeader, ...],
            Meta(
                max_length=1000,
                description=(
                    "Leaders for partitions that have none, whatever the strategy; "
                    "status.unhealthy shows the estimated loss."
                ),
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["partition"],
                },
            ),
        ]
        | None
    ) = None


class TopicSpec(Api, frozen=True, kw_only=True):
    """What a topic should be."""

    cluster_ref: ClusterRef
    topic_name: (
        Annotated[TopicName, Meta(description="Immutable; default is the object's name.")] | None
    ) = None
    partitions: Annotated[int, Meta(ge=1, le=10_000, description="Never decreases.")] | None = None
    replication_factor: (
        Annotated[
            int,
            Meta(ge=1, le=32, description="Copies of each partition; at most one on a broker."),
        ]
        | None
    ) = None
    min_in_sync_replicas: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=32,
                description="How many in-sync replicas acks=all needs; at most the factor.",
            ),
        ]
        | None
    ) = None
    placement: Placement | None = None
    config: Config | None = None
    deletion_policy: (
        Annotated[
            DeletionPolicy,
            Meta(description="Delete (default, after the cluster's grace) or Retain."),
        ]
        | None
    ) = None
    unclean_recovery: TopicUncleanRecovery | None = None


class Health(Api, frozen=True, kw_only=True):
    """The topic's partitions by health."""

    full_isr: Count = msgspec.field(name="fullISR")
    at_min_isr: Count = msgspec.field(name="atMinISR")
    under_min_isr: Count = msgspec.field(name="underMinISR")
    offline: Count


BrokerList = Annotated[tuple[BrokerNumber, ...], Meta(max_length=32)]


class EstimatedLoss(Api, frozen=True, kw_only=True):
    """If `leader` were named now: how many records fewer it has than the longest log that was told
    of.  Brokers in `waitsFor` may hold more."""

    leader: BrokerNumber
    records: Count


class UnhealthyPartition(Api, frozen=True, kw_only=True):
    """A partition with less than a full ISR, or without a leader (-1).  `cause`: what keeps the
    brokers that it waits for.  `since`: as far as the present controller knows."""

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
    """Partitions on the move, and how much is still to be copied."""

    partitions: Count
    bytes_left: Quantity
    eta_seconds: Count | None = None


class TopicStatus(Api, frozen=True, kw_only=True):
    """What a topic is: a projection, never read back."""

    observed_generation: Count | None = None
    topic_name: Annotated[Short, Meta(description="As asked for, also if refused.")] | None = None
    topic_id: Short | None = None
    partitions: Count | None = None
    replication_factor: Count | None = None
    min_in_sync_replicas: Count | None = None
    strategy: (
        Annotated[Strategy, Meta(description="How partitions are placed that are added.")] | None
    ) = None
    health: Health | None = None
    assignment: (
        Annotated[
            tuple[Short, ...],
            Meta(max_length=200, description="Index = partition; left out above 200 partitions."),
        ]
        | None
    ) = None
    drifted: (
        Annotated[
            int,
            Meta(ge=0, description="Partitions that the formula would place otherwise by now."),
        ]
        | None
    ) = None
    move: TopicMove | None = None
    unhealthy: Annotated[tuple[UnhealthyPartition, ...], Meta(max_length=20)] | None = None
    conditions: Conditions = ()


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The object."""

    metadata: ObjectMeta
    spec: TopicSpec

    @property
    def topic_name(self) -> str:
        """The name in Kafka."""
        return self.spec.topic_name or self.metadata.name

    @property
    def cluster_key(self) -> tuple[str, str]:
        """(namespace, name) of the LogCluster meant."""
        return (
            self.spec.cluster_ref.namespace or self.metadata.namespace,
            self.spec.cluster_ref.name,
        )

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name
