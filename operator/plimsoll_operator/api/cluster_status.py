"""The status of a `LogCluster`: a projection of the committed image, never read back."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.backup import BackupStatus
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
    described,
)

Sentence = Annotated[str, Meta(max_length=1024)]
Action = Literal[
    "Restart",
    "ReplacePod",
    "Drain",
    "Start",
    "GrowVolume",
    "FinalizeMetadata",
    "Hibernate",
    "Reassignment",
    "Rebalance",
    "Verification",
    "User",
]
BLOCKED_MAX = 20
SENTENCE_MAX = 1024
CHOICES_MAX = 8
GIVEN_UP_MAX = 20


class BrokersStatus(Api, frozen=True, kw_only=True):
    """Numbers of brokers by state. `ids`: the members; `leaving`: the members that are being
    drained."""

    desired: Count
    ready: Annotated[
        int,
        Meta(
            ge=0,
            description="Desired brokers that are active; never more than the desired number.",
        ),
    ]
    active: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        described("All active brokers, including those that are being drained."),
    ] = None
    fenced: Count
    ids: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)]
    leaving: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)] | None = None


class PoolStatus(Api, frozen=True, kw_only=True):
    """A pool of the spec. `brokers`: the desired number; `ready`: active brokers that stay; `ids`:
    all its brokers, including those that are being drained; `volumeSize`: its smallest volume."""

    name: Short
    brokers: Count
    ready: Count
    ids: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)]
    volume_size: Quantity | None = None


class RolloutStatus(Api, frozen=True, kw_only=True):
    """A staged roll that is under way. `revision`: what spec.rollout.approved must name; `pool`:
    the pool that rolls now; `next`: the pool after it; `until`: when the pause before it ends."""

    revision: Short
    pool: Short | None = None
    next: Short | None = None
    until: Time | None = None
    message: Sentence | None = None


class PendingTopic(Api, frozen=True, kw_only=True):
    """A topic without a Topic object. Its data is deleted at `until`."""

    name: TopicName
    until: Time


class TopicsStatus(Api, frozen=True, kw_only=True):
    """Numbers of topics, by origin: declared by a Topic object, created by clients, or waiting for
    deletion."""

    declared: Count
    client_created: Count
    pending_deletions: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        described("The number of topics that await deletion; pendingDeletion lists the first 20."),
    ] = None
    pending_deletion: Annotated[tuple[PendingTopic, ...], Meta(max_length=20)] = ()


class PartitionsStatus(Api, frozen=True, kw_only=True):
    """Numbers of partitions by health. `lowestMargin`: the smallest |ISR| - min ISR."""

    total: Count
    offline: Count
    under_min_isr: Count = msgspec.field(name="underMinISR")
    at_min_isr: Count = msgspec.field(name="atMinISR")
    lowest_margin: int


class MetadataLogStatus(Api, frozen=True, kw_only=True):
    """Progress and size of the metadata log. `copies`: active brokers that hold a copy of it on
    their volumes."""

    offset: Count
    controller_epoch: Count
    objects: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        described("Number of MetadataBatches that no snapshot covers."),
    ] = None
    objects_max: Annotated[
        Annotated[int, Meta(ge=0)] | None, described("Number of MetadataBatches that exist.")
    ] = None
    size: Annotated[
        Quantity | None,
        described("Bytes of the batches that no snapshot covers, and of the last snapshot."),
    ] = None
    commit_p99_milliseconds: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        described("99th percentile of the durations of this operator's last 1,000 commits."),
    ] = msgspec.field(name="commitP99Milliseconds", default=None)
    copies: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)] | None = None


class MetadataChoice(Api, frozen=True, kw_only=True):
    """A history of the metadata that a person may confirm."""

    value: Annotated[Short, described("What --confirm or the annotation must name.")]
    keeps_log: Annotated[
        bool, described("True for the log as it is stored, False for a history of brokers' copies.")
    ]
    from_backup: Annotated[bool | None, described("True for a history of the backup.")] = None
    end_offset: Count
    held_by: Annotated[tuple[BrokerNumber, ...], Meta(max_length=200)] = ()
    gives_up: Annotated[tuple[Sentence, ...], Meta(max_length=GIVEN_UP_MAX)] = ()


class MetadataRestoreStatus(Api, frozen=True, kw_only=True):
    """Why the metadata log is not restored without a person, and the histories to choose from."""

    doubts: Annotated[tuple[Sentence, ...], Meta(max_length=CHOICES_MAX)] = ()
    choices: Annotated[tuple[MetadataChoice, ...], Meta(max_length=CHOICES_MAX)] = ()


class Exposure(Api, frozen=True, kw_only=True):
    """Numbers of topics without a replica to spare: the restart of a broker interrupts writes with
    acks=all."""

    replication_factor_one: Count
    replication_equals_min_isr: Count = msgspec.field(name="replicationEqualsMinISR")


class GroupsStatus(Api, frozen=True, kw_only=True):
    """Numbers of consumer groups, as counted by the brokers that coordinate them."""

    total: Count


class InternalTopicsStatus(Api, frozen=True, kw_only=True):
    """The brokers' own topics. `underReplicated`: partitions with a replica outside the ISR, or
    with fewer replicas than the brokers allow."""

    total: Count
    under_replicated: Annotated[tuple[TopicName, ...], Meta(max_length=20)] = ()


class BootstrapServers(Api, frozen=True, kw_only=True):
    """Addresses at which clients connect first, by listener."""

    internal: Short


class ListenerAddress(Api, frozen=True, kw_only=True):
    """A broker's address for clients outside Kubernetes."""

    id: BrokerNumber
    host: Short
    port: Count


class ListenerStatus(Api, frozen=True, kw_only=True):
    """A declared listener. `bootstrapServers`: the addresses to configure in clients; empty while
    outside clients have none. `brokers`: how many brokers have it open. `addresses`: the known
    outside addresses of brokers."""

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
    """A voluntary action that waits. It resumes by itself when its condition is met, except
    GrowVolume, which needs a person. `until`: that condition. `object`: the object that requests
    the action, as namespace/name."""

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
        """Return the action, its object and the condition it waits for as one text for people."""
        whose = "" if self.broker is None else f" of broker {self.broker}"
        if self.object is not None:
            whose = f" {self.object}"
        until = f": {self.until}" if self.until[:1].isupper() else f" until {self.until}."
        return f"{self.action}{whose} waits{until}"


class Versions(Api, frozen=True, kw_only=True):
    """Releases and metadata versions. `pinned`: the release that brokers shall run; `brokers`: how
    many heartbeating brokers run each release; `metadata`: the finalised metadata version;
    `metadataFinalizable`: the newest one that every broker understands."""

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
    """TLS between brokers and the operator. `mode`: the committed mode; `pinned`: the target mode,
    from the spec or, if the spec does not state it, decided by the operator."""

    mode: ModeName
    pinned: ModeName


class CertificatesStatus(Api, frozen=True, kw_only=True):
    """State of the certificates other than those of listeners."""

    internal: InternalCertificatesStatus


class LogClusterStatus(Api, frozen=True, kw_only=True):
    """The observed state of the cluster.

    A projection of the committed image. Only two fields are read back, because the spec may leave
    them open and nothing else remembers them: `versions.pinned` and `certificates.internal.pinned`.
    """

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
    pools: (
        Annotated[
            tuple[PoolStatus, ...],
            Meta(max_length=16, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    rollout: RolloutStatus | None = None
    selector: Short | None = None
    topics: TopicsStatus | None = None
    partitions: PartitionsStatus | None = None
    metadata_log: MetadataLogStatus | None = None
    backup: BackupStatus | None = None
    metadata_restore: MetadataRestoreStatus | None = None
    exposure: Exposure | None = None
    groups: GroupsStatus | None = None
    internal_topics: InternalTopicsStatus | None = None
    volume_size: Annotated[Quantity | None, described("Size of the brokers' smallest volume.")] = (
        None
    )
    blocked: Annotated[tuple[BlockedAction, ...], Meta(max_length=BLOCKED_MAX)] = ()
    conditions: Conditions = ()
