"""ReplicaManager: keeps every partition that this broker hosts in the state that the newest
metadata state.

`node.broker` gives it images. Handlers look partitions up and report what arrived. It steps the
touched replicas once per turn of the event loop and has LogWriter carry out the effects.
`plimsoll_core.replica` decides about offsets and epochs. Source: the protocol's transitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from immutables import Map

from plimsoll_broker.background import in_slices
from plimsoll_broker.clocks import WallClock
from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.replication.copy_buckets import CopyBuckets
from plimsoll_broker.replication.disk_shares import DiskShares
from plimsoll_broker.replication.flush_schedule import Flusher
from plimsoll_broker.replication.hosted_partitions import (
    Hosted,
    HostedPartitions,
    MarkerTaker,
    PartitionWatcher,
    log_config,
    owner_of,
)
from plimsoll_broker.replication.log_start_saves import LogStartSaves
from plimsoll_broker.replication.log_writer import LogWriter, Stepping, Woken, until_when
from plimsoll_broker.replication.partition_opener import Opener
from plimsoll_broker.replication.proposal_queue import ProposalQueue, SeenShrinks
from plimsoll_broker.replication.reopening_claims import Reopening
from plimsoll_broker.replication.role_changes import Roles, StateChanges
from plimsoll_broker.replication.serving_lease import ServingLease
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_store import Found, LogStore
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.requests import IsrProposal, PartitionAnswer
from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_core.replica.replica import NOTHING, Replica
from plimsoll_core.replica.replica_context import ReplicaContext
from plimsoll_core.replica.role import FAILED

logger = logging.getLogger("plimsoll.replica_manager")


class Fetchers(Protocol):
    """The fetchers of this broker's followers: the part that the replica manager needs.
    `FetcherPool` implements it."""

    failed: asyncio.Future[None]
    """A future that completes when a fetcher dies, which is a bug."""

    def follow(self, hosted: Hosted, leader: BrokerId, limit: str | None = None) -> None:
        """Fetch the partition from `leader`. `limit`: the name of the rate limit of this copy, or
        None."""

    def unfollow(self, hosted: Hosted) -> None: ...
    def silent_ms(self, key: PartitionKey) -> int: ...
    def lost_leaders(self) -> Mapping[BrokerId, int]: ...

    def limits_changed(self) -> None:
        """Have fetchers under a rate limit read the rate again."""

    async def close(self) -> None:
        """Stop all fetchers."""


class ControllerEpochs(Protocol):
    """The part of the controller client that knows controller epochs. `highest_epoch`: the highest
    epoch of controllers that have answered. `heard_of`: called with a higher epoch that a peer
    named, so that the client searches for that controller."""

    @property
    def highest_epoch(self) -> ControllerEpoch: ...
    def heard_of(self, epoch: ControllerEpoch) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """The settings of a replica manager. `configs`: the broker's own configs, by Kafka's names.
    `stops_serving`: True if leaders refuse reads and acks=0/1 while another broker may lead
    (`onControllerLoss: StopServing`). `takes_pushes`: True if its followers take what their leaders
    push, from metadata version 5 on."""

    broker_id: BrokerId
    stops_serving: bool = False
    lag_time_max_ms: int = 30_000
    fetchers_per_leader: int = 1
    takes_pushes: bool = False
    configs: Mapping[str, str]


class ReplicaManager:
    """Keeps every partition that this broker hosts in the role that the newest metadata assign.
    Used from the event loop. `now_ms`: a monotonic clock in milliseconds. `fetchers`: makes the
    fetchers of this manager. `lease`: the leader lease that heartbeats extend; None if the broker
    sends none."""

    def __init__(
        self,
        settings: ReplicaSettings,
        store: LogStore,
        now_ms: Callable[[], int],
        controllers: ControllerEpochs,
        fetchers: Callable[[ReplicaManager], Fetchers],
        lease: LeaderLease | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.log_start_saves = LogStartSaves(store)
        self.now_ms = now_ms
        # One for the process: a time that one component writes is read by others later.
        self.wall_clock = WallClock(now_ms)
        self.around = ReplicaContext(settings.broker_id, settings.lag_time_max_ms)
        self.traffic = Traffic()
        self.copy_buckets = CopyBuckets(settings.broker_id, now_ms)
        self.shrinks = SeenShrinks(settings.broker_id)
        self.proposals = ProposalQueue(self.traffic, self.shrinks)
        # The partitions that had waiting requests at their last step. Thousands of others need no
        # look for expired ones.
        self.awaited: dict[Hosted, None] = {}
        self.driver = LogWriter(self)
        self.disk_shares = DiskShares(self)
        self.flusher = Flusher(self)
        self.opener = Opener(self.open_now, self._owner_of)
        self.reopening = Reopening(store, now_ms, self.opener.put_off)
        self.changes = StateChanges(settings.broker_id, now_ms)
        self.roles = Roles(settings.broker_id, self)
        self.serving = ServingLease(self, lease)
        self.may_serve = self.serving.may_serve
        # The newest metadata; None until `start`.
        self.image: ClusterImage | None = None
        # Partitions whose log could not be opened, with the error.
        self.broken: dict[PartitionKey, StorageError] = {}
        # Set when a log fails, cleared by the task that reports to the controller.
        self.report_due = asyncio.Event()
        self._controllers = controllers
        self._hosted = HostedPartitions()
        self.by_name = self._hosted.by_name
        self._stepping = Stepping(self._step)
        self.touch = self._stepping.touch
        self._opens_all = False
        # How other brokers are connected to; set before anything is followed, unless in plaintext.
        self.peers = InsidePeers(UUID(int=0))
        # Called for each partition of a topic at the end of a turn in which it was touched, by the
        # topic's name.
        self.watchers: dict[str, PartitionWatcher] = {}
        # By the name of an internal topic: it writes the markers of its partitions.
        self.marker_takers: dict[str, MarkerTaker] = {}
        self.fetchers = fetchers(self)

    @property
    def stops_serving(self) -> bool:
        """True if leaders refuse reads and acks=0/1 while another broker may lead."""
        return self.settings.stops_serving

    # --- the controller's epoch, as peers tell each other ---------------------------------------
    @property
    def controller_epoch(self) -> int:
        """The newest controller epoch that this broker knows."""
        return self._controllers.highest_epoch

    def heard_of_controller(self, epoch: int) -> None:
        """Report a controller epoch from a peer's request or reply to the controller client, which
        searches for that controller, if the epoch is higher than the known one. Only an answer of
        that controller proves the epoch: the peer may be wrong, or no broker at all."""
        if epoch > self._controllers.highest_epoch:
            self._controllers.heard_of(ControllerEpoch(epoch))

    # --- looking up -----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Hosted]:
        return iter(self._hosted.values())

    def __len__(self) -> int:
        return len(self._hosted)

    def hosts(self) -> list[Hosted]:
        """Return a list of the hosted partitions."""
        return list(self._hosted.values())

    def hosted(self, key: PartitionKey) -> Hosted | None:
        """Return the partition, or None if this broker does not host it."""
        return self._hosted.get(key)

    def by_key(self, topic_id: UUID, index: int) -> Hosted | None:
        return self._hosted.get(PartitionKey(topic_id, index))

    def topic_id(self, name: str) -> UUID | None:
        """Return the topic's id in the newest metadata, or None."""
        return None if self.image is None else self.image.topic_ids.get(name)

    def missing(self, topic_id: UUID | None, index: int) -> Code:
        """Return the error code for a partition that this broker does not host: KAFKA_STORAGE_ERROR
        if its log could not be opened, NOT_LEADER_OR_FOLLOWER if it is on another broker or not
        open yet, otherwise that it does not exist: UNKNOWN_TOPIC_ID without such a topic,
        UNKNOWN_TOPIC_OR_PARTITION without such an index. `topic_id`: None if no topic has the
        requested name (UNKNOWN_TOPIC_OR_PARTITION)."""
        if topic_id is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        image = self.image
        if image is None or topic_id not in image.topics:
            return Code.UNKNOWN_TOPIC_ID
        key = PartitionKey(topic_id, index)
        if key in self.broken:
            return Code.KAFKA_STORAGE_ERROR
        known = key in image.partitions
        return Code.NOT_LEADER_OR_FOLLOWER if known else Code.UNKNOWN_TOPIC_OR_PARTITION

    # --- metadata -------------------------------------------------------------------------------

    async def start(self, image: ClusterImage, found: list[Found]) -> None:
        """Apply the first metadata image: open the partitions that it assigns to this broker, and
        give each its role. Before that, set aside those directories in `found` that belong to other
        partitions or topics; a damaged one of an existing topic stays, and takes its replica
        offline."""
        hosted = image.hosted.get(self.settings.broker_id, Map())
        async for directory in in_slices(found):
            topic_id = directory.topic_id
            known = topic_id is not None and PartitionKey(topic_id, directory.index) in hosted
            if directory.damaged and directory.topic in image.topic_ids:
                continue  # `open_log` decides whether a new log may take its place
            if not known or image.topic_ids.get(directory.topic) != topic_id:
                moved = self.store.set_aside(directory.path, self.now_ms())
                logger.warning(
                    "this broker renamed the log directory %s to %s and deletes it after a day, "
                    "because its partition is not assigned to this broker; copy %s before then "
                    "if you need its records",
                    *(directory.path, moved.name, moved),
                )
        self._opens_all = True
        self.apply_image(None, image)
        await self.roles.finish()
        self._opens_all = False

    def apply_image(self, old: ClusterImage | None, new: ClusterImage) -> None:
        """Begin to apply a new metadata image; `old`: the previous one, None for the first.
        Look-ups of brokers and topics use the image at once. The effects on partitions may take
        several turns of the event loop (`Roles`)."""
        self.image = new
        self._hosted.named(new.topic_ids)
        self.shrinks.update(new)
        self.around.brokers = new.brokers
        limits_changed = self.copy_buckets.update(new)
        same = old is not None and old.partitions is new.partitions and old.topics is new.topics
        self.roles.update(everything=not same, limits_changed=limits_changed)
        if limits_changed:
            self.fetchers.limits_changed()

    def open(self, key: PartitionKey) -> bool:
        """Open the partition and return True, or have `Opener` open it in a later turn of the event
        loop and return False. During a start, before clients are served, open it at once."""
        if not self._opens_all:
            return self.opener.open(key)
        self.open_now(key)
        return True

    def _owner_of(self, key: PartitionKey) -> str:
        topic = None if self.image is None else self.image.topics.get(key.topic_id)
        return "" if topic is None else owner_of(topic)

    def open_now(self, key: PartitionKey) -> None:
        """Open a partition that was not open when it was assigned to this broker, unless it is open
        by now or no longer assigned to this broker."""
        if self.is_mine(key) and key not in self._hosted:
            self.take_role(key)

    def is_mine(self, key: PartitionKey) -> bool:
        """Return True if the newest image assigns the partition to this broker."""
        image = self.image
        return image is not None and key in image.hosted.get(self.settings.broker_id, Map())

    def configure(self, hosted: Hosted) -> None:
        """Apply the configs of the partition's topic in the newest image. Do nothing if they are
        the same as before or the topic is deleted."""
        assert self.image is not None
        topic = self.image.topics.get(hosted.key.topic_id)
        if topic is not None and hosted.configure(topic, self.settings.configs):
            self.touch(hosted)

    def take_role(self, key: PartitionKey) -> None:
        """Open the partition if it is not open, and apply its state in the newest image: leader,
        ISR and epochs. If its log cannot be opened, record the error in `broken`. The image must
        assign the partition to this broker."""
        assert self.image is not None
        self._apply(self.image, self.image.partitions[key])

    def _apply(self, image: ClusterImage, partition: Partition) -> None:
        hosted = self._hosted.get(partition.key) or self._open(image, partition)
        if hosted is None:
            return
        if hosted.applied is not None:
            self.shrinks.applied(hosted.applied, partition)
        hosted.applied = partition
        hosted.replica.apply(partition, self.now_ms())
        self.driver.role_taken(hosted)
        self.touch(hosted)
        self._follow(hosted)
        self.changes.done(partition.key)

    def _follow(self, hosted: Hosted) -> None:
        """Start, restart or stop fetching, as the partition's state and the limit of its copy
        require. Do nothing if the leader, the leader epoch and the limit are the same as before:
        only the ISR has changed then."""
        leader, partition = hosted.replica.fetches_from, hosted.replica.partition
        limit = self.copy_buckets.limit(partition)
        name = None if limit is None else limit.name
        paused = limit is not None and limit.bytes_per_second == 0
        source = None if leader is None or paused else (leader, partition.leader_epoch, name)
        if source == hosted.source:
            return
        hosted.source = source
        if leader is None or paused:
            self.fetchers.unfollow(hosted)
        else:
            self.fetchers.follow(hosted, leader, name)

    def limit_again(self, hosted: Hosted) -> None:
        """Apply a changed rate limit to the partition's copy, if it has one. A rate of 0 (a paused
        move) stops the copy."""
        if self.copy_buckets.limit(hosted.replica.partition) is not None:
            self._follow(hosted)

    def _open(self, image: ClusterImage, partition: Partition) -> Hosted | None:
        """Open the partition's log and host the partition. Return None if the log cannot be opened,
        which is recorded in `broken` and not tried again here, or if the directory is used by a log
        that is being reopened."""
        if partition.key in self.broken:
            return None
        topic = image.topics[partition.topic_id]
        if self.reopening.must_wait(partition.key, topic.name):
            return None
        config = log_config(topic, self.settings.configs)
        try:
            log = self.store.open_log(topic.name, topic.id, partition.index, config, self.now_ms())
        except StorageError as error:
            logger.error(
                "%s-%d: this broker cannot open the log of its replica, which is offline until "
                "%s; replicas in sync on other brokers serve the partition; if there are none, it "
                "has no leader: %s",
                *(topic.name, partition.index, until_when(error.fault), error),
            )
            self.broken[partition.key] = error
            return None
        # After a crash more may be committed than the checkpoint says.
        known = log.log_end_offset
        if self.store.clean_epoch is not None:
            # A leader that did not know what was committed may have lowered the checkpoint, but not
            # what the cleaner has used.
            used = self.store.superseding_ends.get((log.topic, log.index)) or 0
            known = min(used, log.log_end_offset)
        return self._host(topic, partition, log, known)

    def _host(self, topic: Topic, partition: Partition, log: Log, committed: int) -> Hosted:
        """Create the replica of this log, add the partition to the hosted ones, and return it.
        `committed`: records below this offset may have been committed, although the checkpointed
        high watermark may be lower."""
        replica = Replica(partition, log, self.store.high_watermark(log), self.around)
        replica.compacted_copy.committed(committed)
        hosted = Hosted(topic, partition, log, replica)
        hosted.configure(topic, self.settings.configs)
        self._hosted[partition.key] = hosted
        return hosted

    def drop(self, hosted: Hosted) -> None:
        """Remove the partition from the hosted ones: stop fetching, answer its waiting requests
        with an error, and delete its log (its directory is renamed now and removed later)."""
        gone = self.image is None or hosted.key.topic_id not in self.image.topics
        self.fetchers.unfollow(hosted)
        del self._hosted[hosted.key]
        self.shrinks.dropped(hosted.replica.partition)
        self.broken.pop(hosted.key, None)
        hosted.replica.close(
            Code.UNKNOWN_TOPIC_OR_PARTITION if gone else Code.NOT_LEADER_OR_FOLLOWER
        )
        self.touch(hosted)
        self.reopening.drop(hosted.log)
        self.changes.closed(hosted.replica.partition, hosted.name, self.image)

    # --- stepping -------------------------------------------------------------------------------

    def _step(self, hosted: Hosted, woken: Woken) -> None:
        """Process what has happened to the partition since its last step: request a flush, answer
        its Produce requests, collect the Fetch requests to wake in `woken`, and queue its ISR
        proposal."""
        if hosted.replica.role is FAILED:
            self.report_due.set()
        if hosted.log.countable_end < hosted.log.log_end_offset:
            self.flusher.want(hosted)
        ready = hosted.replica.take_ready()
        if hosted.replica.waiters:
            self.awaited[hosted] = None
        watcher = self.watchers.get(hosted.name)
        if watcher is not None:
            watcher.stepped(hosted)
        if ready is not NOTHING:
            self.driver.carry_out(hosted, ready, woken)
            if ready.proposal is not None:
                self.proposals.add(hosted, ready.proposal)

    def altered(
        self, hosted: Hosted, proposal: IsrProposal, answer: PartitionAnswer | None
    ) -> bool:
        """Apply the controller's answer to an ISR proposal; `answer` is None if no answer came. If
        the replica wants the proposal sent again, queue it and return True; otherwise return
        False."""
        again = hosted.replica.altered(proposal, answer, self.now_ms())
        self.touch(hosted)
        if again:
            self.proposals.put_back(hosted, proposal)
        return again

    # --- time -----------------------------------------------------------------------------------

    def check_lag(self, hosted: Hosted) -> None:
        """If this broker leads the partition, propose to remove followers from the ISR that have
        lagged for longer than replica.lag.time.max.ms. The lag chore calls this every half of that
        time."""
        if hosted.replica.leader is not None:
            hosted.replica.check_lag(self.now_ms())
            self.touch(hosted)

    def expire_waiters(self, hosted: Hosted) -> None:
        """Answer those of the partition's waiting requests for which the time is over, at the end
        of this turn of the event loop. If none waits, take the partition out of `awaited`."""
        if hosted.replica.waiters:
            hosted.replica.expire_waiters(self.now_ms())
            self.touch(hosted)
        else:
            self.awaited.pop(hosted, None)

    # --- disks ----------------------------------------------------------------------------------

    def is_here(self, hosted: Hosted) -> bool:
        """Return True if this object is the hosted one for its partition and its log is not being
        reopened. If False, the caller must not use the log's directory: after a drop the
        directory's name may be another topic's, and during a reopening a thread uses it."""
        return self._hosted.get(hosted.key) is hosted and hosted.log not in self.reopening

    def open_again(self, key: PartitionKey, log: Log | None) -> None:
        """Put a partition back online after its disk has room, or the process descriptors, again.
        `log`: the reopened log, which replaces the failed one; None if the log could not be opened
        before, so that it is opened now. Do nothing if the partition is no longer assigned here:
        `Roles` drops it."""
        image = self.image
        if image is None or not self.is_mine(key):
            return
        self.broken.pop(key, None)
        self.traffic.room_again += 1
        old = self._hosted.take(key)
        if old is not None and log is not None:
            self.fetchers.unfollow(old)
            self.store.reopened(old.log, log)
            # It may be in the ELR: only what was never committed may be cut.
            known = old.replica.compacted_copy.superseded_below
            self._host(image.topics[key.topic_id], image.partitions[key], log, known)
        self._apply(image, image.partitions[key])

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Return the high watermarks of all partitions by topic name and index, except those with a
        log that is being reopened."""
        return {
            (hosted.name, hosted.key.index): hosted.replica.high_watermark
            for hosted in self._hosted.values()
            if hosted.log not in self.reopening
        }

    def close(self) -> None:
        """Stop serving: waiting requests are answered with NOT_LEADER_OR_FOLLOWER."""
        for hosted in self._hosted.values():
            hosted.replica.close(Code.NOT_LEADER_OR_FOLLOWER)
            self.touch(hosted)
        self._stepping.finish()
