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
    Short,
    TopicName,
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
                description="Only with Explicit: every partition, each broker at most once.",
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


class Health(Api, frozen=True, kw_only=True):
    """The topic's partitions by health."""

    full_isr: Count = msgspec.field(name="fullISR")
    at_min_isr: Count = msgspec.field(name="atMinISR")
    under_min_isr: Count = msgspec.field(name="underMinISR")
    offline: Count


BrokerList = Annotated[tuple[BrokerNumber, ...], Meta(max_length=32)]


class UnhealthyPartition(Api, frozen=True, kw_only=True):
    """A partition that is under min ISR or has no leader."""

    partition: Count
    leader: int
    isr: BrokerList
    elr: BrokerList
    last_known_elr: BrokerList
    waits_for: BrokerList


class TopicStatus(Api, frozen=True, kw_only=True):
    """What a topic is: a projection, never read back."""

    observed_generation: Count | None = None
    topic_name: TopicName | None = None
    topic_id: Short | None = None
    partitions: Count | None = None
    replication_factor: Count | None = None
    min_in_sync_replicas: Count | None = None
    health: Health | None = None
    assignment: (
        Annotated[
            tuple[Short, ...],
            Meta(max_length=200, description="Index = partition; left out above 200 partitions."),
        ]
        | None
    ) = None
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
