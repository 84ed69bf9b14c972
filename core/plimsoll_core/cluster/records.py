"""The records of the metadata log: every change that can be committed, as readable JSON.

A record states what is true afterwards, and its `cause`. Partition records are columnar: one record
for all partitions of a topic that change alike, with ranges of indexes; epochs are stated as steps,
so that partitions in different leader epochs still share one record. `image.apply` is the only
reader. Kinds and fields are only ever added, each with its row in `record_versions`: a kind or
field newer than the finalised metadata version is not written. A reader refuses an unknown field,
since leaving it out would give another image.
"""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import (
    Endpoint,
    HistoryRestored,
    PendingDeletion,
    Reassignment,
    Rebalance,
    RebalanceMove,
    Recovery,
    TopicObject,
)
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from plimsoll_core.quotas.state import QuotaEntity, QuotaRow
from plimsoll_core.security.acl import Acl
from plimsoll_core.security.client_certificates import ClientAuthority, UserCertificates
from plimsoll_core.security.inside import InsideMode
from plimsoll_core.security.scram import ScramCredential, ScramMechanism
from plimsoll_core.security.state import Authorization, DeclaredUser
from plimsoll_core.security.tokens import TokenIssuer


class _Record(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    cause: str


RESTORED_CAUSE = "MetadataRestored"
"""The cause of the first record after the log was restored, in all metadata versions."""


class ControllerChanged(_Record, frozen=True, kw_only=True):
    """Starts a controller's term: the first record of each term, alone in its batch. `identity`
    names the operator process. `term_id` is random, or empty before metadata version 5. `restored`:
    the restore of the log after which this term is the first to decide."""

    controller_epoch: ControllerEpoch
    identity: str
    term_id: str = ""
    restored: HistoryRestored | None = None


class ClusterDeclared(_Record, frozen=True, kw_only=True):
    """Names the cluster to which the log belongs. It is the second record of a log."""

    cluster_id: UUID
    name: str


class MetadataVersionFinalized(_Record, frozen=True, kw_only=True):
    """Raises the cluster's metadata version; every registered broker understands it. From this
    record on, itself included, the log may hold the records and fields of that version. It is never
    lowered."""

    metadata_version: int


class MembersChanged(_Record, frozen=True, kw_only=True):
    """Sets the broker ids that the cluster is meant to have, in place of the former ones. Ids that
    were no members become newcomers, unless there were no members at all."""

    broker_ids: tuple[BrokerId, ...]


class NewcomersSettled(_Record, frozen=True, kw_only=True):
    """Removes brokers from `ClusterImage.newcomers`: they have joined, and a rebalance for them has
    been arranged or declined."""

    broker_ids: tuple[BrokerId, ...]


class BrokersLeaving(_Record, frozen=True, kw_only=True):
    """Sets the brokers that are being emptied, in place of the former list. They take no new
    replicas."""

    broker_ids: tuple[BrokerId, ...]


class BrokerRegistered(_Record, frozen=True, kw_only=True):
    """Registers a new incarnation (process) of a broker. It is fenced until it has caught up with
    the metadata log. The offset of this record is its broker epoch."""

    broker_id: BrokerId
    incarnation_id: UUID
    directory_ids: tuple[UUID, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    pod_uid: str | None = None
    revision: str = ""


class BrokerUpdated(_Record, frozen=True, kw_only=True):
    """Replaces the directories, endpoints, rack, pod and pod template revision of a registered
    broker. Its incarnation and broker epoch stay, and it stays fenced or unfenced."""

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
    """Marks a broker that asked for a controlled shutdown. Only the registration of a new
    incarnation clears the mark (KIP-841)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class BrokerUnregistered(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class VolumeReleased(_Record, frozen=True, kw_only=True):
    """Permits the deletion of the volume of an unregistered broker: of the claim with this uid
    only."""

    broker_id: BrokerId
    pvc_uid: str


class VolumeForgotten(_Record, frozen=True, kw_only=True):
    """Removes a released volume from the image, because its claim is gone."""

    pvc_uid: str


class TopicCreated(_Record, frozen=True, kw_only=True):
    """Creates a topic without partitions; PartitionsCreated follows. `owner` is the principal of
    the client that created it, or its network if it is anonymous. It is empty if an object, a super
    user or the cluster itself created the topic."""

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
    """Creates partitions `first`, `first + 1`, … of a topic, with one entry each in `replicas` and
    `isr`. Their leader epoch is 0, and their leader is the first member of the ISR, or none if the
    ISR is empty."""

    topic_id: UUID
    first: int
    replicas: tuple[tuple[BrokerId, ...], ...]
    isr: tuple[tuple[BrokerId, ...], ...]


EPOCHS_SKIPPED: Final = 1_000_000
"""Leader epochs and partition epochs that a restored history skips. Decisions that it lacks may
have used the next ones: those that brokers applied within the last seconds before a power cut,
since copies are not synced, or all since the point to which a backup was restored."""


class PartitionsChanged(_Record, frozen=True, kw_only=True):
    """Makes the same change to every partition of a topic in `ranges` ([first, last], inclusive).

    Unset fields stay as they are. The partition epoch of each grows by 1, the leader epoch by
    `leader_epoch_step`, and both by `epochs_skipped`.
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
    epochs_skipped: Literal[0, 1_000_000] = 0


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
    """Replaces all configs of a topic, and sets the other fields if given. `replication_factor` and
    `strategy` (of placement) apply to partitions created from now on. So does `min_isr`; existing
    partitions get it by later PartitionsChanged records."""

    topic_id: UUID
    configs: dict[str, str]
    min_isr: int | UnsetType = UNSET
    replication_factor: int | UnsetType = UNSET
    strategy: str | UnsetType = UNSET


TOPIC_FIELDS = ("min_isr", "replication_factor", "strategy")
"""The optional fields of `TopicConfigured`; an unset one leaves the topic's value as it is."""


class TopicBound(_Record, frozen=True, kw_only=True):
    """Sets the Topic object that declares the topic. With None no object declares it any more, and
    the former one is remembered in `Topic.detached_from`. Either ends a pending deletion."""

    topic_id: UUID
    object: TopicObject | None
    deletion_policy: str = "Delete"


class TopicOrphaned(_Record, frozen=True, kw_only=True):
    """Begins the grace period of a topic after its object is gone. Its data stays until the period
    has passed."""

    topic_id: UUID
    pending: PendingDeletion


class TopicRemoved(_Record, frozen=True, kw_only=True):
    """Removes a topic and its partitions. Brokers delete the data.

    `now_ms` (API server's clock, milliseconds) counts the removal towards the limit on deletions
    per hour. It is None when a client asked for the deletion, which is not counted.
    """

    topic_id: UUID
    now_ms: int | None = None


class ProducerIdsAllocated(_Record, frozen=True, kw_only=True):
    broker_id: BrokerId
    next_producer_id: int


class ReassignmentNoted(_Record, frozen=True, kw_only=True):
    """Sets the stored state of a Reassignment object that is under way or has ended. It replaces
    the former state."""

    reassignment: Reassignment


class ReassignmentForgotten(_Record, frozen=True, kw_only=True):
    """Removes the stored state of a Reassignment, because its object is gone and it no longer moves
    any partition."""

    uid: str


class RebalanceNoted(_Record, frozen=True, kw_only=True):
    """Sets the stored state of a Rebalance object that is about to begin, under way, or ended. It
    replaces the former state.

    With the phase Beginning the list of its moves starts empty, and RebalanceMovesAdded records
    fill it. With a final phase the moves that were not done are dropped.
    """

    rebalance: Rebalance


class RebalanceMovesAdded(_Record, frozen=True, kw_only=True):
    """Adds moves to the plan of a Rebalance. A move replaces the one with the same number."""

    uid: str
    moves: tuple[RebalanceMove, ...]


class RebalanceAdvanced(_Record, frozen=True, kw_only=True):
    """Records the progress of a Rebalance, by numbers of moves. `begun` are about to begin, `moved`
    are complete, `dropped` are given up. `moved` and `dropped` moves are removed from the moves
    that are not done."""

    uid: str
    begun: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


class RebalanceForgotten(_Record, frozen=True, kw_only=True):
    """Removes the stored state of a Rebalance, because its object is gone and it no longer moves
    any partition."""

    uid: str


class MovementLimited(_Record, frozen=True, kw_only=True):
    """Sets the cluster's rate limit, in bytes per second, at which one broker copies replicas that
    are moved to it."""

    bytes_per_second: int


class ListenersConfigured(_Record, frozen=True, kw_only=True):
    """Sets all listeners for clients. With none, brokers open only the listener of their own
    configuration. Each broker opens and closes its ports accordingly, and registers the endpoint of
    each listener that it has opened."""

    listeners: tuple[Listener, ...]


class RestartGranted(_Record, frozen=True, kw_only=True):
    """Permits the restart of a broker with the pod template `revision`; the active controller
    carries it out. The broker counts as away until RestartEnded. It replaces an earlier grant of
    the broker."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None = None
    pod_uid: str | None = None
    revision: str = ""


class RestartEnded(_Record, frozen=True, kw_only=True):
    """Ends the grant of a broker's restart: the broker is back, or will not come back. `proven`:
    the pod template revision with which the broker came back, None otherwise."""

    broker_id: BrokerId
    proven: str | None = None


class HibernationSet(_Record, frozen=True, kw_only=True):
    """Puts the cluster to sleep or wakes it. While it hibernates no partition gets a leader. The
    records that take the leaders away, or elect them, follow."""

    hibernated: bool


class AuthorizationConfigured(_Record, frozen=True, kw_only=True):
    """Replaces the cluster's authorization: its mode and its super users."""

    authorization: Authorization


class ScramCredentialSet(_Record, frozen=True, kw_only=True):
    """Sets the SCRAM credential with which a user may log in. It replaces the user's credential for
    the same mechanism."""

    credential: ScramCredential


class ScramCredentialRemoved(_Record, frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism


class AclsAdded(_Record, frozen=True, kw_only=True):
    """Adds ACLs, and `owner` to the owners of each. `owner` is the uid of the User object that
    declares them, or empty for ACLs that a client created."""

    acls: tuple[Acl, ...]
    owner: str = ""


class AclsRemoved(_Record, frozen=True, kw_only=True):
    """Removes `owner` from the owners of these ACLs. An ACL without owners is removed."""

    acls: tuple[Acl, ...]
    owner: str = ""


class UserDeclared(_Record, frozen=True, kw_only=True):
    """Sets the entry of a user that a User object declares. It replaces the user's former entry."""

    user: DeclaredUser


class UserRemoved(_Record, frozen=True, kw_only=True):
    """Removes a declared user, because its User object is gone. `now_ms` (wall clock, milliseconds)
    counts the removal among those of the last hour; with None it is not counted."""

    user_name: str
    now_ms: int | None = None


class TokenIssuersConfigured(_Record, frozen=True, kw_only=True):
    """Sets the trusted issuers of tokens, with all their keys. Brokers close the connections of
    clients that logged in by a token of an issuer that is not listed any more."""

    issuers: tuple[TokenIssuer, ...]


class ClientAuthoritiesConfigured(_Record, frozen=True, kw_only=True):
    """Sets the certificate authorities that are trusted for clients' certificates. Brokers close
    the connections of clients that logged in by a certificate of another authority."""

    authorities: tuple[ClientAuthority, ...]


class UserCertificatesSet(_Record, frozen=True, kw_only=True):
    """Sets the client certificates by which a user may log in. It replaces the user's former
    certificates."""

    row: UserCertificates


class UserCertificatesRemoved(_Record, frozen=True, kw_only=True):
    """Removes all client certificates of a user: the user cannot log in by a certificate any
    more."""

    user: str


class QuotasSet(_Record, frozen=True, kw_only=True):
    """Sets all quotas of one entity (user, client id, IP address). It replaces the entity's former
    quotas."""

    row: QuotaRow


class QuotasRemoved(_Record, frozen=True, kw_only=True):
    """Removes all quotas of one entity."""

    entity: QuotaEntity


class InsideModeSet(_Record, frozen=True, kw_only=True):
    """Sets the TLS mode of the connections among brokers and controllers."""

    mode: InsideMode


class CertificatesAllowed(_Record, frozen=True, kw_only=True):
    """Sets the certificates that a broker may present to other brokers and controllers, as SHA-256
    fingerprints, newest first. Empty means that the broker is removed. Connections with any other
    certificate of this broker are closed."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


class SnapshotTaken(_Record, frozen=True, kw_only=True):
    """States that a snapshot of all records before offset `end_offset` is complete, stored under
    `name`. The log's slots with older records may be overwritten."""

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
    | HibernationSet
    | SnapshotTaken
)
"""Every record type of the metadata log."""
