"""PartitionMeasures: totals over a broker's partitions for the metrics, computed in one pass, in
time slices.

Made for each scrape, before its answer is written: a broker may have ten thousand partitions, and a
scrape must not hold the event loop for all of them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from plimsoll_broker.background import in_slices, in_thread
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.disk import StorageError
from plimsoll_core.replica.isr_membership import lagging
from plimsoll_core.replica.leader import CommittedIsr, Leader, PendingShrink
from plimsoll_core.replica.replica_context import ReplicaContext

# Longer than an election takes while there is a controller.
LEADER_SILENT_MS = 15_000


@dataclass(slots=True)
class TopicMeasures:
    """The totals over one topic's partitions on this broker."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0
    log_size_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class PartitionMeasures:
    """The totals over a broker's partitions that the metrics show. `add` is called once for each
    partition. `failed`: offline replicas. `leaderless`: partitions here without a leader, or with
    one that has not answered for LEADER_SILENT_MS. `moving`: copies under a rate limit. `leaders`
    and the counts of ISRs: partitions led here. `isr_sizes`: the number of these by ISR size.
    `lag_ms`: as `lag_records`, in ms since the follower was last caught up. `topics`: by topic
    name."""

    replicas: int = 0
    failed: int = 0
    leaderless: int = 0
    moving: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    reduced_to_min_isr: int = 0
    log_size_bytes: int = 0
    log_records: int = 0
    log_segments: int = 0
    isr_sizes: Counter[int] = field(default_factory=Counter)
    lag_records: dict[int, int] = field(default_factory=dict)
    """The lag in records of each follower, in the partition in which that follower is furthest
    behind."""
    lag_ms: dict[int, int] = field(default_factory=dict)
    topics: dict[str, TopicMeasures] = field(default_factory=dict)
    room: tuple[int, int] | None = None
    """The free bytes of the volume, and its size in bytes; None if the volume did not answer."""

    def add(self, manager: ReplicaManager, hosted: Hosted, now_ms: int) -> None:
        """Add one partition to the totals. `now_ms`: the time on the monotonic clock."""
        replica, log = hosted.replica, hosted.log
        self.replicas += 1
        self.failed += replica.failed
        self.leaderless += (
            replica.partition.leader is None
            or manager.fetchers.silent_ms(hosted.key) >= LEADER_SILENT_MS
        )
        self.moving += manager.copy_buckets.limit(replica.partition) is not None
        size = log.size
        self.log_size_bytes += size
        self.log_records += log.log_end_offset - log.log_start_offset
        self.log_segments += len(log.segments)
        topic = self.topics.get(hosted.name)
        if topic is None:
            topic = self.topics[hosted.name] = TopicMeasures()
        topic.bytes_in += hosted.bytes_in
        topic.records_in += hosted.records_in
        topic.bytes_out += hosted.bytes_out
        topic.log_size_bytes += size
        if replica.leader is not None:
            self._add_led(manager.around, replica.leader, log.log_end_offset, now_ms)

    def _add_led(self, around: ReplicaContext, leader: Leader, end: int, now_ms: int) -> None:
        """Add the figures that only a leader has: the state of the ISR and the lag of each
        follower. `end`: the log end offset."""
        committed, partition = leader.isr.committed, leader.partition
        # A replica that is to leave lags, even if no controller can commit that.
        leaving = set(leader.isr.leaving) if isinstance(leader.isr, PendingShrink) else set()
        if not isinstance(leader.isr, CommittedIsr):
            # A replica that lags later is proposed only once this proposal is answered.
            leaving.update(lagging(leader, around, end, now_ms))
        margin = len(committed) - len(leaving) - leader.min_isr
        self.leaders += 1
        self.isr_sizes[len(committed)] += 1
        self.under_replicated += len(committed) < len(partition.replicas)
        self.under_min_isr += margin < 0
        if margin == 0:
            missing = leaving | (set(partition.settled) - set(committed))
            self.reduced_to_min_isr += bool(missing)
        for follower, progress in leader.followers.items():
            behind = end - (progress.log_end if progress.log_end is not None else 0)
            if behind > self.lag_records.get(follower, -1):
                self.lag_records[follower] = behind
            caught_up_ms = progress.caught_up_ms
            late_ms = 0 if behind <= 0 or caught_up_ms is None else now_ms - caught_up_ms
            if late_ms > self.lag_ms.get(follower, -1):
                self.lag_ms[follower] = late_ms


def measured(manager: ReplicaManager) -> PartitionMeasures:
    """Return the totals of all partitions, measured in one turn of the event loop."""
    found, now_ms = PartitionMeasures(), manager.now_ms()
    for hosted in manager:
        found.add(manager, hosted, now_ms)
    found.room = _room(manager)
    return found


async def measured_in_slices(manager: ReplicaManager) -> PartitionMeasures:
    """Return the totals of all partitions, measured in time slices. A partition dropped meanwhile
    may be counted, and a new one may not."""
    found, now_ms = PartitionMeasures(), manager.now_ms()
    async for hosted in in_slices(manager.hosts()):
        found.add(manager, hosted, now_ms)
    found.room = await in_thread(partial(_room, manager))  # a volume may be slow
    return found


def _room(manager: ReplicaManager) -> tuple[int, int] | None:
    """Return the free bytes and the size in bytes of the volume. Return None if they cannot be
    measured."""
    with suppress(StorageError):
        return manager.store.disk.room(manager.store.directory)
    return None
