"""A controller finds a log that earlier terms have filled, and makes room by itself."""

import asyncio

from tests.plimsoll_operator.metalog.shells import CLUSTER_ID, SLOTS, RingShell

from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import ControllerEpoch
from plimsoll_operator.controller.commit_queue import Journal
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.metalog.interface import SnapshotRequired


async def a_short_term(ring: RingShell) -> None:
    journal = Journal(ring.log(), CLUSTER_ID)
    epoch = ControllerEpoch((await journal.open()).image.controller_epoch + 1)
    await journal.append(
        (ControllerChanged(cause="TakeOver", controller_epoch=epoch, identity="short"),), epoch
    )


async def fill(ring: RingShell) -> int:
    for terms in range(2 * SLOTS):
        try:
            await a_short_term(ring)
        except SnapshotRequired:
            return terms
    raise AssertionError("the log never filled")


async def test_full_log_gets_snapshot_before_next_term(ring: RingShell) -> None:
    terms = await fill(ring)
    controller = Controller(
        cluster_id=CLUSTER_ID, name="demo", log=ring.log(), settings=Settings(), identity="next"
    )
    running = asyncio.create_task(controller.run())
    async with asyncio.timeout(30):
        await controller.wait_active()
    assert controller.epoch == terms + 1
    assert len(await ring.snapshot_names()) == 1
    await controller.stop()
    assert await running is Outcome.STOPPED
