"""Replicas over logs in memory, and what their shells would do for them."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from immutables import Map

from plimsoll_core.cluster.model import Broker, Partition
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from plimsoll_core.messages.requests import IsrProposal, PartitionAnswer
from plimsoll_core.replica import follower
from plimsoll_core.replica.commit import AckWaiter, countable_end
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_core.replica.replica import Replica
from plimsoll_core.replica.replica_context import ReplicaContext
from plimsoll_core.replica.replica_values import Append, EndOffset, FollowerFetch

TOPIC = UUID(int=7)
LAG_MS = 30_000
LIKE_MINE = -2
"""Of a follower's last record: its term, as the leader has it."""


class Batch(NamedTuple):
    """A header; `length` counts records instead of bytes."""

    base_offset: int
    leader_epoch: int
    last_offset_delta: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    max_timestamp: int = 0
    length: int = 1
    attributes: int = 0
    count: int = 1

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def a_batch(records: int = 1, producer_id: int = -1, epoch: int = 0, sequence: int = 0) -> Batch:
    """As a client sends it."""
    if producer_id < 0:
        return Batch(0, -1, records - 1)
    return Batch(0, -1, records - 1, producer_id, epoch, sequence)


class MemoryLog:
    """What `storage.Log` does, on a list."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_end = 0
        self.flush_messages: int | None = None
        self.epochs = EpochCache()
        self.producers = ProducerStates()

    incomplete = superseding_lost = False
    """A log in memory loses nothing."""
    holes = False
    """Of a topic that was never compacted."""

    @property
    def countable_end(self) -> int:
        return countable_end(self.log_end_offset, self.flushed_end, self.flush_messages)

    def append(self, batch: Batch) -> None:
        start = self.log_start_offset
        if batch.base_offset < start:
            self.discard_to(batch.base_offset)
            self.log_start_offset = start
        assert batch.base_offset == self.log_end_offset
        self.batches.append(batch)
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.producers.update(batch)
        self.log_end_offset = batch.next_offset
        if batch.base_offset < start:
            self.epochs.truncate_from_start(start, self.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        self.batches = [b for b in self.batches if b.next_offset <= offset]
        end = self.batches[-1].next_offset if self.batches else self.log_start_offset
        self.log_end_offset = min(self.log_end_offset, end)
        self.epochs.truncate_from_end(offset)
        self.producers.clear()
        for batch in self.batches:
            self.producers.update(batch)

    def discard_to(self, offset: int) -> None:
        self.batches = []
        self.log_start_offset = self.log_end_offset = offset
        self.epochs.clear()
        self.producers.clear()

    def recomputed_epochs(self) -> list[tuple[int, int]]:
        """What the batches alone say."""
        cache = EpochCache()
        for batch in self.batches:
            cache.assign(batch.leader_epoch, batch.base_offset)
        return cache.entries


def a_partition(**fields: object) -> Partition:
    """On brokers 1, 2, 3, all in sync, led by 1, min ISR 2; give what matters."""
    values = {
        "topic_id": TOPIC,
        "index": 0,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
        "leader_epoch": LeaderEpoch(0),
        "partition_epoch": PartitionEpoch(0),
        "min_isr": 2,
    }
    return Partition(**{**values, **fields})  # type: ignore[arg-type]


def a_broker(broker_id: int, epoch: int, **fields: object) -> Broker:
    values = {
        "id": BrokerId(broker_id),
        "broker_epoch": BrokerEpoch(epoch),
        "incarnation_id": UUID(int=broker_id),
        "directory_ids": (),
        "endpoints": (),
        "rack": None,
        "pod_uid": None,
        "fenced": False,
        "shutting_down": False,
    }
    return Broker(**{**values, **fields})  # type: ignore[arg-type]


class Copy:
    """One broker's replica of the partition, with its driver played by hand."""

    def __init__(self, broker_id: int, partition: Partition | None = None) -> None:
        self.id = BrokerId(broker_id)
        self.around = ReplicaContext(self.id, LAG_MS)
        self.around.brokers = Map({b: a_broker(b, 10 * b) for b in (1, 2, 3)})
        self.log = MemoryLog()
        self.now_ms = 1_000_000
        self.replica = Replica(a_partition(), self.log, None, self.around)
        self.answers: list[tuple[object, Code]] = []
        self.proposals: list[IsrProposal] = []
        self.woken: list[object] = []
        self.hear(partition or a_partition())

    @property
    def hw(self) -> int:
        return self.replica.high_watermark

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def hear(self, partition: Partition) -> None:
        self.replica.apply(partition, self.now_ms)
        self.step()

    def step(self) -> None:
        ready = self.replica.take_ready()
        self.answers += ready.answers
        self.woken += ready.woken
        if ready.proposal is not None:
            self.proposals.append(ready.proposal)

    # --- leading

    def produce(self, batch: Batch | None = None, acks: int = -1, wait: object = None) -> object:
        """The verdict; an accepted batch is written, and `wait` waits for its commit."""
        batch = batch or a_batch()
        verdict = self.replica.produce(batch, acks)
        if isinstance(verdict, Append):
            self.log.append(
                batch._replace(base_offset=verdict[0], leader_epoch=verdict.leader_epoch)
            )
            self.replica.wrote()
        if wait is not None and not isinstance(verdict, Code):
            last = self.end if isinstance(verdict, Append) else verdict.last_offset + 1
            self.replica.wait_for_commit(AckWaiter(last, self.now_ms + 5_000, wait))
        self.step()
        return verdict

    def write(self, records: int) -> None:
        """So many records, whatever the ISR is."""
        for _ in range(records):
            assert isinstance(self.produce(acks=1), Append)

    def fetched_by(
        self,
        broker_id: int,
        offset: int,
        *,
        last_epoch: int | None = LIKE_MINE,
        epoch: int | None = None,
        broker_epoch: int | None = None,
        had_all_ms: int | None = None,
    ) -> Code | EndOffset:
        """A follower's fetch arrives; `epoch` defaults to the leader's own, `last_epoch` to that of
        the leader's record before `offset`."""
        if last_epoch == LIKE_MINE:
            last_epoch = self.log.epochs.epoch_of_last(offset) if offset <= self.end else None
        fetch = FollowerFetch(
            broker_id,
            10 * broker_id if broker_epoch is None else broker_epoch,
            self.replica.partition.leader_epoch if epoch is None else epoch,
            offset,
            last_epoch,
            0,
            had_all_ms=had_all_ms,
        )
        answer = self.replica.follower_fetch(fetch, self.now_ms)
        self.step()
        return answer

    def answer(self, code: int = 0, **fields: object) -> bool:
        """The controller answers the newest proposal; by default it is committed."""
        proposal = self.proposals[-1]
        values = {
            "topic_id": TOPIC,
            "index": 0,
            "code": code,
            "leader": self.id,
            "leader_epoch": proposal.leader_epoch,
            "partition_epoch": proposal.partition_epoch + 1,
            "isr": tuple(member.broker_id for member in proposal.new_isr),
        }
        answer = PartitionAnswer(**{**values, **fields})  # type: ignore[arg-type]
        again = self.replica.altered(proposal, answer, self.now_ms)
        self.step()
        return again

    def lag_check(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.replica.check_lag(self.now_ms)
        self.step()

    # --- following

    def fetch_from(self, leader: Copy, *, batches_max: int = 100) -> Code | EndOffset:
        """One round: ask, and do what the answer says."""
        position = self.replica.position()
        answer = leader.fetched_by(
            self.id,
            position.fetch_offset,
            last_epoch=position.last_fetched_epoch,
            epoch=position.leader_epoch,
            broker_epoch=self.around.brokers[self.id].broker_epoch,
        )
        if isinstance(answer, EndOffset):
            self.cut(answer, leader.log.log_start_offset)
        elif answer is Code.OFFSET_OUT_OF_RANGE:
            reset = follower.reset(self.log, leader.log.log_start_offset, leader.end)
            if reset is not None:
                (self.log.discard_to if reset.discard else self.log.truncate_to)(reset.offset)
                self.replica.cut()
        elif answer is Code.NONE:
            batches = [b for b in leader.log.batches if b.next_offset > position.fetch_offset]
            self.take(batches[:batches_max], leader.hw, leader.log.log_start_offset)
        self.step()
        return answer

    def cut(self, diverging: EndOffset, leader_start: int = 0) -> None:
        offset = follower.truncation_offset(self.log, diverging)
        if offset is None:
            self.log.discard_to(follower.begin_again(leader_start).offset)
        else:
            self.log.truncate_to(offset)
        self.replica.cut()

    def take(self, batches: list[Batch], high_watermark: int, leader_start: int = 0) -> int | None:
        count = follower.appendable(batches, self.replica.partition.leader_epoch, self.log)
        for batch in batches[: count or 0]:
            self.log.append(batch)
        if count is not None:
            self.replica.replicated(high_watermark)
        return count

    def catch_up(self, leader: Copy) -> int:
        """Rounds until both ends agree; bounded, so that a loop fails the test."""
        for rounds in range(50):
            before = (self.end, self.replica.position().last_fetched_epoch)
            answer = self.fetch_from(leader)
            after = (self.end, self.replica.position().last_fetched_epoch)
            if answer is Code.NONE and before == after:
                return rounds
        raise AssertionError(f"{self.id} never catches up with {leader.id}")
