"""Volatile state: what the controller knows and does not log; lost on failover."""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, TopicId
from plimsoll_core.messages.broker_figures import BrokerFigures


@dataclass(slots=True, kw_only=True)
class Contact:
    """The last contact of a broker's current registration, and what it reported.

    `metadata_versions`: the oldest and the newest that it understands, None if it has not said so
    in this term.  `unknown_metadata`: why it applies no more.  `groups`: how many it coordinates.
    `figures`: for people only.
    """

    broker_epoch: BrokerEpoch
    last_ms: int
    applied_offset: MetadataOffset | None = None
    metadata_versions: tuple[int, int] | None = None
    release: str = ""
    unknown_metadata: str = ""
    groups: int | None = None
    figures: BrokerFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One replica's report of how complete its log is, from one registration of its broker."""

    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    last_written_epoch: int
    log_end_offset: int

    @property
    def extent(self) -> tuple[int, int]:
        """Return the sort key of completeness: a later leader epoch outweighs any length."""
        return self.last_written_epoch, self.log_end_offset


@dataclass(slots=True, kw_only=True)
class VolatileState:
    """Controller state that is not logged and is lost on failover: one term's."""

    # Random, of this process: ids of new topics follow from it, too.  A
    # client that knows only a topic's name could otherwise compute its id, and learn if it exists.
    topic_id_key: bytes = b""
    # When each broker's registered lifetime was last heard of, and what it said of itself.
    contacts: dict[BrokerId, Contact] = field(default_factory=dict)
    # The offset that every active broker must have applied before a broker that shuts down may go.
    shutdown_offsets: dict[BrokerId, MetadataOffset] = field(default_factory=dict)
    # When a broker was fenced without having asked for it, within the flap window.
    flaps: dict[BrokerId, list[int]] = field(default_factory=dict)
    # Brokers with a fence or registration under way in slices.  They are not electable meanwhile.
    leaving: set[BrokerId] = field(default_factory=set)
    # Brokers that were fenced for silence, and when.
    expired: dict[BrokerId, int] = field(default_factory=dict)
    # Since when most brokers are silent at once; None while they are not.
    mass_loss_since_ms: int | None = None
    # The controller before this one saw that too and stepped aside: this one may fence until then.
    second_opinion_until_ms: int | None = None
    # Partitions without a leader, and since when this term knows it.
    leaderless: dict[PartitionKey, int] = field(default_factory=dict)
    # Reports of the logs of leaderless partitions.
    reports: dict[PartitionKey, dict[BrokerId, Report]] = field(default_factory=dict)
    # When a Proactive recovery stops waiting for more reports.
    overdue_ms: dict[PartitionKey, int] = field(default_factory=dict)
    # Replicas with an offline log, by the broker epoch that reported it; until it
    # reports that log again or follows with it.
    failed: dict[PartitionKey, dict[BrokerId, BrokerEpoch]] = field(default_factory=dict)
    # Brokers that were refused for an empty volume that may stand for the last copy.
    emptied: set[BrokerId] = field(default_factory=set)
    # The broker with an empty volume that a person named as leader all the same, and when (epoch).
    given_up: dict[PartitionKey, tuple[BrokerId, LeaderEpoch]] = field(default_factory=dict)
    # Partitions that are led, but not by their preferred leader.
    displaced: dict[PartitionKey, None] = field(default_factory=dict)
    # When those leaderships go back.
    leaders_due_ms: int | None = None
    # When it is looked again whether the brokers' own topics may have more replicas.
    internal_due_ms: int | None = None
    # Partitions that move.
    moving: dict[PartitionKey, None] = field(default_factory=dict)
    # Bytes that the leader and the new replicas of a moving partition hold.
    copies: dict[PartitionKey, dict[BrokerId, int]] = field(default_factory=dict)
    # Bytes that leaders hold of their partitions; reported slowly.
    sizes: dict[PartitionKey, int] = field(default_factory=dict)
    # By how many records followers are behind, told with the size; without those that are not.
    behind: dict[PartitionKey, dict[BrokerId, int | None]] = field(default_factory=dict)
    # Since when this term knows that a broker does not take part.
    away_ms: dict[BrokerId, int] = field(default_factory=dict)

    def saw(self, partition: Partition, now_ms: int) -> None:
        """Note a partition's present leader, and whether the partition moves."""
        key, leader = partition.key, partition.leader
        if partition.moving:
            self.moving[key] = None
        else:
            self.moving.pop(key, None)
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
        """Note that a broker's log of the partition is online. Return True if it was offline
        before."""
        failed = self.failed.get(key)
        if failed is None or failed.pop(broker_id, None) is None:
            return False
        if not failed:
            del self.failed[key]
        return True

    def forget_broker(self, broker_id: BrokerId) -> None:
        """Forget an unregistered broker."""
        self.contacts.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)
        self.flaps.pop(broker_id, None)
        self.expired.pop(broker_id, None)
        self.away_ms.pop(broker_id, None)
        self.leaving.discard(broker_id)
        self.emptied.discard(broker_id)

    def forget(self, topic_id: TopicId, partitions: int) -> None:
        """Forget a deleted topic."""
        for index in range(partitions):
            self.forget_partition(PartitionKey(topic_id, index))

    def forget_partition(self, key: PartitionKey) -> None:
        """Forget a partition that does not exist."""
        gone = (
            self.leaderless,
            self.reports,
            self.overdue_ms,
            self.failed,
            self.given_up,
            self.moving,
            self.copies,
            self.sizes,
            self.behind,
            self.displaced,
        )
        for memory in gone:
            memory.pop(key, None)
