"""All requests to the controller, as unions, and all its answers.

The same values are `decide`'s input and, between processes, the body of a private request
(`plimsoll_wire.control`). All messages between broker and controller are defined here, in the parts
(`brokers`, `elections`, `moves`, `security`, `topics`), or in `metadata_stream`. Every answer
carries the controller's epoch; a broker that has seen a higher one ignores the answer.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import AnnouncedEndpoint, Recovery
from plimsoll_core.errors import Reason
from plimsoll_core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    PartitionEpoch,
)
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.brokers import (
    BrokerFigures,
    DeclareListeners,
    DismissCopy,
    InsideRequest,
    MembershipRequest,
    RequestRestart,
    RestartAnswer,
    SetHibernation,
    WithdrawRestart,
)
from plimsoll_core.messages.elections import ElectionsAnswer, ElectLeaders, NameLeaders
from plimsoll_core.messages.moves import (
    AlterReassignments,
    LimitMovement,
    ReassignmentObjectGone,
    ReassignmentsAnswer,
    ReassignmentState,
    RebalanceRequest,
    RebalanceState,
    ReportCopies,
    RunReassignment,
)
from plimsoll_core.messages.security import (
    OnBehalf,
    SecurityAnswer,
    SecurityChange,
    SecurityDeclaration,
)
from plimsoll_core.messages.topics import DeclareTopic as DeclareTopic
from plimsoll_core.messages.topics import DetachTopic as DetachTopic
from plimsoll_core.messages.topics import EnsureInternalTopic, TopicChange, TopicsChanged
from plimsoll_core.messages.topics import TopicObjectGone as TopicObjectGone


class LogPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A process's position in the metadata log: it has applied `applied_offset` records, the last
    of them from the batch with `nonce`, written in the controller term `term_id`. From the position
    the controller detects that the log was restored from an older state."""

    applied_offset: MetadataOffset
    nonce: str | None
    controller_epoch: ControllerEpoch
    term_id: str | None = None


# --- what brokers send -------------------------------------------------------------------------


class RegisterBroker(Message, frozen=True, kw_only=True):
    """Register a broker process.

    `previous_broker_epoch`: from the marker of a clean shutdown, else None. `volume_is_empty`: True
    if the volume has no meta.properties; a broker id that was registered before may format such a
    volume only if the answer permits it. `metadata_versions`: the oldest and the newest that the
    broker understands. `release`: of its software.
    """

    cluster_id: UUID
    broker_id: BrokerId
    incarnation_id: UUID
    previous_broker_epoch: BrokerEpoch | None
    directory_ids: tuple[UUID, ...]
    endpoints: tuple[AnnouncedEndpoint, ...]
    rack: str | None = None
    pod_uid: str | None = None
    revision: str = ""
    volume_is_empty: bool = False
    position: LogPosition | None = None
    metadata_versions: tuple[int, int]
    release: str


class Heartbeat(Message, frozen=True, kw_only=True):
    """A broker's heartbeat. `want_fence`: True to be fenced, or not to be unfenced;
    `want_shutdown`: True to be fenced once it leads nothing any more. `unknown_metadata`: why it
    cannot apply further metadata records, if a newer release wrote them. `groups`: the number of
    groups that it coordinates, for status only; None if not reported."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    position: LogPosition
    want_fence: bool = False
    want_shutdown: bool = False
    metadata_versions: tuple[int, int]
    release: str
    unknown_metadata: str = ""
    groups: int | None = None
    figures: BrokerFigures | None = None


class IsrMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a proposed ISR. `broker_epoch`: the epoch in its fetches; None if it has not
    fetched in this leader epoch."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None


class IsrProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A leader's proposed ISR for one partition. `cause`: a sentence for the metadata record."""

    topic_id: UUID
    index: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[IsrMember, ...]
    recovery: Recovery
    cause: str


class AlterPartition(Message, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    proposals: tuple[IsrProposal, ...]


class ReplicaLog(msgspec.Struct, frozen=True, kw_only=True):
    """A report of how complete one replica's log is. `leader_epoch`: the newest that the replica
    knows; `last_written_epoch`: that of its last record, None if the log is empty."""

    topic_id: UUID
    index: int
    leader_epoch: LeaderEpoch
    last_written_epoch: int | None
    log_end_offset: int


class ReportReplicaLogs(Message, frozen=True, kw_only=True):
    """Report the logs of replicas of leaderless partitions, which a recovery compares. The broker
    repeats the report until the partition has a leader."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    logs: tuple[ReplicaLog, ...]


class FailedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that must not be elected. `lost`: its log is online, but its broker is about to
    discard it and copy the leader's."""

    topic_id: UUID
    index: int
    lost: bool = False


class ReportFailedReplicas(Message, frozen=True, kw_only=True):
    """Report ISR replicas on a failed or full disk. They count as offline until their broker
    restarts, reports their logs (`ReportReplicaLogs`) or fetches for them as a follower. Report
    members of the ISR or the ELR with a log that must be copied anew (`FailedReplica.lost`)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: tuple[FailedReplica, ...]


class AllocateProducerIds(Message, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that a client wants to create. `partitions`, `replication_factor`: None for the
    cluster's default. `assignment`: the replicas of each partition, the preferred leader first;
    None to let the controller choose."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None
    configs: dict[str, str] = {}


class CreateTopics(Message, frozen=True, kw_only=True):
    """A client's request to create topics, forwarded by a broker. These topics have no Topic
    object. `answered`: results of the topics decided so far, if the controller continues a large
    request in several decisions."""

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    answered: tuple[TopicAnswer, ...] = ()
    behalf: OnBehalf | None = None


class DeleteTopics(Message, frozen=True, kw_only=True):
    """A client's request to delete topics by name or id, forwarded by a broker. `answered`: as in
    `CreateTopics`."""

    names: tuple[str, ...] = ()
    ids: tuple[UUID, ...] = ()
    answered: tuple[TopicAnswer, ...] = ()
    behalf: OnBehalf | None = None


Forwarded = (
    CreateTopics
    | DeleteTopics
    | TopicChange
    | ElectLeaders
    | AlterReassignments
    | EnsureInternalTopic
    | SecurityChange
)
"""The requests that brokers forward for clients."""


# --- what the operator itself asks -------------------------------------------------------------


class SetMembers(Message, frozen=True, kw_only=True):
    """Set the broker ids that the cluster should have, by the LogCluster's count and exclusions."""

    broker_ids: tuple[BrokerId, ...]


# --- what the controller's own shell tells it ---------------------------------------------------


class Activated(Message, frozen=True, kw_only=True):
    """A controller's first request to itself, once the first record of its term is committed:
    resume unfinished fencings, shutdowns and elections.

    `cluster_name`: the name to give the cluster when its log is new. `second_opinion`: True if the
    controller before ended its term because most brokers fell silent at once
    (`Decision.hand_over`). `restored`: True if the metadata log was restored from brokers'
    copies and nothing was decided since. Then the first decision skips what may be lost, and no
    other one; it must be committed before anything else is decided.
    """

    cluster_name: str = ""
    second_opinion: bool = False
    restored: bool = False


class Tick(Message, frozen=True, kw_only=True):
    """Check for expired broker sessions. `late_ms`: by how much the controller's timer ran late."""

    late_ms: int = 0


class BrokerProvenDead(Message, frozen=True, kw_only=True):
    """Report that a registered broker process is proven to have ended: its last connection was
    closed by the peer, and its listener refuses connections or its pod (by uid) is terminated. The
    controller fences the broker at once."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    evidence: str


BrokerRequest = (
    RegisterBroker
    | Heartbeat
    | AlterPartition
    | AllocateProducerIds
    | ReportReplicaLogs
    | ReportFailedReplicas
    | ReportCopies
    | CreateTopics
    | DeleteTopics
    | TopicChange
    | ElectLeaders
    | AlterReassignments
    | EnsureInternalTopic
    | SecurityChange
)
"""Requests that arrive over the network; the operator's own requests never do."""

Request = (
    BrokerRequest
    | DeclareTopic
    | TopicObjectGone
    | DetachTopic
    | NameLeaders
    | RunReassignment
    | ReassignmentObjectGone
    | RebalanceRequest
    | LimitMovement
    | SecurityDeclaration
    | DeclareListeners
    | SetHibernation
    | InsideRequest
    | SetMembers
    | MembershipRequest
    | Activated
    | Tick
    | BrokerProvenDead
    | DismissCopy
    | RequestRestart
    | WithdrawRestart
)


# --- answers ----------------------------------------------------------------------------------


class Refused(Message, frozen=True, kw_only=True):
    """The refusal of a request. `reason`: the name of a `Reason`; `code`: Kafka's error code.
    `keep_logs`: with MetadataDismissed, the partitions with logs that the broker must not set
    aside: names of topics, each with indexes."""

    reason: str
    code: int
    message: str
    keep_logs: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def known_reason(self) -> Reason | None:
        """Return the reason, for callers that branch on it. Return None if the name is of a newer
        release."""
        return Reason.__members__.get(self.reason)


class Registered(Message, frozen=True, kw_only=True):
    """A successful registration. `may_format`: permission to format an empty volume."""

    broker_epoch: BrokerEpoch
    may_format: bool = True


class HeartbeatAnswer(Message, frozen=True, kw_only=True):
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class PartitionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an ISR proposal: the committed state of the partition, or an error `code` other
    than 0 with a sentence."""

    topic_id: UUID
    index: int
    code: int = 0
    message: str = ""
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    partition_epoch: PartitionEpoch = PartitionEpoch(0)
    isr: tuple[BrokerId, ...] = ()
    recovery: Recovery = Recovery.RECOVERED


class PartitionsAnswer(Message, frozen=True, kw_only=True):
    partitions: tuple[PartitionAnswer, ...]


class ProducerIdBlock(Message, frozen=True, kw_only=True):
    first: int
    length: int


class TopicAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one topic; `code` 0 is success. `reason`: the name of a `Reason`, or empty.
    `min_isr`: the min ISR of a topic that was created, or would be with `validate_only`."""

    name: str
    topic_id: UUID | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    partitions: int = 0
    replication_factor: int = 0
    min_isr: int = 0


class TopicsAnswer(Message, frozen=True, kw_only=True):
    topics: tuple[TopicAnswer, ...]


class Done(Message, frozen=True, kw_only=True):
    """A successful answer without content: what the request asked for is committed."""


Answer = (
    Refused
    | Registered
    | HeartbeatAnswer
    | PartitionsAnswer
    | ProducerIdBlock
    | TopicsAnswer
    | TopicsChanged
    | ElectionsAnswer
    | ReassignmentsAnswer
    | ReassignmentState
    | RestartAnswer
    | RebalanceState
    | SecurityAnswer
    | Done
)
