"""One decision in the making: what it may read, and the records it has so far.

Every deciding function takes a `Turn` and a request and returns an answer or a refusal.
`Turn.image` always includes the records added so far: later steps of a decision see earlier ones.
`Soft` is what a controller knows without having committed it; all of it is lost with its term.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from plimsoll_core.cluster.image import append
from plimsoll_core.cluster.model import (
    Broker,
    ClusterImage,
    Partition,
    PartitionKey,
    UncleanRecovery,
)
from plimsoll_core.cluster.records import Record, TopicRemoved
from plimsoll_core.controller.kernel.availability import ExposedTopics
from plimsoll_core.controller.kernel.partition_change import Wish, as_records, change
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, TopicId
from plimsoll_core.messages.requests import Answer, Request
from plimsoll_core.planner.formula import RackPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the LogCluster's spec and the chart decide about deciding."""

    session_timeout_ms: int = 6_000
    slice_partitions_max: int = 1_000
    flap_window_ms: int = 600_000
    flap_wait_ms_max: int = 60_000
    default_partitions: int = 6
    default_replication_factor: int = 3
    default_min_isr: int = 2
    partitions_per_topic_max: int = 10_000
    partitions_per_namespace_max: int | None = None  # of declared topics; None: any number
    client_created_topics: bool = True
    producer_id_block: int = 1_000
    rack_policy: RackPolicy = "Preferred"
    unclean_recovery: UncleanRecovery = "Balanced"
    unclean_wait_ms: int = 5_000
    preferred_leader_interval_ms: int = 30_000
    target_lost_ms: int = 120_000
    exposed_topics: ExposedTopics = "Interrupt"
    maintenance_suspended: bool = False
    metadata_version: int | None = None
    """Where to wait, as the owner pinned it; None: at the newest that everybody understands."""


@dataclass(slots=True, kw_only=True)
class Contact:
    """When a broker's current lifetime was last heard of, and how much metadata it had applied;
    which metadata versions it understands, None: it has not said so in this term, its release, and
    why it applies no more.
    """

    broker_epoch: BrokerEpoch
    last_ms: int
    applied_offset: MetadataOffset | None = None
    metadata_versions: tuple[int, int] | None = None
    release: str = ""
    unknown_metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How complete a replica's log is, as told by one lifetime of its broker."""

    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    last_written_epoch: int
    log_end_offset: int

    @property
    def extent(self) -> tuple[int, int]:
        """How complete: what was written in a later term outweighs any length."""
        return self.last_written_epoch, self.log_end_offset


@dataclass(slots=True, kw_only=True)
class Soft:
    """One term's uncommitted knowledge; keys are broker ids.

    `shutdown_offsets`: what everybody must have applied before a leaving broker may go.
    `flaps`: when a broker fell out without being asked to.  `leaving`: brokers whose fence or
    registration is under way in slices; they are not electable meanwhile.  `expired`: who was
    fenced for silence, and when.  `mass_loss_since_ms`: since when most brokers are silent.
    `second_opinion_until_ms`: the controller before this one saw them silent too and stepped
    aside, so this one may judge, until then.  `leaderless`: since when this term has known that
    nobody leads a partition.  `reports`: what replicas of such partitions told of their logs.
    `overdue_ms`: when a proactive recovery stops waiting for more of them.  `failed`: in which
    lifetime a broker said that its disk took its log out of service, until it tells of that log
    again or follows with it: there is room again.  `emptied`: who was refused
    for an empty volume that may stand for the last copy.  `given_up`: which of these a human named
    all the same, in which term.  `displaced`: who is led, but not by its preferred replica, and
    `leaders_due_ms`: when these leaderships go back.
    `copies`: how many bytes of a partition that moves its leader and its new replicas hold.
    `sizes`: how many bytes leaders hold of their partitions, told slowly.
    `away_ms`: since when this term has known that a broker does not take part.
    """

    contacts: dict[BrokerId, Contact] = field(default_factory=dict)
    shutdown_offsets: dict[BrokerId, MetadataOffset] = field(default_factory=dict)
    flaps: dict[BrokerId, list[int]] = field(default_factory=dict)
    leaving: set[BrokerId] = field(default_factory=set)
    expired: dict[BrokerId, int] = field(default_factory=dict)
    mass_loss_since_ms: int | None = None
    second_opinion_until_ms: int | None = None
    leaderless: dict[PartitionKey, int] = field(default_factory=dict)
    reports: dict[PartitionKey, dict[BrokerId, Report]] = field(default_factory=dict)
    overdue_ms: dict[PartitionKey, int] = field(default_factory=dict)
    failed: dict[PartitionKey, dict[BrokerId, BrokerEpoch]] = field(default_factory=dict)
    emptied: set[BrokerId] = field(default_factory=set)
    given_up: dict[PartitionKey, tuple[BrokerId, LeaderEpoch]] = field(default_factory=dict)
    displaced: dict[PartitionKey, None] = field(default_factory=dict)
    leaders_due_ms: int | None = None
    copies: dict[PartitionKey, dict[BrokerId, int]] = field(default_factory=dict)
    sizes: dict[PartitionKey, int] = field(default_factory=dict)
    away_ms: dict[BrokerId, int] = field(default_factory=dict)

    def saw(self, partition: Partition, now_ms: int) -> None:
        """A partition as it is now: led, by whom, or not; moving, or not."""
        key, leader = partition.key, partition.leader
        if not partition.moving:
            self.copies.pop(key, None)
        if leader is None:
            self.leaderless.setdefault(key, now_ms)
        else:
            for memory in (self.leaderless, self.reports, self.overdue_ms, self.given_up):
                memory.pop(key, None)
        if leader is None or leader == partition.replicas[0]:
            self.displaced.pop(key, None)
        else:
            self.displaced[key] = None

    def in_service(self, key: PartitionKey, broker_id: BrokerId) -> bool:
        """A broker's log of it proves to be in service.  True: it was out of service until now."""
        failed = self.failed.get(key)
        if failed is None or failed.pop(broker_id, None) is None:
            return False
        if not failed:
            del self.failed[key]
        return True

    def forget_broker(self, broker_id: BrokerId) -> None:
        """The broker is unregistered."""
        self.contacts.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)
        self.flaps.pop(broker_id, None)
        self.expired.pop(broker_id, None)
        self.away_ms.pop(broker_id, None)
        self.leaving.discard(broker_id)
        self.emptied.discard(broker_id)

    def forget(self, topic_id: TopicId, partitions: int) -> None:
        """The topic is gone."""
        gone = (
            self.leaderless,
            self.reports,
            self.overdue_ms,
            self.failed,
            self.given_up,
            self.copies,
            self.sizes,
            self.displaced,
        )
        for index in range(partitions):
            for memory in gone:
                memory.pop(PartitionKey(topic_id, index), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to commit and what to answer once it is committed.

    `image`: with `records` applied, so that nobody needs to apply them twice.
    `again`: the decision was too long for one turn; submit this request again, after whatever else
    waits, and give *its* answer to the sender (`answer` is void).  `hand_over`: most brokers fell
    silent at once, so this controller may be the one that is cut off: let another one lead.
    """

    records: tuple[Record, ...] = ()
    image: ClusterImage
    answer: Answer
    again: Request | None = None
    hand_over: bool = False


@dataclass(slots=True, kw_only=True)
class Turn:
    """What one decision reads and has decided."""

    image: ClusterImage
    soft: Soft
    now_ms: int
    settings: Settings
    records: list[Record] = field(default_factory=list)
    again: Request | None = None
    hand_over: bool = False

    def add(self, record: Record) -> None:
        if isinstance(record, TopicRemoved):
            topic = self.image.topics[record.topic_id]
            self.soft.forget(topic.id, topic.partitions)
        self.image = append(self.image, record)
        self.records.append(record)

    def change(
        self,
        wishes: Iterable[tuple[Partition, Wish]],
        cause: str,
        *,
        without: AbstractSet[BrokerId] = frozenset(),
    ) -> None:
        """Change partitions (each at most once a call); nobody in `without` may be elected."""

        def changed(p: Partition, wish: Wish) -> Partition:
            return change(p, wish, lambda b: b not in without and self.may_lead(b, p))

        pairs = [(p, changed(p, wish)) for p, wish in wishes]
        for record in as_records(pairs, cause):
            self.add(record)
        for _, new in pairs:
            self.soft.saw(new, self.now_ms)

    def acceptable(self, broker_id: BrokerId) -> bool:
        """Whether a broker may be in an ISR, and lead."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_id not in self.soft.leaving

    def may_lead(self, broker_id: BrokerId, partition: Partition) -> bool:
        """Acceptable, with a disk that takes this partition's log."""
        if not self.acceptable(broker_id):
            return False
        failed = self.soft.failed.get(partition.key) if self.soft.failed else None
        return not failed or failed.get(broker_id) != self.image.brokers[broker_id].broker_epoch

    def active(self) -> set[BrokerId]:
        return {broker_id for broker_id in self.image.brokers if self.acceptable(broker_id)}

    def receivers(self) -> set[BrokerId]:
        """The active brokers that may be given replicas."""
        return {broker_id for broker_id in self.active() if self.image.takes_replicas(broker_id)}

    def has_session(self, broker: Broker) -> bool:
        """Whether this very lifetime was heard of within the session timeout."""
        contact = self.soft.contacts.get(broker.id)
        return (
            contact is not None
            and contact.broker_epoch == broker.broker_epoch
            and self.now_ms - contact.last_ms < self.settings.session_timeout_ms
        )

    def hosted(self, broker_id: BrokerId) -> list[Partition]:
        """The partitions with a replica on a broker."""
        keys = self.image.hosted.get(broker_id)
        return [] if keys is None else [self.image.partitions[key] for key in keys]
