"""Proves on a schedule that a backup can be restored: reads it, proves it as a restore does, and
restores it into a metadata log in a scratch directory that is opened and replayed.

The last success is a name in the place of the backup, so that a later operator knows it.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from uuid import UUID

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import MetadataOffset
from plimsoll_operator.api.due_times import BadSchedule, DueTimes
from plimsoll_operator.backup.backup_clock import BackupClock
from plimsoll_operator.backup.backup_objects import NEWEST, POINT_BYTES_MAX, Proof, parse_proof
from plimsoll_operator.backup.backup_reading import BackupCopy, NoPoint, read_point
from plimsoll_operator.backup.backup_stores import BackupStore, StoreUnavailable
from plimsoll_operator.backup.backup_writer import BackupState, FollowedController, WantedPlace
from plimsoll_operator.controller.commit_queue import replay
from plimsoll_operator.controller.metadata_tail import Standing
from plimsoll_operator.controller.restore_decision import ProvenCopy
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import MetadataLogError, RestoredHistory

logger = logging.getLogger("plimsoll.backup")

LOOK_S = 5.0
AGAIN_MS = 600_000
"""How long after a drill that failed the next one begins."""


class DrilledPlace(WantedPlace, Protocol):
    """The place of a backup, and when it is drilled."""

    @property
    def drills(self) -> DueTimes: ...


class RestoreDrills:
    """The restore drills of one cluster's backup. `run` is a task of each term. `state`: returns
    what is known of the backup, which drills add to; `changed` is called when a drill has ended."""

    def __init__(
        self,
        cluster_id: UUID,
        log: FollowedController,
        place: DrilledPlace,
        state: Callable[[], BackupState | None],
        clock: BackupClock,
        changed: Callable[[], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._log = log
        self._place = place
        self._state = state
        self._clock = clock
        self._changed = changed
        # When the next drill may begin after one that failed, by the monotonic clock.
        self._again_ms: int | None = None

    async def run(self) -> None:
        """Drill at each due time until cancelled, while the controller is active."""
        while True:
            await self._log.wait_active()
            state = self._state()
            if state is not None and state.end and not state.why and self._is_due(state):
                await self._drill(state)
            await asyncio.sleep(LOOK_S)

    def _is_due(self, state: BackupState) -> bool:
        """Note since when a drill is due, and return True if one is to begin now. A backup that was
        never proven is due at once."""
        now_ms = self._clock.now_ms()
        if state.proof is None:
            state.drill_due_ms = state.drill_due_ms or now_ms
            return self._may_begin
        try:
            newest_ms = self._place.drills.newest_until(now_ms)
        except BadSchedule as error:
            self._failed(state, str(error))
            return False
        due = newest_ms is not None and newest_ms > state.proof.at_ms
        state.drill_due_ms = newest_ms if due else None
        return due and self._may_begin

    @property
    def _may_begin(self) -> bool:
        return self._again_ms is None or self._clock.monotonic_ms() >= self._again_ms

    async def _drill(self, state: BackupState) -> None:
        store = await self._place.store()
        if store is None or isinstance(store, str):
            return
        try:
            found = await read_point(store, self._cluster_id, NEWEST)
            if why := await self._restored(found.copy):
                self._failed(state, why)
                return
            await self._prove(store, state, found)
        except NoPoint as error:
            self._failed(state, str(error))
        except StoreUnavailable as error:
            self._failed(
                state,
                f"The restore drill did not run, because the backup cannot be read: {error}. The "
                "drill is tried again by itself; if this lasts, check spec.backup and the network "
                "to the backup.",
            )
        except (MetadataLogError, OSError) as error:
            why = (
                "The restore drill did not run, because the operator's temporary directory cannot "
                f"be used: {error}. Give the operator's pod a writable temporary directory with "
                "enough space; the drill is tried again by itself."
            )
            self._failed(state, why)
        finally:
            await store.close()

    async def _restored(self, copy: ProvenCopy) -> str:
        """Restore a copy into a scratch directory, and return why the result differs, or an empty
        string."""
        end = copy.image.next_offset
        standing = self._log.tail.standing(MetadataOffset(end), copy.nonce, copy.image.term_id)
        if standing not in (Standing.WITHIN, Standing.TOO_OLD):
            return (
                f"The backup ends at offset {end}, but its last records differ from those of the "
                "metadata log, so it cannot restore this cluster. Give spec.backup another place."
            )
        raw = await asyncio.to_thread(encode_image, copy.image)
        if len(raw) > POINT_BYTES_MAX:
            return (
                f"The metadata at offset {end} has {len(raw)} bytes, but a restore can read at "
                f"most {POINT_BYTES_MAX}. Reduce the number of topics, partitions and users."
            )
        with tempfile.TemporaryDirectory(prefix="plimsoll-drill-") as scratch:
            image = await _through(Path(scratch), self._cluster_id, copy, raw)
        if not await asyncio.to_thread(_are_equal, image, copy.image):
            return (
                f"The metadata that the restore drill restored up to offset {end} differs from the "
                "backup; this is a bug of the operator, please report it."
            )
        now = self._log.image
        if now.next_offset == end and not await asyncio.to_thread(_are_equal, image, now):
            return (
                f"The backup up to offset {end} differs from the cluster's committed metadata, so "
                "it cannot restore this cluster. Give spec.backup another place."
            )
        return ""

    async def _prove(self, store: BackupStore, state: BackupState, found: BackupCopy) -> None:
        copy = found.copy
        proof = Proof(
            at_ms=self._clock.now_ms(), end=int(copy.image.next_offset), digest=copy.digest
        )
        await store.write(str(proof), b"")
        try:
            for one in await store.stored():
                earlier = parse_proof(one.name)
                if earlier is not None and earlier.at_ms < proof.at_ms:
                    await store.delete(one.name)
        except StoreUnavailable as error:
            logger.warning(
                "the operator cannot delete empty objects that earlier restore drills left in "
                "the backup of the cluster's metadata; the next drill tries again, and the "
                "backup itself is not affected: %s",
                error,
            )
        state.proof, state.drill_due_ms, state.drill_failed = proof, None, ""
        logger.info(
            "a restore drill succeeded: the backup of the cluster's metadata in %s can be "
            "restored up to metadata offset %d, with digest %s (%d objects, %d bytes)",
            *(store.place, proof.end, proof.digest, found.objects, found.bytes),
        )
        self._changed()

    def _failed(self, state: BackupState, why: str) -> None:
        self._again_ms = self._clock.monotonic_ms() + AGAIN_MS
        if why != state.drill_failed:
            logger.warning(
                "the operator could not restore the backup of the cluster's metadata in a test (a "
                "restore drill), so do not rely on the backup; the operator tests again in ten "
                "minutes, and the running cluster is not affected: %s",
                why,
            )
            state.drill_failed = why
            self._changed()


async def _through(scratch: Path, cluster_id: UUID, copy: ProvenCopy, raw: bytes) -> ClusterImage:
    """Restore a copy, with the encoded image `raw`, into a metadata log in the directory, and
    return what the log then holds. Raises MetadataLogError and OSError."""
    log = DirectoryLog(scratch, cluster_id)
    history = RestoredHistory(
        image_bytes=raw,
        end_offset=copy.image.next_offset,
        nonce=copy.nonce,
        controller_epoch=copy.controller_epoch,
    )
    try:
        await log.restore(history)
        opened = await log.open()
        return (await asyncio.to_thread(replay, opened, cluster_id)).image
    finally:
        await log.close()


def _are_equal(one: ClusterImage, other: ClusterImage) -> bool:
    return encode_image(one) == encode_image(other)
