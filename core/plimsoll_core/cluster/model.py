"""The committed state of a cluster, which every decision reads.

`ClusterImage` is a persistent value: `apply` makes the next one in time proportional to the change,
and an older one stays valid.  The controller, every broker and the simulator hold the same image,
replayed from the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from immutables import Map

from plimsoll_core.cluster.effective_min_isr import effective_min_isr
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
from plimsoll_core.security.state import NOTHING, Security

MOVEMENT_BYTES_PER_SECOND = 50 * 2**20
"""The default rate limit of a broker for replicas that are moved to it."""


class Recovery(Enum):
    """The state of a partition after an unclean election."""

    RECOVERED = "Recovered"
    RECOVERING = "Recovering"


UncleanRecovery = Literal["Balanced", "Proactive", "Manual"]
"""The recovery of a partition that no replica may lead cleanly.

Balanced: waits for all that may be complete.  Proactive: for those that answer soon.  Manual:
a human names a leader.
"""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a record or of a snapshot: a reader must know every field of it."""


class AnnouncedEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A listener's address, as its broker reports it; a newer broker may report more."""

    name: str
    host: str
    port: int


class Endpoint(AnnouncedEndpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A listener's address, as committed."""


class PartitionKey(NamedTuple):
    """A partition's name inside the image."""

    topic_id: TopicId
    index: int  # type: ignore[assignment]  # shadows tuple.index, which is not needed here


class Partition(_Stored, frozen=True, kw_only=True):
    """One partition, as committed.  Only `kernel.partition_change` makes new ones.

    `replicas` is ordered: the first is the preferred leader.  `leader` is None when no replica may
    lead.  `elr` holds replicas that left the ISR while it was below `min_isr` and are complete;
    `last_known_elr` those that may be complete but are no longer trusted (KIP-966).
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
        """Return True if there is no leader, and no replica that certainly holds every committed
        record."""
        return self.leader is None and not self.isr and not self.elr

    @property
    def moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """Return the replicas after the move, or the present ones if none is under way."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def settled(self) -> tuple[BrokerId, ...]:
        """Return the replicas without those that a move adds."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def effective_min_isr(self) -> int:
        """Return the protocol's m(p): never above the number of settled replicas, never below 1."""
        return effective_min_isr(self.min_isr, self.replicas, self.adding)


class TopicObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that declares a topic."""

    namespace: str
    name: str
    uid: str


class ReassignmentObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that asks for a reassignment."""

    namespace: str
    name: str
    uid: str


MovePhase = Literal["Running", "Completed", "Cancelled", "Failed"]
"""The last three are final."""


class MovedPartitions(_Stored, frozen=True, kw_only=True):
    """Partitions of one topic, as ranges [first, last], inclusive."""

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
    """A Reassignment object that was begun, as committed: it is never begun twice.

    How far it is says each partition by itself; `partitions` is empty once the phase is final.
    `rolled_back`: how many of them a cancel took back.
    `bytes_per_second` None: the cluster's limit.  `reason` and `message`: why it failed.  Times are
    the operator's wall clock.
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
        """Return the partitions that it moves, one by one."""
        for moved in self.partitions:
            yield from moved.named()


class RebalanceObject(_Stored, frozen=True, kw_only=True):
    """The Kubernetes object that asks for a rebalance."""

    namespace: str
    name: str
    uid: str


RebalanceMode = Literal["Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders"]
RebalancePhase = Literal["Beginning", "Running", "Completed", "Cancelled", "Failed"]
"""The phase of a Rebalance. Beginning: its plan is being committed, and nothing moves yet. The last
three are final."""


class RebalanceMove(_Stored, frozen=True, kw_only=True):
    """One partition's move in a plan. `number`: its position in the plan; `size`: bytes of one
    replica when the plan was made, if known; `wave`: the wave in which it was expected to begin."""

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
        """Return the bytes to copy, as far as known."""
        return len(self.adding) * (self.size or 0)


class Rebalance(_Stored, frozen=True, kw_only=True):
    """A Rebalance object with a plan that was begun, as committed: it is never begun twice.

    `total` and `moved` count partitions, `replicas` and `replicas_moved` what is copied; `dropped`
    partitions that were left alone, because they changed meanwhile.  `lowest_isr_margin`: the
    smallest len(isr) - m seen on the way.  Times are the operator's wall clock.
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
    """The rest of a Rebalance, by number; `active`: the partitions that it moves now."""

    moves: Map[int, RebalanceMove] = Map()
    active: Map[PartitionKey, int] = Map()


class PendingDeletion(_Stored, frozen=True, kw_only=True):
    """A topic without its object; its data is kept until then.  Times are the API server's."""

    since_ms: int
    until_ms: int


class Topic(_Stored, frozen=True, kw_only=True, omit_defaults=True):
    """A topic, as committed.

    `object` is None for a topic that a client made, or that was detached; `detached_from` then says
    which object may take it back.  `compacted`: its configs have once said that only the last
    record of each key stays: its logs may have gaps, for ever.  `owner`: the principal that its
    partitions are charged to; empty: none.
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
    """A registered broker, as committed.  `revision`: which pod template its process runs in."""

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
        """Return True if the broker is registered, not fenced and not shutting down."""
        return not self.fenced and not self.shutting_down


class Grant(_Stored, frozen=True, kw_only=True):
    """A broker may be restarted: its template written, its pod deleted, once, by the active
    controller.

    `broker_epoch`: the lifetime that ends, None when the broker never registered.  `pod_uid`: the
    pod that goes.  `revision`: what its successor runs.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None
    pod_uid: str | None
    revision: str


class ControllerTerm(_Stored, frozen=True, kw_only=True):
    """A controller's term in the log: its random id, and the offset of its first record."""

    id: str
    first_offset: MetadataOffset


class ClusterImage(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's committed state after `next_offset` records.

    `hosted` is an index over `partitions` by replica, so that what a broker's change touches is
    found without a scan; `preferred` counts them by first replica, so that a new topic begins where
    the fewest are; `min_isr_behind` counts, for each topic with a min ISR that has not reached all
    of its partitions, those that have another one.  `name` is empty until the cluster is declared.
    `reassignments` and `rebalances`: by the uids of their objects, until those are gone;
    `rebalance_rests`: of those that have not ended.  `grants`: restarts under way.
    `proven_revision`: what the last broker that came back from one runs; another revision is tried
    on one broker first.  `leaving`: brokers that are being emptied.  `newcomers`: members that were
    added to those that there were, until they have joined.  `released`: volumes that may be
    deleted, by the uids of their claims, with their brokers.  `metadata_version`: what the log may
    hold (`record_versions`).  `listeners`: where clients connect; none: to the one that the
    brokers' own configuration names.  `security`: credentials, users, rules.  `quotas`: what
    clients may use.  `inside`: whether brokers and controllers talk with TLS, and their
    certificates.  `terms`: the newest terms of controllers, oldest first (`controller_terms`).
    """

    cluster_id: UUID
    name: str = ""
    metadata_version: int = 1
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    terms: tuple[ControllerTerm, ...] = ()
    next_offset: MetadataOffset = MetadataOffset(0)
    members: tuple[BrokerId, ...] = ()
    brokers: Map[BrokerId, Broker] = Map()
    topics: Map[TopicId, Topic] = Map()
    topic_ids: Map[str, TopicId] = Map()
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
    security: Security = NOTHING
    quotas: ClientQuotas = NO_QUOTAS
    listeners: tuple[Listener, ...] = ()
    inside: Inside = NOTHING_INSIDE

    @property
    def term_id(self) -> str:
        """The id of the last controller term, empty if it has none."""
        return self.terms[-1].id if self.terms else ""

    def topic_of(self, holder: TopicObject) -> Topic | None:
        """Return the topic that this very object (by uid) declares."""
        return next((topic for topic in self.topics.values() if topic.object == holder), None)

    def restart_granted(self, broker_id: BrokerId) -> bool:
        """Return True if this very pod of a broker will be deleted: it joins no ISR any more."""
        grant, broker = self.grants.get(broker_id), self.brokers.get(broker_id)
        if grant is None or broker is None:
            return False
        return broker.pod_uid == grant.pod_uid and (
            broker.pod_uid is not None or broker.broker_epoch == grant.broker_epoch
        )

    def takes_replicas(self, broker_id: BrokerId) -> bool:
        """Return True if a registered broker may be given replicas that it does not have."""
        stays = not self.members or broker_id in self.members
        return stays and broker_id in self.brokers and broker_id not in self.leaving
