"""The committed state of a cluster, on which every decision is based.

`ClusterImage` is a persistent value: `apply` makes the next one in time proportional to the change,
and an older one stays valid. The controller, every broker and the simulator hold the same image,
replayed from the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from immutables import Map

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    IncarnationId,
    LeaderEpoch,
    MetadataOffset,
    PartitionEpoch,
    TopicId,
)
from plimsoll_core.quotas.state import NO_QUOTAS, ClientQuotas
from plimsoll_core.security.inside import NOTHING_INSIDE, Inside
from plimsoll_core.security.state import NOTHING, SecurityState


def effective_min_isr(
    min_isr: int, replicas: Sequence[BrokerId], adding: Sequence[BrokerId]
) -> int:
    """Return the min ISR that applies to a partition now: `min_isr`, but at most the number of
    replicas that are not being added, and at least 1."""
    # Status and metrics ask it of each partition; of most nothing is being added.
    settled = len(set(replicas) - set(adding)) if adding else len(replicas)
    return max(1, min(min_isr, settled))


MOVEMENT_BYTES_PER_SECOND = 50 * 2**20
"""The default rate, in bytes per second, at which one broker copies replicas that are moved to
it."""


class Recovery(Enum):
    """RECOVERING after the unclean election of a leader, until that leader reports that it has
    recovered. RECOVERED otherwise."""

    RECOVERED = "Recovered"
    RECOVERING = "Recovering"


UncleanRecovery = Literal["Balanced", "Proactive", "Manual"]
"""The strategy for a partition without any replica that is sure to hold all committed records.
Balanced: wait until all replicas that may hold them have reported their logs, then elect the most
complete one. Proactive: wait at most `Settings.unclean_wait_ms`, then elect the most complete of
the replicas that have reported. Manual: a person names the leader."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all parts of records and snapshots. Decoding fails on an unknown field, so that a
    reader never drops one."""


class AnnouncedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A listener's address, as a broker registers it. Unknown fields are ignored: a newer broker
    may send more."""

    name: str
    host: str
    port: int


class Endpoint(AnnouncedEndpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listener's address, as committed."""


class PartitionKey(NamedTuple):
    """The key of a partition in the image: the id of its topic and its index in the topic."""

    topic_id: TopicId
    index: int  # type: ignore[assignment]  # shadows tuple.index, which is not needed here


class Partition(_Stored, frozen=True, kw_only=True):
    """The committed state of a partition. Only `kernel.partition_change` makes new values of it.

    The first of `replicas` is the preferred leader. `adding` and `removing` are disjoint subsets of
    `replicas`: those that a move adds, and those that are dropped when it ends. Both are empty if
    no move is under way. `isr`, `elr` and `last_known_elr` are disjoint subsets of `replicas` too.
    `leader` is None when no replica may lead. `elr` holds the replicas that left the ISR while it
    was below `min_isr` and that still hold all committed records. `last_known_elr` holds former ELR
    members of which this is no longer sure (KIP-966). `min_isr` is as stated; `effective_min_isr`
    applies.
    """

    topic_id: TopicId
    index: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    min_isr: int
    recovery: Recovery = Recovery.RECOVERED

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.index)

    @property
    def needs_recovery(self) -> bool:
        """Return True if the partition has no leader, and no replica is sure to hold all committed
        records: ISR and ELR are empty."""
        return self.leader is None and not self.isr and not self.elr

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """Return the replicas that the partition has after its move, or has now if none is under
        way."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def settled(self) -> tuple[BrokerId, ...]:
        """Return the replicas without those that a move is adding."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def effective_min_isr(self) -> int:
        """Return the min ISR that applies now: at most the number of settled replicas, at least 1
        (m(p) in docs/protocol.md)."""
        return effective_min_isr(self.min_isr, self.replicas, self.adding)


class TopicObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that declares a topic."""

    namespace: str
    name: str
    uid: str


class ReassignmentObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that declares a reassignment."""

    namespace: str
    name: str
    uid: str


MovePhase = Literal["Running", "Completed", "Cancelled", "Failed"]
"""The phase of a Reassignment. The last three are final."""


class MovedPartitions(_Stored, frozen=True, kw_only=True):
    """Some partitions of one topic, as ranges [first, last] of their indexes, both inclusive."""

    topic_id: TopicId
    ranges: tuple[tuple[int, int], ...]

    def named(self) -> Iterator[PartitionKey]:
        for first, last in self.ranges:
            for index in range(first, last + 1):
                yield PartitionKey(self.topic_id, index)

    def holds(self, key: PartitionKey) -> bool:
        same_topic = key.topic_id == self.topic_id
        return same_topic and any(first <= key.index <= last for first, last in self.ranges)


class Reassignment(_Stored, frozen=True, kw_only=True):
    """The committed state of a Reassignment object since it began. An object with a row here is not
    begun again.

    `partitions` are those that it moves, empty once the phase is final; the progress of each is in
    its own `Partition`. `total` counts all partitions that the object named, including those that
    were in place when it began. `rolled_back` counts those that went back to their old replicas
    after a cancel. `bytes_per_second`, the rate limit of its copies, is None for the cluster's
    limit. `reason` and `message` tell why it failed, and are empty otherwise. `started_ms` and
    `ended_ms` are instants of the operator's wall clock in milliseconds; `ended_ms` is None until
    the phase is final.
    """

    object: ReassignmentObject
    phase: MovePhase
    partitions: tuple[MovedPartitions, ...] = ()
    total: int = 0
    rolled_back: int = 0
    bytes_per_second: int | None = None
    paused: bool = False
    reason: str = ""
    message: str = ""
    started_ms: int = 0
    ended_ms: int | None = None

    def named(self) -> Iterator[PartitionKey]:
        """Yield the keys of the partitions that the Reassignment moves."""
        for moved in self.partitions:
            yield from moved.named()


class RebalanceObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that declares a rebalance."""

    namespace: str
    name: str
    uid: str


RebalanceMode = Literal["Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders", "Load"]
RebalancePhase = Literal["Beginning", "Running", "Completed", "Cancelled", "Failed"]
"""The phase of a Rebalance. Beginning: the records of its plan are being committed, and no
partition moves yet. The last three are final."""


class RebalanceMove(_Stored, frozen=True, kw_only=True):
    """One partition's move in the plan of a Rebalance: its replicas `before` and `after`. `number`
    is its position in the plan. `size` is the size of one replica in bytes when the plan was made,
    None if unknown. `wave` is the wave in which the plan expected it to begin."""

    number: int
    topic_id: TopicId
    index: int
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    size: int | None = None
    wave: int = 1

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.index)

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        return tuple(b for b in self.after if b not in self.before)

    @property
    def removing(self) -> tuple[BrokerId, ...]:
        return tuple(b for b in self.before if b not in self.after)

    @property
    def copied_bytes(self) -> int:
        """Return the number of bytes that the move copies to new replicas, 0 if the size is
        unknown."""
        return len(self.adding) * (self.size or 0)


class Rebalance(_Stored, frozen=True, kw_only=True):
    """The committed state of a Rebalance object since it began. An object with a row here is not
    begun again.

    `brokers` are those that the modes AddBrokers and RemoveBrokers add or remove. `total` and
    `moved` count partitions, in the plan and moved. `replicas` and `replicas_moved` count the
    replicas to copy, in the plan and copied. `dropped` counts partitions that were not moved,
    because they changed after the plan was made. `lowest_isr_margin` is the least value of ISR size
    minus min ISR of a partition during its moves, None if none was seen. `bytes_per_second`, the
    rate limit of its copies, is None for the cluster's limit. `started_ms` and `ended_ms` are
    instants of the operator's wall clock in milliseconds; `ended_ms` is None until the phase is
    final.
    """

    object: RebalanceObject
    mode: RebalanceMode
    brokers: tuple[BrokerId, ...] = ()
    phase: RebalancePhase
    plan_hash: str = ""
    total: int = 0
    replicas: int = 0
    waves: int = 0
    moved: int = 0
    replicas_moved: int = 0
    dropped: int = 0
    lowest_isr_margin: int | None = None
    bytes_per_second: int | None = None
    paused: bool = False
    reason: str = ""
    message: str = ""
    started_ms: int = 0
    ended_ms: int | None = None


class RebalanceRest(msgspec.Struct, frozen=True, kw_only=True):
    """The moves of a Rebalance that are not done, by their numbers in the plan. `active` maps the
    partition of each move that has begun to the number of that move; these moves are in `moves`
    too."""

    moves: Map[int, RebalanceMove] = Map()
    active: Map[PartitionKey, int] = Map()


class PendingDeletion(_Stored, frozen=True, kw_only=True):
    """The deletion of a topic after its Topic object is gone. `since_ms`: the time when the
    operator found the object deleted. `until_ms`: the time until which the data is kept. Both are
    times of the API server's clock in milliseconds."""

    since_ms: int
    until_ms: int


class Topic(_Stored, frozen=True, kw_only=True, omit_defaults=True):
    """The committed state of a topic.

    `object` is the Topic object that declares it, None if a client created the topic or it was
    detached from its object; `detached_from` then names the one object that may declare it again.
    `compacted` is True once the configs have included compaction; the logs may have gaps from then
    on. `owner` is the principal against which its partitions are counted, empty if there is none.
    """

    id: TopicId
    name: str
    partitions: int
    replication_factor: int
    min_isr: int
    configs: Map[str, str] = Map()
    strategy: str = "RoundRobin"
    object: TopicObject | None = None
    detached_from: TopicObject | None = None
    deletion_policy: str = "Delete"
    pending_deletion: PendingDeletion | None = None
    compacted: bool = False
    owner: str = ""


class Broker(_Stored, frozen=True, kw_only=True):
    """The committed state of a registered broker. `directory_ids` name its data directories. `rack`
    and `pod_uid` are None if it registered without. `revision` is the revision of the pod template
    from which its pod was made, empty if it registered without."""

    id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: IncarnationId
    directory_ids: tuple[UUID, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    pod_uid: str | None
    fenced: bool
    shutting_down: bool
    revision: str = ""

    @property
    def active(self) -> bool:
        """Return True if the broker is neither fenced nor shutting down."""
        return not self.fenced and not self.shutting_down


class Grant(_Stored, frozen=True, kw_only=True):
    """A committed permission to restart a broker: the active controller may write its pod template
    and delete its pod, once.

    `broker_epoch` is that of the process to be stopped, None if the broker never registered.
    `pod_uid` names the pod to be deleted, None if there is none or its uid is not known. `revision`
    is the pod template revision of the next pod.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None
    pod_uid: str | None
    revision: str


class ControllerTerm(_Stored, frozen=True, kw_only=True):
    """The term of one controller in the metadata log: its random id, and the offset of its first
    record."""

    id: str
    first_offset: MetadataOffset


class DismissedCopy(_Stored, frozen=True, kw_only=True):
    """A broker's copy of the metadata that a person gave up: it holds records that are not in this
    log. `applied_offset` and `nonce` are its end. Its broker drops it and begins with an empty
    one."""

    broker_id: BrokerId
    applied_offset: MetadataOffset
    nonce: str


RESTORE_SHOWN_MS = 7 * 86_400_000
"""For how many milliseconds a restore of the metadata log is shown, and missing objects wait for a
person."""
CLOCKS_APART_MS = 3_600_000


class HistoryRestored(_Stored, frozen=True, kw_only=True):
    """The last restore of the metadata log. `at_ms`: the time; `end_offset`, `digest`,
    `from_brokers`: the history and the brokers that held it, the last two empty if the restoring
    term ended at once; `from_backup`: a backup held it; `confirmed`: a person confirmed it;
    `dismissed`: the copies of other histories that were given up with it."""

    at_ms: int
    end_offset: MetadataOffset
    digest: str = ""
    from_brokers: tuple[BrokerId, ...] = ()
    from_backup: bool = False
    confirmed: bool = False
    dismissed: tuple[DismissedCopy, ...] = ()

    def may_explain(self, since_ms: int) -> bool:
        """Return True if an object that is missing since `since_ms` may be one that the API
        server's storage lost, because its metadata were restored: the log came back with what the
        object declares, the object did not. Clocks may differ by up to `CLOCKS_APART_MS`."""
        return self.at_ms - CLOCKS_APART_MS < since_ms < self.at_ms + RESTORE_SHOWN_MS


class ClusterImage(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's committed state after `next_offset` records of the metadata log.

    `name` is empty until the cluster is declared. `metadata_version` is the finalised one: the log
    holds no newer record (`record_versions`). `terms` are the newest controller terms, oldest first
    (`controller_terms`). `restored` is the last restore of the log. `dismissed` are the copies of
    the metadata that brokers still have to drop. `members` are the broker ids that the cluster is
    meant to have, `newcomers` those members that were added later and have not joined yet, and
    `leaving` the brokers that are being emptied. `topic_ids` maps names to ids. `spellings` maps
    each name with '_' for every '.' to the topics' names that it stands for; names without both are
    left out.

    `hosted` maps each broker to the partitions with a replica on it. `preferred` counts partitions
    by preferred leader; new topics begin at the broker with the fewest. `min_isr_behind` counts per
    topic the partitions with a min ISR other than the topic's. So none of these needs a scan.

    `removals_ms` holds the instants (API server's clock, milliseconds) at which topics were removed
    in the last hour because their objects were gone. `reassignments` and `rebalances` have a row
    for each object, by its uid, until the object is gone; `rebalance_rests` has the moves that are
    not done. `grants` are the restarts under way. `proven_revision` is the pod template revision
    with which the last restarted broker came back; any other revision is tried on one broker first.
    `released` maps the uid of each volume claim that may be deleted to its broker.

    `security` holds credentials, users and ACLs. `quotas` holds the clients' quotas. `listeners`
    are those of clients; if empty, clients use the one in the brokers' own configuration. `inside`
    holds the TLS mode and the certificates of connections among brokers and controllers. While
    `hibernated` is True, no partition gets a leader.
    """

    cluster_id: UUID
    name: str = ""
    metadata_version: int = 1
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    terms: tuple[ControllerTerm, ...] = ()
    restored: HistoryRestored | None = None
    dismissed: tuple[DismissedCopy, ...] = ()
    next_offset: MetadataOffset = MetadataOffset(0)
    members: tuple[BrokerId, ...] = ()
    brokers: Map[BrokerId, Broker] = Map()
    topics: Map[TopicId, Topic] = Map()
    topic_ids: Map[str, TopicId] = Map()
    spellings: Map[str, tuple[str, ...]] = Map()
    partitions: Map[PartitionKey, Partition] = Map()
    hosted: Map[BrokerId, Map[PartitionKey, None]] = Map()
    preferred: Map[BrokerId, int] = Map()
    min_isr_behind: Map[TopicId, int] = Map()
    next_producer_id: int = 0
    removals_ms: tuple[int, ...] = ()
    reassignments: Map[str, Reassignment] = Map()
    movement_bytes_per_second: int = MOVEMENT_BYTES_PER_SECOND
    rebalances: Map[str, Rebalance] = Map()
    rebalance_rests: Map[str, RebalanceRest] = Map()
    grants: Map[BrokerId, Grant] = Map()
    proven_revision: str = ""
    leaving: tuple[BrokerId, ...] = ()
    newcomers: tuple[BrokerId, ...] = ()
    released: Map[str, BrokerId] = Map()
    security: SecurityState = NOTHING
    quotas: ClientQuotas = NO_QUOTAS
    listeners: tuple[Listener, ...] = ()
    inside: Inside = NOTHING_INSIDE
    hibernated: bool = False

    @property
    def term_id(self) -> str:
        """Return the id of the last controller term, or an empty string if `terms` is empty."""
        return self.terms[-1].id if self.terms else ""

    def topic_of(self, holder: TopicObject) -> Topic | None:
        """Return the topic that is declared by the object `holder` (compared with its uid), or
        None."""
        return next((topic for topic in self.topics.values() if topic.object == holder), None)

    def partition_named(self, topic: str, index: int) -> Partition | None:
        """Return the partition of the topic with this name, or None if it does not exist."""
        topic_id = self.topic_ids.get(topic)
        return None if topic_id is None else self.partitions.get(PartitionKey(topic_id, index))

    def name_of(self, partition: Partition) -> str:
        """Return `topic-index`, as messages name the partition."""
        return f"{self.topics[partition.topic_id].name}-{partition.index}"

    def restart_granted(self, broker_id: BrokerId) -> bool:
        """Return True if a grant covers the broker's present pod, which will therefore be deleted.
        Such a broker is not added to any ISR."""
        grant, broker = self.grants.get(broker_id), self.brokers.get(broker_id)
        if grant is None or broker is None:
            return False
        return broker.pod_uid == grant.pod_uid and (
            broker.pod_uid is not None or broker.broker_epoch == grant.broker_epoch
        )

    def takes_replicas(self, broker_id: BrokerId) -> bool:
        """Return True if new replicas may be placed on the broker: it is registered, not being
        emptied, and a member, or no members are committed yet."""
        stays = not self.members or broker_id in self.members
        return stays and broker_id in self.brokers and broker_id not in self.leaving
