"""The records of the metadata log: every change that can be committed, as readable JSON.

A record states what is true afterwards, and its `cause`.  Partition records are columnar: one
record for all partitions of a topic that change alike, with ranges of indexes; epochs are stated
as steps, so that partitions in different terms still share one record.  `image.apply` is the only
reader.  Kinds and fields are only ever added, each with its row in `record_versions`: what is
newer than the finalised metadata version is not written, and what a reader does not know it refuses
(a field that it left out would make its image another one).
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from plimsoll_core.cluster.access_records import AclsAdded as AclsAdded
from plimsoll_core.cluster.access_records import AclsRemoved as AclsRemoved
from plimsoll_core.cluster.access_records import AuthorizationConfigured as AuthorizationConfigured
from plimsoll_core.cluster.access_records import CertificatesAllowed as CertificatesAllowed
from plimsoll_core.cluster.access_records import (
    ClientAuthoritiesConfigured as ClientAuthoritiesConfigured,
)
from plimsoll_core.cluster.access_records import InsideModeSet as InsideModeSet
from plimsoll_core.cluster.access_records import QuotasRemoved as QuotasRemoved
from plimsoll_core.cluster.access_records import QuotasSet as QuotasSet
from plimsoll_core.cluster.access_records import ScramCredentialRemoved as ScramCredentialRemoved
from plimsoll_core.cluster.access_records import ScramCredentialSet as ScramCredentialSet
from plimsoll_core.cluster.access_records import TokenIssuersConfigured as TokenIssuersConfigured
from plimsoll_core.cluster.access_records import UserCertificatesRemoved as UserCertificatesRemoved
from plimsoll_core.cluster.access_records import UserCertificatesSet as UserCertificatesSet
from plimsoll_core.cluster.access_records import UserDeclared as UserDeclared
from plimsoll_core.cluster.access_records import UserRemoved as UserRemoved
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import (
    Endpoint,
    PendingDeletion,
    Reassignment,
    Rebalance,
    RebalanceMove,
    Recovery,
    TopicObject,
)
from plimsoll_core.cluster.record_base import Record as _Record
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch


class ControllerChanged(_Record, frozen=True, kw_only=True):
    """The first record of every term, alone in its batch.  `term_id` is random, empty before
    metadata version 5."""

    controller_epoch: ControllerEpoch
    identity: str
    term_id: str = ""


class ClusterDeclared(_Record, frozen=True, kw_only=True):
    """The first record but one of a log: the cluster that owns it."""

    cluster_id: UUID
    name: str


class MetadataVersionFinalized(_Record, frozen=True, kw_only=True):
    """Every registered broker understands this metadata version. From this record on the log may
    hold what the version introduced, beginning with this record. Never reverted."""

    metadata_version: int


class MembersChanged(_Record, frozen=True, kw_only=True):
    """The broker ids that the cluster is meant to have."""

    broker_ids: tuple[BrokerId, ...]


class NewcomersSettled(_Record, frozen=True, kw_only=True):
    """These members have joined, and their rebalance has been arranged or declined."""

    broker_ids: tuple[BrokerId, ...]


class BrokersLeaving(_Record, frozen=True, kw_only=True):
    """The brokers that are being emptied: they take no new replicas."""

    broker_ids: tuple[BrokerId, ...]


class BrokerRegistered(_Record, frozen=True, kw_only=True):
    """A new incarnation; fenced until it has caught up.  Its offset is the broker epoch."""

    broker_id: BrokerId
    incarnation_id: UUID
    directory_ids: tuple[UUID, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    pod_uid: str | None = None
    revision: str = ""


class BrokerUpdated(_Record, frozen=True, kw_only=True):
    """A new registration of the same incarnation, with other listeners, rack or directories."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    directory_ids: tuple[UUID, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    pod_uid: str | None = None
    revision: str = ""


class BrokerFenced(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class BrokerUnfenced(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class BrokerShutdownStarted(_Record, frozen=True, kw_only=True):
    """The broker asked to leave.  Durable: only a new incarnation clears it (KIP-841)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class BrokerUnregistered(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class VolumeReleased(_Record, frozen=True, kw_only=True):
    """The volume of a broker that is gone may be deleted: this very claim, by its uid."""

    broker_id: BrokerId
    pvc_uid: str


class VolumeForgotten(_Record, frozen=True, kw_only=True):
    """A released volume's claim is gone."""

    pvc_uid: str


class TopicCreated(_Record, frozen=True, kw_only=True):
    """A topic was created. `owner`: the principal, or the network, of the client that created it;
    empty if an object, a super user or the cluster itself did."""

    topic_id: UUID
    name: str
    replication_factor: int
    min_isr: int
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    strategy: str = "RoundRobin"
    object: TopicObject | None = None
    deletion_policy: str = "Delete"
    owner: str = ""


class PartitionsCreated(_Record, frozen=True, kw_only=True):
    """Partitions `first`, `first + 1`, … were created. Their leader epoch is 0 and their leader is
    the first member of the ISR."""

    topic_id: UUID
    first: int
    replicas: tuple[tuple[BrokerId, ...], ...]
    isr: tuple[tuple[BrokerId, ...], ...]


class PartitionsChanged(_Record, frozen=True, kw_only=True):
    """One change to every partition in `ranges` ([first, last], inclusive).

    Unset fields stay as they are.  The partition epoch grows by one, the leader epoch by
    `leader_epoch_step`.
    """

    topic_id: UUID
    ranges: tuple[tuple[int, int], ...]
    leader_epoch_step: Literal[0, 1] = 0
    leader: BrokerId | UnsetType | None = UNSET
    isr: tuple[BrokerId, ...] | UnsetType = UNSET
    elr: tuple[BrokerId, ...] | UnsetType = UNSET
    last_known_elr: tuple[BrokerId, ...] | UnsetType = UNSET
    replicas: tuple[BrokerId, ...] | UnsetType = UNSET
    adding: tuple[BrokerId, ...] | UnsetType = UNSET
    removing: tuple[BrokerId, ...] | UnsetType = UNSET
    min_isr: int | UnsetType = UNSET
    recovery: Recovery | UnsetType = UNSET


# All fields that `PartitionsChanged` may state: a field that the decision states and `apply` does
# not read would be lost silently.
PARTITION_FIELDS = (
    "leader",
    "isr",
    "elr",
    "last_known_elr",
    "replicas",
    "adding",
    "removing",
    "min_isr",
    "recovery",
)


class TopicConfigured(_Record, frozen=True, kw_only=True):
    """A topic's whole set of configs, from now on; the others are what new partitions start with,
    and how the topic is placed."""

    topic_id: UUID
    configs: dict[str, str]
    min_isr: int | UnsetType = UNSET
    replication_factor: int | UnsetType = UNSET
    strategy: str | UnsetType = UNSET


TOPIC_FIELDS = ("min_isr", "replication_factor", "strategy")
"""The fields of `TopicConfigured` besides the configs."""


class TopicBound(_Record, frozen=True, kw_only=True):
    """The object that declares the topic; also ends a pending deletion."""

    topic_id: UUID
    object: TopicObject | None
    deletion_policy: str = "Delete"


class TopicOrphaned(_Record, frozen=True, kw_only=True):
    """The topic's object is gone; the data stays until the grace has passed."""

    topic_id: UUID
    pending: PendingDeletion


class TopicRemoved(_Record, frozen=True, kw_only=True):
    """The topic is gone; brokers delete its data.

    `now_ms` feeds the mass-deletion counter; it is None when a client asked for the deletion.
    """

    topic_id: UUID
    now_ms: int | None = None


class ProducerIdsAllocated(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    next_producer_id: int


class ReassignmentNoted(_Record, frozen=True, kw_only=True):
    """A Reassignment object is under way, or has ended: the whole row."""

    reassignment: Reassignment


class ReassignmentForgotten(_Record, frozen=True, kw_only=True):
    """The object is gone, and nothing moves for it any more."""

    uid: str


class RebalanceNoted(_Record, frozen=True, kw_only=True):
    """A Rebalance object is about to begin, under way, or has ended: the whole row.

    Beginning empties what it has to do; the plan follows.  An end drops what was not done.
    """

    rebalance: Rebalance


class RebalanceMovesAdded(_Record, frozen=True, kw_only=True):
    """A part of a Rebalance's plan; a number that is there already gets another target."""

    uid: str
    moves: tuple[RebalanceMove, ...]


class RebalanceAdvanced(_Record, frozen=True, kw_only=True):
    """Progress of a Rebalance, by numbers of moves. `begun`: about to begin; `moved`: carried out;
    `dropped`: given up. `moved` and `dropped` moves leave the plan."""

    uid: str
    begun: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


class RebalanceForgotten(_Record, frozen=True, kw_only=True):
    """The object is gone, and nothing moves for it any more."""

    uid: str


class MovementLimited(_Record, frozen=True, kw_only=True):
    """The default rate limit of a broker for replicas that are moved to it."""

    bytes_per_second: int


class ListenersConfigured(_Record, frozen=True, kw_only=True):
    """All listeners for clients; replaces the former ones. Empty: only the listener of the brokers'
    configuration. Each broker opens and closes its own accordingly, and registers the endpoint of
    each that it has opened."""

    listeners: tuple[Listener, ...]


class RestartGranted(_Record, frozen=True, kw_only=True):
    """The broker may be restarted into `revision`.  The active controller carries it out; it
    counts as away until the grant ends, whatever happens meanwhile.  Replaces the broker's earlier
    grant."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None = None
    pod_uid: str | None = None
    revision: str = ""


class RestartEnded(_Record, frozen=True, kw_only=True):
    """The broker is back, or will not come back.  `proven`: it came back with this revision."""

    broker_id: BrokerId
    proven: str | None = None


class SnapshotTaken(_Record, frozen=True, kw_only=True):
    """A snapshot at `end_offset` is complete: slots below it may be used again."""

    end_offset: int
    name: str


Record = (
    ControllerChanged
    | ClusterDeclared
    | MetadataVersionFinalized
    | MembersChanged
    | NewcomersSettled
    | BrokersLeaving
    | BrokerRegistered
    | BrokerUpdated
    | BrokerFenced
    | BrokerUnfenced
    | BrokerShutdownStarted
    | BrokerUnregistered
    | VolumeReleased
    | VolumeForgotten
    | TopicCreated
    | PartitionsCreated
    | PartitionsChanged
    | TopicConfigured
    | TopicBound
    | TopicOrphaned
    | TopicRemoved
    | ProducerIdsAllocated
    | ReassignmentNoted
    | ReassignmentForgotten
    | RebalanceNoted
    | RebalanceMovesAdded
    | RebalanceAdvanced
    | RebalanceForgotten
    | MovementLimited
    | AuthorizationConfigured
    | ScramCredentialSet
    | ScramCredentialRemoved
    | AclsAdded
    | AclsRemoved
    | UserDeclared
    | UserRemoved
    | TokenIssuersConfigured
    | ClientAuthoritiesConfigured
    | UserCertificatesSet
    | UserCertificatesRemoved
    | QuotasSet
    | QuotasRemoved
    | ListenersConfigured
    | InsideModeSet
    | CertificatesAllowed
    | RestartGranted
    | RestartEnded
    | SnapshotTaken
)
"""Every record type of the metadata log."""
