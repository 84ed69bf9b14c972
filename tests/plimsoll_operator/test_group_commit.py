"""Answers wait for the commit; what did not commit never happened (group commit)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest

from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.records import ControllerChanged, Record
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import (
    Done,
    Heartbeat,
    HeartbeatAnswer,
    LogPosition,
    Refused,
    RegisterBroker,
    Registered,
    SetMembers,
)
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.metalog import log_integrity
from plimsoll_operator.metalog.codec import decode_records
from plimsoll_operator.metalog.interface import (
    AppendConflict,
    AppendRefused,
    Batch,
    LogUnavailable,
    OpenedLog,
)

CLUSTER = UUID("7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001")


class MemoryLog:
    """A metadata log in memory whose appends can be held back or made to fail."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.appending = asyncio.Event()
        self.failures: list[Exception] = []
        self.opens = 0

    async def open(self) -> OpenedLog:
        self.opens += 1
        opened, _ = log_integrity.assemble((), {batch.sequence: batch for batch in self.batches})
        return opened

    async def append(self, batch: Batch) -> None:
        self.appending.set()
        await self.gate.wait()
        self.appending.clear()
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(batch)

    def needs_snapshot(self) -> bool:
        return False

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(batch)]

    async def close(self) -> None:
        return None


def a_controller(log: MemoryLog, **options: object) -> Controller:
    return Controller(
        cluster_id=CLUSTER,
        name="test",
        log=log,  # type: ignore[arg-type]
        settings=Settings(),
        identity="test",
        options=ControllerOptions(
            backoff_ms=1,
            backoff_ms_max=5,
            **options,  # type: ignore[arg-type]
        ),
    )


@asynccontextmanager
async def running(log: MemoryLog, **options: object) -> AsyncIterator[Controller]:
    controller = a_controller(log, **options)
    task = asyncio.create_task(controller.run())
    try:
        async with asyncio.timeout(30):
            await controller.wait_active()
            # The declaration of a new cluster follows the take-over; this waits for it.
            await controller.request(SetMembers(broker_ids=()))
        yield controller
    finally:
        log.gate.set()
        await controller.stop()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 30)


def a_registration(broker_id: int = 0) -> RegisterBroker:
    return RegisterBroker(
        cluster_id=CLUSTER,
        broker_id=BrokerId(broker_id),
        incarnation_id=uuid4(),
        previous_broker_epoch=None,
        directory_ids=(uuid4(),),
        endpoints=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9092),),
        metadata_versions=(1, 1),
        release="0.2.0",
    )


def a_heartbeat(controller: Controller, broker_epoch: int, **changes: object) -> Heartbeat:
    position = LogPosition(
        applied_offset=controller.image.next_offset,
        nonce=controller.tail.end_nonce,
        controller_epoch=controller.epoch,
    )
    told = {"metadata_versions": (1, 1), "release": "0.2.0"}
    values: dict[str, object] = {"position": position, **told, **changes}
    return Heartbeat(
        broker_id=BrokerId(0),
        broker_epoch=BrokerEpoch(broker_epoch),
        **values,  # type: ignore[arg-type]
    )


async def test_term_starts_with_controller_changed_alone() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        first = decode_records(log.batches[0])
        assert [type(record) for record in first] == [ControllerChanged]
        assert controller.epoch == 1
    async with running(log) as controller:
        assert controller.epoch == 2


async def test_answer_leaves_only_after_its_records_are_committed() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        log.gate.clear()
        answer = controller.submit(a_registration())
        await log.appending.wait()
        assert not answer.done()
        assert BrokerId(0) not in controller.image.brokers
        log.gate.set()
        registered = await asyncio.wait_for(answer, 30)
        assert isinstance(registered, Registered)
        assert controller.image.brokers[BrokerId(0)].broker_epoch == registered.broker_epoch


async def test_refusal_waits_for_its_deciding_records() -> None:
    """R10: it may stand on state that never comes to be."""
    log = MemoryLog()
    async with running(log) as controller:
        log.gate.clear()
        registration = controller.submit(a_registration())
        refusal = controller.submit(SetMembers(broker_ids=()))
        await log.appending.wait()
        assert not refusal.done()
        log.gate.set()
        assert isinstance(await asyncio.wait_for(refusal, 30), Refused)
        assert registration.done()


async def test_heartbeats_flags_wait_too() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        registered = await controller.request(a_registration())
        assert isinstance(registered, Registered)
        log.gate.clear()
        unfencing = controller.submit(a_heartbeat(controller, registered.broker_epoch))
        second = controller.submit(a_heartbeat(controller, registered.broker_epoch))
        await log.appending.wait()
        assert not unfencing.done()
        assert not second.done(), "it would report an unfencing that is not committed"
        log.gate.set()
        answer = await asyncio.wait_for(second, 30)
        assert isinstance(answer, HeartbeatAnswer)
        assert not answer.is_fenced


async def test_heartbeat_with_empty_queue_is_answered_at_once() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        registered = await controller.request(a_registration())
        assert isinstance(registered, Registered)
        await controller.request(a_heartbeat(controller, registered.broker_epoch))
        assert controller.submit(a_heartbeat(controller, registered.broker_epoch)).done()


async def test_decisions_queued_during_append_share_the_next() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        before = len(log.batches)
        log.gate.clear()
        answers = [controller.submit(a_registration(number)) for number in range(5)]
        await log.appending.wait()
        log.gate.set()
        await asyncio.wait_for(asyncio.gather(*answers), 30)
        assert len(log.batches) - before == 1 or len(log.batches) - before == 2


async def test_certain_failure_drops_whole_speculative_part() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        registered = await controller.request(a_registration())
        assert isinstance(registered, Registered)
        epoch, opens = controller.epoch, log.opens
        log.gate.clear()
        log.failures = [AppendRefused("too large")]
        culprit = controller.submit(a_registration(1))
        await log.appending.wait()
        bystanders = [controller.submit(a_registration(n)) for n in (2, 3)]
        flags = controller.submit(a_heartbeat(controller, registered.broker_epoch))
        log.gate.set()
        answers = await asyncio.wait_for(asyncio.gather(culprit, *bystanders, flags), 30)
        assert [a.reason for a in answers if isinstance(a, Refused)] == [
            "RecordTooLarge",
            *["NotController"] * 3,
        ]
        assert set(controller.image.brokers) == {BrokerId(0)}
        # The log is as it was: the same term goes on, and the bystanders get through.
        assert isinstance(await controller.request(a_registration(2)), Registered)
        assert (controller.epoch, log.opens) == (epoch, opens)


async def test_unknown_outcome_ends_the_term() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        log.failures = [LogUnavailable("the disk is gone")]
        answer = await controller.request(a_registration())
        assert isinstance(answer, Refused)
        assert answer.reason == "NotController"
        async with asyncio.timeout(30):
            await controller.wait_active()
        assert controller.epoch == 2
        assert BrokerId(0) not in controller.image.brokers


async def test_controller_steps_down_on_append_conflict() -> None:
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await controller.wait_active()
        log.failures = [AppendConflict("another writer")] * 10
        answer = await controller.request(SetMembers(broker_ids=(BrokerId(7),)))
        assert isinstance(answer, Refused)
        assert await task is Outcome.DEPOSED
    assert isinstance(await controller.request(SetMembers(broker_ids=(BrokerId(7),))), Refused)
    assert not controller.active


async def test_stop_before_the_first_step_is_not_lost() -> None:
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    await controller.stop()
    async with asyncio.timeout(30):
        assert await task is Outcome.STOPPED
    assert not log.batches
    again = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await controller.wait_active()
        await controller.stop()
        assert await again is Outcome.STOPPED


async def test_take_over_that_meets_another_writer_reads_on() -> None:
    log = MemoryLog()
    log.failures = [AppendConflict("a late batch of the one before")] * 2
    async with running(log) as controller:
        assert controller.epoch == 1
        assert log.opens == 3


async def test_broker_ahead_of_log_stalls_controller() -> None:
    """The log went back in time: nothing more is committed."""
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await controller.wait_active()
        position = LogPosition(
            applied_offset=MetadataOffset(900), nonce="x", controller_epoch=ControllerEpoch(1)
        )
        heartbeat = Heartbeat(
            broker_id=BrokerId(0),
            broker_epoch=BrokerEpoch(3),
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        answer = await controller.request(heartbeat)
        assert isinstance(answer, Refused)
        assert await task is Outcome.STALLED
    count = len(log.batches)
    stalled = await controller.request(SetMembers(broker_ids=(BrokerId(0),)))
    assert isinstance(stalled, Refused)
    assert stalled.reason == "MetadataRegressed"
    assert "900" in stalled.message
    assert len(log.batches) == count


async def test_position_with_other_nonce_is_another_history() -> None:
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await controller.wait_active()
        position = LogPosition(
            applied_offset=MetadataOffset(1), nonce="other", controller_epoch=ControllerEpoch(1)
        )
        heartbeat = Heartbeat(
            broker_id=BrokerId(0),
            broker_epoch=BrokerEpoch(0),
            position=position,
            metadata_versions=(1, 1),
            release="0.2.0",
        )
        await controller.request(heartbeat)
        assert await task is Outcome.STALLED


async def test_controller_without_recent_proof_is_unconfirmed() -> None:
    log = MemoryLog()
    async with running(log, confirmed_ms=-1) as controller:
        assert controller.unconfirmed
    async with running(log, confirmed_ms=3_000) as controller:
        assert not controller.unconfirmed
        controller.confirm(started_ms_ago=0)
        assert not controller.unconfirmed
        controller.confirm(started_ms_ago=1_000)
        assert not controller.unconfirmed, "older news never takes newer news back"


async def test_stream_waits_for_what_is_not_committed_yet() -> None:
    log = MemoryLog()
    async with running(log) as controller:
        end = controller.image.next_offset
        fetch = FetchMetadata(
            cluster_id=CLUSTER,
            broker_id=BrokerId(0),
            offset=end,
            nonce=controller.tail.end_nonce,
            wait_ms_max=5_000,
        )
        update = asyncio.create_task(controller.fetch_metadata(fetch))
        log.gate.clear()
        answer = controller.submit(a_registration())
        await log.appending.wait()
        assert not update.done()
        log.gate.set()
        found = await asyncio.wait_for(update, 30)
        assert isinstance(found, MetadataUpdate)
        assert found.batches[0].base_offset == end
        assert isinstance(await answer, Registered)


async def test_subscribers_see_committed_changes_only_and_in_order() -> None:
    log = MemoryLog()
    seen: list[tuple[int, int]] = []
    async with running(log) as controller:
        controller.subscribe(lambda old, new, _: seen.append((old.next_offset, new.next_offset)))
        for number in range(3):
            await controller.request(a_registration(number))
        log.failures = [AppendRefused("no")]
        await controller.request(a_registration(9))
        assert await controller.request(SetMembers(broker_ids=(BrokerId(0),))) == Done()
    assert all(after > before for before, after in seen)
    assert [before for before, _ in seen[1:]] == [after for _, after in seen[:-1]]


@pytest.mark.parametrize("offset", [0, 1])
async def test_stream_starts_anywhere_in_the_tail(offset: int) -> None:
    log = MemoryLog()
    async with running(log) as controller:
        fetch = FetchMetadata(
            cluster_id=CLUSTER, broker_id=BrokerId(0), offset=MetadataOffset(offset)
        )
        update = await controller.fetch_metadata(fetch)
        assert isinstance(update, MetadataUpdate)
        assert update.batches[0].base_offset == offset
        assert update.end_offset == controller.image.next_offset
