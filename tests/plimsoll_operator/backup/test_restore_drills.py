"""Restore drills: when they are due, what they prove, and what they say if they cannot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.plimsoll_operator.backup.followed_log import (
    FollowedLog,
    OnePlace,
    clock_of,
    writer_of,
    written,
)
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_operator.api.due_times import DueTimes
from plimsoll_operator.backup import backup_writer, restore_drills
from plimsoll_operator.backup.backup_stores import DirectoryBackup, StoreUnavailable
from plimsoll_operator.backup.backup_writer import BackupState, newest_proof
from plimsoll_operator.backup.restore_drills import RestoreDrills

DAY_MS = 86_400_000


@dataclass(slots=True, kw_only=True)
class Drilled(OnePlace):
    drills: DueTimes = DueTimes("0 3 * * *")  # noqa: RUF009  # frozen


@dataclass(slots=True)
class Clock:
    now_ms: int = 1_800_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_writer, "EVERY_S", 0.001)
    monkeypatch.setattr(restore_drills, "LOOK_S", 0.001)


class Scene:
    """A log whose backup is in `path`, and its drills."""

    def __init__(self, path: Path, log: FollowedLog) -> None:
        self.log, self.path, self.clock = log, path, Clock()
        self.writer = writer_of(log, path, self.clock)
        self.place = Drilled(stored_in=DirectoryBackup(path))
        self.ended = 0

    async def written(self) -> BackupState:
        await written(self.writer, self.log)
        assert self.writer.state is not None
        return self.writer.state

    @contextlib.asynccontextmanager
    async def drilling(self) -> AsyncIterator[None]:
        drills = RestoreDrills(
            CLUSTER,
            self.log,
            self.place,
            lambda: self.writer.state,
            clock_of(self.clock),
            self._ended,
        )
        task = asyncio.ensure_future(drills.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self) -> None:
        self.ended += 1

    async def until_ended(self, times: int = 1) -> None:
        async with asyncio.timeout(30):
            while self.ended < times:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path, FollowedLog())
    await scene.written()
    scene.log.change(3)
    await scene.written()
    return scene


def state_of(scene: Scene) -> BackupState:
    assert scene.writer.state is not None
    return scene.writer.state


async def test_new_backup_is_proven_at_once(scene: Scene) -> None:
    async with scene.drilling():
        await scene.until_ended()
    state = state_of(scene)
    assert state.drill_failed == ""
    assert state.proof is not None
    assert state.proof.end == scene.log.image.next_offset
    assert state.overdue_ms(scene.clock()) == 0
    assert newest_proof(await DirectoryBackup(scene.path).stored()) == state.proof


async def test_next_operator_knows_the_last_proof(scene: Scene) -> None:
    async with scene.drilling():
        await scene.until_ended()
    later = Scene(scene.path, scene.log)
    assert (await later.written()).proof == state_of(scene).proof


async def test_drill_comes_again_at_its_time(scene: Scene) -> None:
    async with scene.drilling():
        await scene.until_ended()
        first = state_of(scene).proof
        scene.clock.now_ms += DAY_MS
        await scene.until_ended(2)
    second = state_of(scene).proof
    assert first is not None
    assert second is not None
    assert second.at_ms >= first.at_ms + DAY_MS
    found = await DirectoryBackup(scene.path).stored()
    assert sum(one.name.startswith("proved-") for one in found) == 1


class Undeletable(DirectoryBackup):
    async def delete(self, name: str) -> None:
        raise StoreUnavailable(f"DELETE of {name} was answered 403")


async def test_place_that_deletes_nothing_is_proven(scene: Scene) -> None:
    scene.place.stored_in = Undeletable(scene.path)
    async with scene.drilling():
        await scene.until_ended()
        first = state_of(scene).proof
        scene.clock.now_ms += DAY_MS
        await scene.until_ended(2)
    assert state_of(scene).drill_failed == ""
    assert state_of(scene).proof != first


async def test_damaged_backup_fails_its_drill_until_mended(scene: Scene) -> None:
    newest = max(scene.path.glob("batches-*"))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-3])
    async with scene.drilling():
        await scene.until_ended()
        state = state_of(scene)
        assert "does not match its checksum" in state.drill_failed
        assert state.proof is None
        scene.clock.now_ms += DAY_MS
        assert state.overdue_ms(scene.clock.now_ms) >= DAY_MS
        newest.write_bytes(whole)
        await scene.until_ended(2)
    assert state_of(scene).drill_failed == ""
    assert state_of(scene).proof is not None


async def test_backup_of_another_history_fails_its_drill(scene: Scene) -> None:
    other = FollowedLog()
    other.change(9)
    scene.log.tail, scene.log.image = other.tail, other.image
    async with scene.drilling():
        await scene.until_ended()
    assert "its last records differ" in state_of(scene).drill_failed


async def test_image_too_large_for_scratch_fails_its_drill(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_drills, "POINT_BYTES_MAX", 10)
    async with scene.drilling():
        await scene.until_ended()
    assert "a restore can read at most 10" in state_of(scene).drill_failed


async def test_bad_schedule_is_told(scene: Scene) -> None:
    async with scene.drilling():
        await scene.until_ended()
        scene.place.drills = DueTimes("0 3 31 2 *", "Nowhere/Else")
        await scene.until_ended(2)
    assert "The schedule's timeZone Nowhere/Else does not exist" in state_of(scene).drill_failed
