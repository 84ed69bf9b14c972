"""How terms end and begin: brokers lost at once, a full log, a group that is refused half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.test_group_commit import CLUSTER, MemoryLog, a_registration

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    ControllerChanged,
    PartitionsChanged,
    ProducerIdsAllocated,
    Record,
    SnapshotTaken,
    TopicConfigured,
)
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.take_over import EPOCH_STEPS
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import (
    BrokerProvenDead,
    CreateTopics,
    Heartbeat,
    HeartbeatAnswer,
    LogPosition,
    NewTopic,
    Refused,
    RegisterBroker,
    Registered,
    SetMembers,
    TopicsAnswer,
)
from plimsoll_core.messages.topics import (
    AlterTopicConfigs,
    ConfigChange,
    TopicConfigChanges,
)
from plimsoll_operator.controller import controller_term, decision_clock
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.metalog import log_integrity
from plimsoll_operator.metalog.codec import decode_records, sealed
from plimsoll_operator.metalog.interface import (
    AppendRefused,
    Batch,
    OpenedLog,
    RestoredHistory,
    Snapshot,
    SnapshotRequired,
)
from plimsoll_operator.metalog.log_integrity import Emptied

WAIT_S = 30
SESSION_MS = 2_000


class TurnsAsTime:
    """Decision time that passes by the event loop's turns: no machine is too busy for it."""

    def __init__(self) -> None:
        self.now_ms = 0

    async def tick_forever(self, _: object, interval_ms: int, tick: Callable[[int], None]) -> None:
        while True:
            await asyncio.sleep(0)
            self.now_ms += interval_ms
            tick(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnsAsTime:
    turns = TurnsAsTime()
    monkeypatch.setattr(decision_clock, "_monotonic_ms", lambda: turns.now_ms)
    monkeypatch.setattr(controller_term, "tick_forever", turns.tick_forever)
    return turns


def a_controller(log: MemoryLog, **options: Any) -> Controller:
    return Controller(
        cluster_id=CLUSTER,
        name="test",
        log=log,  # type: ignore[arg-type]
        settings=Settings(session_timeout_ms=SESSION_MS),
        identity="test",
        options=ControllerOptions(backoff_ms=1, backoff_ms_max=5, tick_ms=10, **options),
    )


async def take_part(
    controller: Controller, broker_id: int, registration: RegisterBroker | None = None
) -> None:
    """Register the broker and unfence it."""
    registered = await controller.request(registration or a_registration(broker_id))
    assert isinstance(registered, Registered)
    position = LogPosition(
        applied_offset=controller.image.next_offset,
        nonce=controller.tail.end_nonce,
        controller_epoch=controller.epoch,
    )
    answer = await controller.request(
        Heartbeat(
            broker_id=BrokerId(broker_id),
            broker_epoch=registered.broker_epoch,
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
    )
    assert isinstance(answer, HeartbeatAnswer)
    assert not answer.is_fenced


def taking_part(controller: Controller) -> list[int]:
    return [id_ for id_, broker in controller.image.brokers.items() if not broker.fenced]


async def handed_over(controller: Controller) -> None:
    """A first term with three brokers that all fall silent."""
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for broker_id in range(3):
            await take_part(controller, broker_id)
        assert await task is Outcome.HANDED_OVER
    assert taking_part(controller) == [0, 1, 2], "an operator that is cut off fences no broker"


@pytest.mark.usefixtures("clock")
async def test_next_term_may_fence_silent_broker() -> None:
    log = MemoryLog()
    controller = a_controller(log)
    await handed_over(controller)
    all_fenced = asyncio.Event()

    def note(*_: object) -> None:
        if not taking_part(controller):
            all_fenced.set()

    controller.subscribe(note)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await all_fenced.wait()
        await controller.stop()
        assert await task is Outcome.STOPPED
    assert controller.epoch == 2


async def test_opinion_of_long_ago_judges_nobody(clock: TurnsAsTime) -> None:
    """Days later half of the brokers fall silent again: another operator must see it too, again."""
    log = MemoryLog()
    controller = a_controller(log)
    await handed_over(controller)
    clock.now_ms += controller.options.opinion_ms + 1
    async with asyncio.timeout(WAIT_S):
        assert await controller.run() is Outcome.HANDED_OVER
    assert taking_part(controller) == [0, 1, 2]
    assert controller.epoch == 2


async def test_starved_controller_calls_no_broker_silent(clock: TurnsAsTime) -> None:
    """It waits for a processor all the time: what brokers sent may still be unread."""
    controller = a_controller(MemoryLog(), waited_ms=lambda: clock.now_ms)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for broker_id in range(3):
            await take_part(controller, broker_id)
        for _ in range(10 * SESSION_MS // controller.options.tick_ms):
            await asyncio.sleep(0)
        assert not task.done(), "nothing was handed over"
        assert taking_part(controller) == [0, 1, 2]
        await controller.stop()
        assert await task is Outcome.STOPPED


async def test_starved_controller_judges_mass_silence_by_itself(clock: TurnsAsTime) -> None:
    controller = a_controller(MemoryLog(), waited_ms=lambda: clock.now_ms // 2)
    all_fenced = asyncio.Event()

    def note(*_: object) -> None:
        if len(controller.image.brokers) == 3 and not taking_part(controller):
            all_fenced.set()

    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for broker_id in range(3):
            await take_part(controller, broker_id)
        controller.subscribe(note)
        await asyncio.wait(
            [task, fenced := asyncio.ensure_future(all_fenced.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert fenced.done(), "nothing was handed over"
        await controller.stop()
        assert await task is Outcome.STOPPED
    assert controller.epoch == 1


class FullLog(MemoryLog):
    """Every place is taken until a snapshot is released; only its own record may still follow."""

    def __init__(self, batches: list[Batch]) -> None:
        super().__init__()
        self.batches = batches
        self.full = True
        self.done: list[str] = []

    async def append(self, batch: Batch) -> None:
        names = [type(record).__name__ for record in decode_records(batch)]
        if self.full and not ("written" in self.done and names == ["SnapshotTaken"]):
            raise SnapshotRequired("every place is taken")
        self.done += [f"committed {name} in epoch {batch.controller_epoch}" for name in names]
        await super().append(batch)

    async def write_snapshot(self, image: bytes, end_offset: int, nonce: str, epoch: int) -> str:
        assert (self.batches[-1].end_offset, self.batches[-1].nonce) == (end_offset, nonce)
        self.done.append("written")
        return f"snapshot-{end_offset}"

    async def release(self, taken: SnapshotTaken) -> None:
        self.done.append(f"released {taken.name}")
        self.full = False


async def test_take_over_of_full_log_makes_room() -> None:
    before = MemoryLog()
    controller = a_controller(before)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert isinstance(await controller.request(a_registration(4)), Registered)
        await controller.stop()
        await task
    end = controller.image.next_offset

    log = FullLog(list(before.batches))
    successor = a_controller(log)
    task = asyncio.create_task(successor.run())
    async with asyncio.timeout(WAIT_S):
        await successor.wait_active()
        assert log.done[:3] == [
            "written",
            "committed SnapshotTaken in epoch 2",
            f"released snapshot-{end}",
        ]
        assert log.done[3].startswith("committed ControllerChanged")
        assert BrokerId(4) in successor.image.brokers
        assert isinstance(await successor.request(a_registration(5)), Registered)
        await successor.stop()
        assert await task is Outcome.STOPPED
    assert isinstance(decode_records(log.batches[len(before.batches) + 1])[0], ControllerChanged)


class LogWithoutRoom(MemoryLog):
    """Takes nothing more from `full` on, as long as no snapshot is released."""

    full = False
    turned_away = 0

    async def append(self, batch: Batch) -> None:
        if self.full:
            self.turned_away += 1
            raise SnapshotRequired("every place is taken")
        await super().append(batch)

    async def write_snapshot(self, image: bytes, end_offset: int, nonce: str, epoch: int) -> str:
        return await asyncio.get_running_loop().create_future()  # the API server takes its time


async def test_long_decision_is_not_repeated_when_full() -> None:
    """Found by simulation: the first part of a sliced registration could not be committed, was
    dropped, and was decided again at once, without end."""
    log = LogWithoutRoom()
    controller = a_controller(log)
    controller.settings = Settings(slice_partitions_max=1, default_min_isr=1)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        process = a_registration(1)
        await take_part(controller, 1, process)
        topic = NewTopic(name="orders", partitions=3, replication_factor=1)
        made = await controller.request(CreateTopics(topics=(topic,)))
        assert isinstance(made, TopicsAnswer)
        assert made.topics[0].code == 0
        log.full = True
        answer = await controller.request(replace(process, incarnation_id=uuid4()))
        assert isinstance(answer, Refused)
        assert answer.reason == "NotController"
        assert log.turned_away < 10, "it was tried again and again"
        log.full = False
        await controller.stop()
        await task


async def test_long_validation_lets_others_in() -> None:
    """Its parts have no records to wait for, and were decided in one turn of the loop."""
    controller = a_controller(MemoryLog())
    controller.settings = Settings(slice_partitions_max=1)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await take_part(controller, 1)
        topics = tuple(
            NewTopic(name=f"t{n}", partitions=1, replication_factor=1) for n in range(100)
        )
        long = controller.submit(CreateTopics(topics=topics, validate_only=True))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not long.done()
        answer = await long
        assert isinstance(answer, TopicsAnswer)
        assert len(answer.topics) == len(topics)
        await controller.stop()
        await task


class LogThatFillsUp(LogWithoutRoom):
    """Takes a batch that changes a min ISR, and then no more."""

    async def append(self, batch: Batch) -> None:
        await super().append(batch)
        self.full = any(isinstance(one, TopicConfigured) for one in decode_records(batch))


async def test_min_isr_change_survives_a_full_log() -> None:
    """Found by simulation (seeds 1612436, 1613885): the term went on, and nobody else did."""
    log = LogThatFillsUp()
    controller = a_controller(log)
    controller.settings = Settings(slice_partitions_max=1, default_min_isr=1)
    spread = asyncio.Event()

    def note(_: ClusterImage, image: ClusterImage, records: object) -> None:
        if {p.min_isr for p in image.partitions.values()} == {2}:
            spread.set()

    controller.subscribe(note)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await take_part(controller, 1)
        topic = NewTopic(name="orders", partitions=3, replication_factor=1)
        await controller.request(CreateTopics(topics=(topic,)))
        change = ConfigChange(name="min.insync.replicas", value="2")
        wish = TopicConfigChanges(topic="orders", changes=(change,))
        answer = await controller.request(AlterTopicConfigs(topics=(wish,)))
        assert isinstance(answer, Refused)
        assert sorted(p.min_isr for p in controller.image.partitions.values()) == [1, 1, 2]
        log.full = False
        await spread.wait()
        assert controller.epoch == 1, "no other term was needed"
        await controller.stop()
        await task


async def test_fence_dropped_by_full_log_leaves_nothing() -> None:
    """What the controller remembers of a decision that was dropped is put right."""
    log = LogWithoutRoom()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for broker_id in (1, 2):
            await take_part(controller, broker_id)
        topic = NewTopic(name="orders", assignment=((BrokerId(1), BrokerId(2)),))
        await controller.request(CreateTopics(topics=(topic,)))
        (partition,) = controller.image.partitions.values()
        log.full = True
        gone = controller.image.brokers[BrokerId(1)]
        proof = BrokerProvenDead(
            broker_id=gone.id, broker_epoch=gone.broker_epoch, evidence="its pod is gone"
        )
        assert isinstance(await controller.request(proof), Refused)
        assert partition.key not in controller.soft.displaced, "1 still leads"
        log.full = False
        await controller.request(proof)
        assert partition.key in controller.soft.displaced
        await controller.stop()
        await task


class HalfLog(MemoryLog):
    """Refuses the last batch of a group, once."""

    refused = 0

    async def append(self, batch: Batch) -> None:
        if batch.group is not None and batch.last_of_group and not self.refused:
            self.refused += 1
            raise AppendRefused("not permitted")
        await super().append(batch)


async def test_group_refused_halfway_never_happened() -> None:
    log = HalfLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert isinstance(await controller.request(a_registration(1)), Registered)
        end = controller.image.next_offset
        large = tuple(
            SnapshotTaken(cause="test", end_offset=end, name=f"{number}" * 400_000)
            for number in range(4)
        )
        answer = await controller.commit_own(large)
        assert isinstance(answer, Refused)
        assert log.refused == 1
        assert log.batches[-1].group is not None, "its first half is in the log"
        await controller.wait_active()
        assert controller.epoch == 2
        assert isinstance(await controller.request(a_registration(2)), Registered)
        fetch = FetchMetadata(cluster_id=CLUSTER, broker_id=BrokerId(1), offset=MetadataOffset(0))
        update = await controller.fetch_metadata(fetch)
        assert isinstance(update, MetadataUpdate)
        assert not any(b"SnapshotTaken" in batch.records_json for batch in update.batches)
        following = [b for b in update.batches if b.base_offset == end]
        assert [b.controller_epoch for b in following] == [2], "the void left no gap"
        await controller.stop()
        assert await task is Outcome.STOPPED

    again = a_controller(log)
    task = asyncio.create_task(again.run())
    async with asyncio.timeout(WAIT_S):
        await again.wait_active()
        assert set(again.image.brokers) == {BrokerId(1), BrokerId(2)}
        await again.stop()
        await task


async def test_operator_older_than_log_does_not_lead() -> None:
    """Before: it opened the log again and again, held the Lease, and said nothing in the status."""
    log = MemoryLog()
    async with asyncio.timeout(WAIT_S):
        first = a_controller(log)
        running = asyncio.create_task(first.run())
        await first.wait_active()
        await first.stop()
        assert await running is Outcome.STOPPED
        batch = log.batches[-1]
        newer = batch.records_json.replace(b"ClusterDeclared", b"MoonPhaseChanged")
        assert newer != batch.records_json
        log.batches[-1] = sealed(batch, newer)
        written = list(log.batches)
        older = a_controller(log)
        assert await older.run() is Outcome.TOO_NEW
    assert older.stalled is not None
    assert older.stalled.reason == "MetadataTooNew"
    assert "MoonPhaseChanged" in older.stalled.message
    assert "Run the operator of that release" in older.stalled.message
    assert not older.active
    assert log.batches == written


class RestoredLog(MemoryLog):
    """Holds a restored history. Fails once to take a record of the kind `fails_at`."""

    def __init__(self, history: RestoredHistory, fails_at: type[Record], failure: Exception):
        super().__init__()
        self.fails_at, self.failures_left = fails_at, [failure]
        self._put(history, 0)

    def _put(self, history: RestoredHistory, sequence: int) -> None:
        self.batches = []
        self.snapshot = Snapshot(
            name="restored",
            end_offset=history.end_offset,
            last_sequence=sequence,
            nonce=history.nonce,
            controller_epoch=history.controller_epoch,
            image_bytes=history.image_bytes,
        )

    async def restore(self, history: RestoredHistory) -> None:
        self._put(history, self.snapshot.last_sequence + len(self.batches) + 1)

    async def open(self) -> OpenedLog:
        known = self.snapshot
        marker = Emptied(
            sequence=known.last_sequence, end_offset=known.end_offset, nonce=known.nonce
        )
        found = {batch.sequence: batch for batch in self.batches}
        opened, _ = log_integrity.assemble((known,), {marker.sequence: marker, **found})
        return opened

    async def append(self, batch: Batch) -> None:
        fails = any(isinstance(one, self.fails_at) for one in decode_records(batch))
        if fails and self.failures_left:
            raise self.failures_left.pop()
        await super().append(batch)

    async def write_snapshot(self, image: bytes, end_offset: int, nonce: str, epoch: int) -> str:
        return "another"

    async def release(self, taken: SnapshotTaken) -> None:
        pass


async def a_history() -> RestoredHistory:
    """A cluster with one broker and one partition."""
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await take_part(controller, 1)
        topic = NewTopic(name="orders", partitions=1, replication_factor=1)
        await controller.request(CreateTopics(topics=(topic,)))
        await controller.stop()
        await task
    last = log.batches[-1]
    return RestoredHistory(
        image_bytes=encode_image(controller.image),
        end_offset=last.end_offset,
        nonce=last.nonce,
        controller_epoch=last.controller_epoch,
    )


@pytest.mark.parametrize(
    ("fails_at", "failure"),
    [
        (PartitionsChanged, AppendRefused("not permitted")),
        (PartitionsChanged, SnapshotRequired("every place is taken")),
        (ControllerChanged, SnapshotRequired("every place is taken")),
    ],
)
async def test_restored_term_decides_nothing_before_skips(
    fails_at: type[Record], failure: Exception
) -> None:
    """The log did not take the skipped epochs, and a registration was committed without them."""
    log = RestoredLog(await a_history(), fails_at, failure)
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        process = a_registration(2)
        for _ in range(2):
            await controller.wait_active()
            answer = await controller.request(process)
        assert isinstance(answer, Registered)
        await controller.stop()
        await task
    assert not log.failures_left
    kinds = [type(record) for record in log.records()]
    decided = [kind for kind in kinds if kind is not ControllerChanged]
    skips = [PartitionsChanged] * EPOCH_STEPS
    assert decided[: EPOCH_STEPS + 1] == [*skips, ProducerIdsAllocated]
    assert decided.count(PartitionsChanged) == EPOCH_STEPS, "and skipped once"


async def test_stop_in_a_take_over_activates_nothing() -> None:
    log = MemoryLog()
    log.gate.clear()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await log.appending.wait()
        active = asyncio.create_task(controller.wait_active())
        stopping = asyncio.create_task(controller.stop())
        await asyncio.sleep(0)
        log.gate.set()
        await stopping
        assert await task is Outcome.STOPPED
    assert not active.done()
    active.cancel()
    assert [type(record) for record in log.records()] == [ControllerChanged]


async def test_stopping_controller_lets_others_wait() -> None:
    """Its queue is not committed yet: it neither decides nor has it ended."""
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await controller.request(SetMembers(broker_ids=()))
        log.gate.clear()
        registering = controller.submit(a_registration(7))
        stopping = asyncio.create_task(controller.stop())
        await asyncio.sleep(0)
        assert not controller.active
        active = asyncio.create_task(controller.wait_active())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not active.done()
        assert not stopping.done()
        active.cancel()
        log.gate.set()
        assert isinstance(await registering, Registered), "what was queued is committed"
        await stopping
        assert await task is Outcome.STOPPED


async def test_cancelled_caller_ends_uncommitted_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A candidate that is cancelled stops its controller in its clean-up."""
    monkeypatch.setattr(controller_term, "STOP_MS_MAX", 0)
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await controller.stop()
            ended.set()

    ended = asyncio.Event()
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await controller.request(SetMembers(broker_ids=()))
        log.gate.clear()
        controller.submit(a_registration(7))
        cleaning = asyncio.create_task(clean_up())
        await asyncio.sleep(0)
        cleaning.cancel()
        assert await task is Outcome.STOPPED
        await ended.wait()
