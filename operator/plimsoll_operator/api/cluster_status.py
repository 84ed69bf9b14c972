"""The status of a `LogCluster`: a projection of the committed image, never read back."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.certificates import ModeName
from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    Conditions,
    Count,
    Quantity,
    Short,
    Time,
    TopicName,
)

Sentence = Annotated[str, Meta(max_length=1024)]
Action = Literal[
    "Restart",
    "ReplacePod",
    "Drain",
    "Start",
    "GrowVolume",
    "FinalizeMetadata",
    "Reassignment",
    "Rebalance",
    "Verification",
    "User",
]
BLOCKED_MAX = 20


class BrokersStatus(Api, frozen=True, kw_only=True):
    """Brokers by state.  `ids`: the members; `leaving`: those of them that are being emptied."""

    desired: Count
    ready: Annotated[
        int,
        Meta(ge=0, description="Of the desired ones, those that take part: never more than that."),
    ]
    active: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="All that take part, those among them that are to leave, or leave.",
            ),
        ]
        | None
    ) = None
    fenced: Count
    ids: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)]
    leaving: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)] | None = None


class PendingTopic(Api, frozen=True, kw_only=True):
    """A topic whose object is gone and whose data goes at `until`."""

    name: TopicName
    until: Time


class TopicsStatus(Api, frozen=True, kw_only=True):
    """Topics by origin."""

    declared: Count
    client_created: Count
    pending_deletions: (
        Annotated[int, Meta(ge=0, description="How many; pendingDeletion shows the first 20.")]
        | None
    ) = None
    pending_deletion: Annotated[tuple[PendingTopic, ...], Meta(max_length=20)] = ()


class PartitionsStatus(Api, frozen=True, kw_only=True):
    """Partitions by health.  `lowestMargin`: the smallest |ISR| - min ISR."""

    total: Count
    offline: Count
    under_min_isr: Count = msgspec.field(name="underMinISR")
    at_min_isr: Count = msgspec.field(name="atMinISR")
    lowest_margin: int


class MetadataLogStatus(Api, frozen=True, kw_only=True):
    """How far the metadata log is, and what it takes.  `copies`: the brokers that take part and
    have a copy of it on their volumes."""

    offset: Count
    controller_epoch: Count
    objects: Annotated[int, Meta(ge=0, description="With batches that no snapshot has.")] | None = (
        None
    )
    objects_max: Annotated[int, Meta(ge=0, description="That there are for batches.")] | None = None
    size: Annotated[Quantity, Meta(description="Of these batches and the snapshot.")] | None = None
    commit_p99_milliseconds: (
        Annotated[int, Meta(ge=0, description="Of the last 1,000 commits of this operator.")] | None
    ) = msgspec.field(name="commitP99Milliseconds", default=None)
    copies: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)] | None = None


class Exposure(Api, frozen=True, kw_only=True):
    """Topics that cannot survive a broker's restart untouched."""

    replication_factor_one: Count
    replication_equals_min_isr: Count = msgspec.field(name="replicationEqualsMinISR")


class GroupsStatus(Api, frozen=True, kw_only=True):
    """Consumer groups, as the brokers that coordinate them count them."""

    total: Count


class InternalTopicsStatus(Api, frozen=True, kw_only=True):
    """The brokers' own topics.  `underReplicated`: those of which an ISR lacks a replica, or that
    have fewer replicas than there could be."""

    total: Count
    under_replicated: Annotated[tuple[TopicName, ...], Meta(max_length=20)] = ()


class BootstrapServers(Api, frozen=True, kw_only=True):
    """Where clients connect, by listener."""

    internal: Short


class ListenerAddress(Api, frozen=True, kw_only=True):
    """Where clients outside reach a broker."""

    id: BrokerNumber
    host: Short
    port: Count


class ListenerStatus(Api, frozen=True, kw_only=True):
    """A declared listener: where its clients begin, and how many brokers have it open.  `addresses`
    of brokers outside, as they are known by now; `bootstrapServers` is empty while clients outside
    have nowhere to begin."""

    name: Short
    bootstrap_servers: Annotated[str, Meta(max_length=1024)]
    tls: bool
    brokers: Count
    addresses: (
        Annotated[
            tuple[ListenerAddress, ...],
            Meta(max_length=200, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None


class BlockedAction(Api, frozen=True, kw_only=True):
    """A voluntary action that waits, and resumes by itself; but for GrowVolume, which is Stalled.
    `until`: what unblocks it.  `object`: whose action it is, as namespace/name."""

    action: Action
    object: Annotated[str, Meta(max_length=317)] | None = None
    broker: BrokerNumber | None = None
    topic: TopicName | None = None
    partition: Count | None = None
    reason: Short
    until: Sentence
    since: Time

    @property
    def sentence(self) -> str:
        """The action as a sentence; `until` is its end, or a sentence of its own."""
        whose = "" if self.broker is None else f" of broker {self.broker}"
        if self.object is not None:
            whose = f" {self.object}"
        until = f": {self.until}" if self.until[:1].isupper() else f" until {self.until}."
        return f"{self.action}{whose} waits{until}"


class Versions(Api, frozen=True, kw_only=True):
    """Which release does what.  `pinned`: what brokers are to run; `brokers`: how many run what, of
    those that are heard of; `metadata`: the finalised metadata version, `metadataFinalizable` the
    one that every broker understands."""

    operator: Short
    pinned: Short
    # Omitted if empty: if a map was applied with entries and is applied again as {}, the API server
    # turns it into null, and its own schema then refuses the whole status.
    brokers: Annotated[dict[Short, Count], Meta(max_length=16)] = msgspec.field(
        default_factory=dict
    )
    metadata: Short
    metadata_finalizable: Short


class InternalCertificatesStatus(Api, frozen=True, kw_only=True):
    """How brokers and the operator talk to each other: `mode` is committed, `pinned` is what it is
    to be, as the spec says or as it was decided where the spec does not."""

    mode: ModeName
    pinned: ModeName


class CertificatesStatus(Api, frozen=True, kw_only=True):
    """Of certificates besides those of listeners."""

    internal: InternalCertificatesStatus


class LogClusterStatus(Api, frozen=True, kw_only=True):
    """What a cluster is: a projection.  Read back is what the spec leaves open and nothing else
    remembers: `versions.pinned` and `certificates.internal.pinned`."""

    observed_generation: Count | None = None
    cluster_id: Short | None = None
    bootstrap_servers: BootstrapServers | None = None
    listeners: (
        Annotated[
            tuple[ListenerStatus, ...],
            Meta(max_length=8, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    versions: Versions | None = None
    certificates: CertificatesStatus | None = None
    brokers: BrokersStatus | None = None
    selector: Short | None = None
    topics: TopicsStatus | None = None
    partitions: PartitionsStatus | None = None
    metadata_log: MetadataLogStatus | None = None
    exposure: Exposure | None = None
    groups: GroupsStatus | None = None
    internal_topics: InternalTopicsStatus | None = None
    volume_size: Annotated[Quantity, Meta(description="Of the smallest volume.")] | None = None
    blocked: Annotated[tuple[BlockedAction, ...], Meta(max_length=BLOCKED_MAX)] = ()
    conditions: Conditions = ()
