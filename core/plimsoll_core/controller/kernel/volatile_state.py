"""Volatile state: the controller's knowledge that is not logged, and is lost on failover.

`unsee` corrects it when queued records cannot be committed (the log is full, or a batch was
refused) and the term goes on. Volatile state was updated when these records were decided: without
the correction a leadership that was about to return would stay away for the rest of the term, and
the controller would look for a partition that was never created. Brokers repeat their reports;
decisions over several turns are either requested again or completed by ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import (
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicRemoved,
)
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, TopicId
from plimsoll_core.messages.brokers import BrokerFigures


@dataclass(slots=True, kw_only=True)
class Contact:
    """The report of a broker's current registration, and its time (`last_ms`).

    `metadata_versions`: the oldest and the newest metadata version that the broker understands,
    None if it has not reported them in this term. `unknown_metadata`: why it applies no more
    records, empty if it does. `groups`: the number of groups that it coordinates. `figures`: its
    reports on disks, memory and load.
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
    """The report of one replica of a leaderless partition about its log, from one registration of
    its broker (`broker_epoch`) and for one leader epoch of the partition."""

    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    last_written_epoch: int
    log_end_offset: int

    @property
    def extent(self) -> tuple[int, int]:
        """Return the sort key by which logs are compared: the last written leader epoch first, then
        the log end offset."""
        return self.last_written_epoch, self.log_end_offset


TRAFFIC_SMOOTHED_MS = 600_000
"""The time in milliseconds over which a partition's rates are smoothed: a new measurement counts by
its share of this time."""


class PartitionTraffic(NamedTuple):
    """The traffic of a partition with clients, from its leader's reports. `leader`: the id and the
    broker epoch of the broker that reported last. `bytes_in`, `bytes_out`: its counters, at `at_ms`
    (monotonic). `rates`: bytes in and bytes out per second, None before the second report."""

    at_ms: int
    leader: tuple[BrokerId, BrokerEpoch]
    bytes_in: int
    bytes_out: int
    rates: tuple[float, float] | None = None

    def then(self, later: PartitionTraffic) -> PartitionTraffic:
        """Return the traffic after a later report. Rates of an earlier leader are kept until the
        new one has reported twice."""
        elapsed_ms = later.at_ms - self.at_ms
        came, went = later.bytes_in - self.bytes_in, later.bytes_out - self.bytes_out
        if later.leader != self.leader or min(came, went) < 0:
            return later._replace(rates=self.rates)
        if elapsed_ms <= 0:
            return self
        measured = (came * 1000 / elapsed_ms, went * 1000 / elapsed_ms)
        if self.rates is None:
            return later._replace(rates=measured)
        share = min(1.0, elapsed_ms / TRAFFIC_SMOOTHED_MS)
        rate_in, rate_out = (
            old + (new - old) * share for old, new in zip(self.rates, measured, strict=True)
        )
        return later._replace(rates=(rate_in, rate_out))


@dataclass(slots=True, kw_only=True)
class VolatileState:
    """The state of one controller term that is not in the metadata log. It is lost on failover."""

    # A random key of this process, from which the ids of new topics are derived.  Without it a
    # client that knows a topic's name could compute its id, and so learn if the topic exists.
    topic_id_key: bytes = b""
    # The last contact of each broker's present registration, and what it reported.
    contacts: dict[BrokerId, Contact] = field(default_factory=dict)
    # For each broker in a controlled shutdown, the metadata offset that every active broker must
    # have applied before it may stop.
    shutdown_offsets: dict[BrokerId, MetadataOffset] = field(default_factory=dict)
    # The instants (ms) at which each broker failed, without a requested stop, in the flap window.
    flaps: dict[BrokerId, list[int]] = field(default_factory=dict)
    # Brokers of which a fence or registration is not complete, since it is committed in slices.
    # They are not elected meanwhile.
    leaving: set[BrokerId] = field(default_factory=set)
    # Brokers that were fenced because their session expired, and the instant (ms).
    expired: dict[BrokerId, int] = field(default_factory=dict)
    # The instant (ms) since which most brokers have been silent at once; None if they are not.
    mass_loss_since_ms: int | None = None
    # Until this instant (ms) this controller may fence most brokers at once: the former controller
    # saw them silent too, and handed over.  None if it did not.
    second_opinion_until_ms: int | None = None
    # Partitions without a leader, and the instant (ms) at which this term first saw that.
    leaderless: dict[PartitionKey, int] = field(default_factory=dict)
    # The brokers' reports of their logs of leaderless partitions.
    reports: dict[PartitionKey, dict[BrokerId, Report]] = field(default_factory=dict)
    # The instant (ms) at which a Proactive recovery stops waiting for more reports.
    overdue_ms: dict[PartitionKey, int] = field(default_factory=dict)
    # Brokers with an offline log of a partition, and the broker epoch in which each reported it.
    # The entry goes when the broker reports that log as online, or follows with it.
    failed: dict[PartitionKey, dict[BrokerId, BrokerEpoch]] = field(default_factory=dict)
    # Brokers that may not register: their volume is empty and may have held the last complete copy.
    emptied: set[BrokerId] = field(default_factory=set)
    # The broker with an empty volume that a user named as leader nevertheless, and the leader epoch
    # of the partition then.
    given_up: dict[PartitionKey, tuple[BrokerId, LeaderEpoch]] = field(default_factory=dict)
    # Partitions that are led, but not by their preferred leader.
    displaced: dict[PartitionKey, None] = field(default_factory=dict)
    # Those of `displaced` that the present round has not looked at, the last one first.
    displaced_left: list[PartitionKey] = field(default_factory=list)
    # Unfenced brokers with leaderless partitions that may be elected, and were not yet.
    electing: set[BrokerId] = field(default_factory=set)
    # The next instant (ms) at which preferred leaders are elected for `displaced`.
    leaders_due_ms: int | None = None
    # The next instant (ms) at which the replicas of internal topics are checked.
    internal_due_ms: int | None = None
    # Partitions of which the replicas are being moved.
    moving: dict[PartitionKey, None] = field(default_factory=dict)
    # For each moving partition, the bytes that its leader and each new replica hold.
    copies: dict[PartitionKey, dict[BrokerId, int]] = field(default_factory=dict)
    # The size of each partition in bytes, as its leader reports it from time to time.
    sizes: dict[PartitionKey, int] = field(default_factory=dict)
    # The traffic of each partition with clients, measured between its leader's reports.
    traffic: dict[PartitionKey, PartitionTraffic] = field(default_factory=dict)
    # For each partition, the followers that are behind and by how many records (None: unknown), as
    # its leader reports it with the size.
    behind: dict[PartitionKey, dict[BrokerId, int | None]] = field(default_factory=dict)
    # Inactive brokers, and the instant (ms) at which this term first saw each inactive.
    away_ms: dict[BrokerId, int] = field(default_factory=dict)

    def saw(self, partition: Partition, now_ms: int) -> None:
        """Record the partition's present state: whether it has a leader, whether that is the
        preferred one, and whether it is being moved."""
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
        """Record that the broker's log of the partition is online. Return True if the log was
        offline before."""
        failed = self.failed.get(key)
        if failed is None or failed.pop(broker_id, None) is None:
            return False
        if not failed:
            del self.failed[key]
        return True

    def forget_broker(self, broker_id: BrokerId) -> None:
        """Drop the contact, the recorded failures and the pending fence or registration of a broker
        that was unregistered."""
        self.contacts.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)
        self.flaps.pop(broker_id, None)
        self.expired.pop(broker_id, None)
        self.away_ms.pop(broker_id, None)
        self.leaving.discard(broker_id)
        self.emptied.discard(broker_id)
        self.electing.discard(broker_id)

    def forget(self, topic_id: TopicId, partitions: int) -> None:
        """Drop everything about the partitions of a deleted topic."""
        for index in range(partitions):
            self.forget_partition(PartitionKey(topic_id, index))

    def forget_partition(self, key: PartitionKey) -> None:
        """Drop everything about a partition that does not exist any more."""
        gone = (
            self.leaderless,
            self.reports,
            self.overdue_ms,
            self.failed,
            self.given_up,
            self.moving,
            self.copies,
            self.sizes,
            self.traffic,
            self.behind,
            self.displaced,
        )
        for memory in gone:
            memory.pop(key, None)


def unsee(soft: VolatileState, image: ClusterImage, records: Iterable[Record], now_ms: int) -> None:
    """Undo the effects of `records`, which were dropped, on the volatile state: set all partitions
    that they had changed back to their state in `image`, the committed image without these
    records."""
    for record in records:
        for key in _touched(image, record):
            partition = image.partitions.get(key)
            if partition is None:
                soft.forget_partition(key)
            else:
                soft.saw(partition, now_ms)


def _touched(image: ClusterImage, record: Record) -> Iterator[PartitionKey]:
    match record:
        case PartitionsChanged(topic_id=topic_id, ranges=ranges):
            indexes = (n for first, last in ranges for n in range(first, last + 1))
        case PartitionsCreated(topic_id=topic_id, first=first, replicas=rows):
            indexes = (first + n for n in range(len(rows)))
        case TopicRemoved(topic_id=topic_id) if topic_id in image.topics:
            indexes = (n for n in range(image.topics[topic_id].partitions))
        case _:
            return
    for index in indexes:
        yield PartitionKey(topic_id, index)
