"""A broker that holds more than the metadata log stalls it for as long as one reports that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.test_group_commit import CLUSTER, MemoryLog, a_registration

from plimsoll_core.cluster.model import DismissedCopy
from plimsoll_core.cluster.record_versions import RESTORES_SINCE
from plimsoll_core.cluster.records import BrokerUnfenced, MetadataVersionFinalized
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.requests import Heartbeat, LogPosition, Refused, Registered
from plimsoll_operator.controller import decision_clock as clock_module
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.controller.metadata_restoration import RestorationOptions
from plimsoll_operator.controller.restore_decision import Restore

WAIT_S = 30


def a_controller(log: MemoryLog, *, listen_ms: int) -> Controller:
    return Controller(
        cluster_id=CLUSTER,
        name="test",
        log=log,  # type: ignore[arg-type]
        settings=Settings(),
        identity="test",
        options=ControllerOptions(
            backoff_ms=1,
            backoff_ms_max=5,
            listen_ms=listen_ms,
            restoration=RestorationOptions(quiet_ms=20, all_ms=100),
        ),
    )


def a_claim(offset: int = 900, epoch: int = 1, broker_id: int = 5) -> Heartbeat:
    nonce = "x" if offset else None
    position = LogPosition(
        applied_offset=MetadataOffset(offset), nonce=nonce, controller_epoch=ControllerEpoch(epoch)
    )
    return Heartbeat(
        broker_id=BrokerId(broker_id),
        broker_epoch=BrokerEpoch(3),
        position=position,
        metadata_versions=(1, 1),
        release="0.2.0",
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many milliseconds pass at once."""
    real, passed = clock_module._monotonic_ms, 0

    def let_pass(ms: int) -> None:
        nonlocal passed
        passed += ms

    monkeypatch.setattr(clock_module, "_monotonic_ms", lambda: real() + passed)
    return let_pass


LONG_MS = ControllerOptions().claim_ms + 1


async def stall(controller: Controller, claim: Heartbeat) -> None:
    """A first term that the claim ends."""
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await controller.request(claim)
        assert await task in (Outcome.STALLED, Outcome.DEPOSED)


async def test_unrepeated_claim_stalls_for_a_bounded_time(
    clock: Callable[[int], None],
) -> None:
    """One broker with a bogus position, deleted since: the cluster goes on without a restart."""
    log = MemoryLog()
    controller = a_controller(log, listen_ms=100)
    await stall(controller, a_claim())
    clock(LONG_MS)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert controller.stalled is None
        assert isinstance(await controller.request(a_registration()), Registered)
    await controller.stop()
    assert await task is Outcome.STOPPED


async def test_repeated_claim_stalls_and_commits_nothing(
    clock: Callable[[int], None],
) -> None:
    """The log really went back in time: its broker still is there, or another one that knows."""
    for repeated in (a_claim(), a_claim(broker_id=6, offset=800)):
        log = MemoryLog()
        controller = a_controller(log, listen_ms=60_000)
        await stall(controller, a_claim())
        clock(LONG_MS)
        committed, opens = len(log.batches), log.opens
        task = asyncio.create_task(controller.run())
        async with asyncio.timeout(WAIT_S):
            while log.opens == opens:  # noqa: ASYNC110 - the log has no event for it
                await asyncio.sleep(0)
            while not task.done():
                answer = await controller.request(repeated)
                assert isinstance(answer, Refused)
                assert answer.reason == "MetadataRegressed"
                await asyncio.sleep(0.005)
            assert await task is Outcome.STALLED
        assert len(log.batches) == committed


async def test_claim_of_possibly_restarting_broker_stalls_at_once() -> None:
    log = MemoryLog()
    controller = a_controller(log, listen_ms=0)
    await stall(controller, a_claim())
    committed = len(log.batches)
    async with asyncio.timeout(WAIT_S):
        assert await controller.run() is Outcome.STALLED
    assert len(log.batches) == committed


async def test_broker_may_withdraw_its_claim(
    clock: Callable[[int], None],
) -> None:
    log = MemoryLog()
    controller = a_controller(log, listen_ms=60_000)
    await stall(controller, a_claim())
    clock(LONG_MS)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        while not controller.active:
            await controller.request(a_claim(offset=0, epoch=0))
            await asyncio.sleep(0.005)
    await controller.stop()
    assert await task is Outcome.STOPPED


async def test_claim_of_newer_controller_deposes_first(
    clock: Callable[[int], None],
) -> None:
    log = MemoryLog()
    controller = a_controller(log, listen_ms=50)
    await stall(controller, a_claim(epoch=9))
    clock(LONG_MS)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert controller.epoch == 2, "no broker repeated that there was an epoch 9"
    await controller.stop()
    assert await task is Outcome.STOPPED


async def test_stop_ends_the_listening(clock: Callable[[int], None]) -> None:
    log = MemoryLog()
    controller = a_controller(log, listen_ms=60_000)
    await stall(controller, a_claim())
    clock(LONG_MS)
    opens = log.opens
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        while log.opens == opens:  # noqa: ASYNC110 - the log has no event for it
            await asyncio.sleep(0)
        await controller.stop()
        assert await task is Outcome.STOPPED


def given_up(offset: int = 900, nonce: str = "x") -> DismissedCopy:
    """The copy of the broker in `a_claim`."""
    return DismissedCopy(
        broker_id=a_claim().broker_id, applied_offset=MetadataOffset(offset), nonce=nonce
    )


async def let_be_given_up(controller: Controller, copy: DismissedCopy) -> None:
    """As if this term had begun with a restore."""
    version = MetadataVersionFinalized(cause="test", metadata_version=RESTORES_SINCE)
    await controller.commit_own((version,))
    queue = controller._committer.queue
    assert queue.speculative is queue.committed
    queue.committed = queue.speculative = replace(queue.committed, dismissed=(copy,))


async def test_dismissed_copy_ends_no_term() -> None:
    """Its broker is told to drop it, and registers with an empty one."""
    controller = a_controller(MemoryLog(), listen_ms=0)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await let_be_given_up(controller, given_up())
        controller.confirm()
        answer = await controller.request(a_claim())
        assert isinstance(answer, Refused)
        assert answer.reason == "MetadataDismissed"
        assert controller.active
        await controller.request(a_claim(offset=901))
        assert await task in (Outcome.STALLED, Outcome.DEPOSED), "another copy of it is a claim"


async def test_dismissed_broker_is_fenced_before_the_answer() -> None:
    """It sets aside logs then, and must not be elected by its old registration."""
    controller = a_controller(MemoryLog(), listen_ms=0)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        registration = a_registration(int(a_claim().broker_id))
        answer = await controller.request(registration)
        assert isinstance(answer, Registered)
        active = BrokerUnfenced(
            cause="test", broker_id=registration.broker_id, broker_epoch=answer.broker_epoch
        )
        await controller.commit_own((active,))
        await let_be_given_up(controller, given_up())
        controller.confirm()
        answer = await controller.request(a_claim())
        assert isinstance(answer, Refused)
        assert answer.reason == "MetadataDismissed"
        assert controller.image.brokers[registration.broker_id].fenced
        await controller.stop()
        assert await task is Outcome.STOPPED


async def test_unconfirmed_controller_dismisses_no_copy(clock: Callable[[int], None]) -> None:
    """Another may have restored the history of the copy since."""
    controller = a_controller(MemoryLog(), listen_ms=0)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await let_be_given_up(controller, given_up())
        clock(ControllerOptions().confirmed_ms + 1)
        answer = await controller.request(a_claim())
        assert isinstance(answer, Refused)
        assert answer.reason == "NotController"
        assert controller.active
        await controller.stop()
        assert await task is Outcome.STOPPED


async def test_copy_within_the_log_is_not_dismissed() -> None:
    controller = a_controller(MemoryLog(), listen_ms=0)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        tail = controller.tail
        await let_be_given_up(controller, given_up(tail.end, tail.end_nonce or ""))
        controller.confirm()
        claim = a_claim(offset=tail.end)
        claim = replace(claim, position=replace(claim.position, nonce=tail.end_nonce))
        answer = await controller.request(claim)
        assert isinstance(answer, Refused)
        assert answer.reason == "StaleBrokerEpoch"
        await controller.stop()
        assert await task is Outcome.STOPPED


async def test_restore_of_another_log_dismisses_nothing() -> None:
    """This controller's restore was followed by another operator's."""
    controller = a_controller(MemoryLog(), listen_ms=0)
    controller._just_restored = Restore(
        image=replace(controller.image, next_offset=MetadataOffset(7)),
        nonce="n",
        controller_epoch=ControllerEpoch(1),
        from_brokers=(),
        choice="7-digest",
        confirmed=True,
        dismissed=(given_up(),),
    )
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert controller._claims.dismissed == ()
        await controller.stop()
        assert await task is Outcome.STOPPED
