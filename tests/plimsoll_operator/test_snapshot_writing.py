"""Snapshots of the metadata log: committed before anything is released, enough to go on from."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

from tests.plimsoll_operator.test_group_commit import CLUSTER, a_registration

from plimsoll_core.cluster.image_encoding import decode_image
from plimsoll_core.cluster.records import Record, SnapshotTaken
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import Registered
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.metalog.directory import DirectoryLog

WAIT_S = 30


class EagerLog(DirectoryLog):
    """Wants a snapshot as soon as it is told to; notes the order of what is done to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, CLUSTER)
        self.wanted = False
        self.done: list[str] = []
        self.released = asyncio.Event()

    def needs_snapshot(self) -> bool:
        wanted, self.wanted = self.wanted, False
        return wanted

    async def write_snapshot(
        self, image_bytes: bytes, end_offset: int, nonce: str, controller_epoch: int
    ) -> str:
        self.done.append("written")
        return await super().write_snapshot(image_bytes, end_offset, nonce, controller_epoch)

    async def release(self, taken: SnapshotTaken) -> None:
        self.done.append("released")
        await super().release(taken)
        self.released.set()


def a_controller(log: DirectoryLog) -> Controller:
    return Controller(
        cluster_id=CLUSTER,
        name="test",
        log=log,
        settings=Settings(),
        identity="test",
        options=ControllerOptions(always_confirmed=True),
    )


async def test_snapshot_is_committed_before_it_releases(
    tmp_path: Path,
) -> None:
    log = EagerLog(tmp_path)
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())

    def note(_old: object, _new: object, records: tuple[Record, ...]) -> None:
        log.done += ["committed" for record in records if isinstance(record, SnapshotTaken)]

    controller.subscribe(note)
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        for number in range(3):
            assert isinstance(await controller.request(a_registration(number)), Registered)
        log.wanted = True
        await log.released.wait()
        assert log.done == ["written", "committed", "released"]
        assert isinstance(await controller.request(a_registration(7)), Registered)
    image = controller.image
    await controller.stop()
    await task
    await log.close()

    again = DirectoryLog(tmp_path, CLUSTER)
    successor = a_controller(again)
    task = asyncio.create_task(successor.run())
    async with asyncio.timeout(WAIT_S):
        await successor.wait_active()
        assert set(successor.image.brokers) == {BrokerId(n) for n in (0, 1, 2, 7)}
        assert successor.epoch == image.controller_epoch + 1
        # Who is at the very beginning gets the image; what came after it is read as ever.
        fetch = FetchMetadata(
            cluster_id=CLUSTER, broker_id=BrokerId(0), offset=MetadataOffset(0), wait_ms_max=0
        )
        update = await successor.fetch_metadata(fetch)
        assert isinstance(update, MetadataUpdate)
        assert update.snapshot is not None
        assert decode_image(zlib.decompress(update.snapshot)) == successor.image
        assert update.snapshot_nonce == successor.tail.end_nonce
    await successor.stop()
    await task
    await again.close()


async def test_history_settles_between_commit_and_release(tmp_path: Path) -> None:
    log = EagerLog(tmp_path / "log")
    controller = a_controller(log)

    async def settle() -> bool:
        log.done.append("settled")
        return True

    controller.snapshotter.before_release = settle
    running = asyncio.ensure_future(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        assert isinstance(await controller.request(a_registration()), Registered)
        log.wanted = True
        controller.snapshotter.urgent.set()
        await log.released.wait()
    await controller.stop()
    await running
    await log.close()
    assert log.done == ["written", "settled", "released"]
