"""Writes a cluster's committed metadata to its backup, off the commit path.

A term of the controller follows its own `MetadataTail`, as a broker does: committed batches only,
at most `TAIL_BYTES_MAX` of them in memory, and a snapshot of the image when it is too far behind.
So a place that is slow or gone holds back no commit and fills no memory. A later term goes on after
the last object that its log contains. Two writers at once, after a hand-over that one of them has
not noticed, store the same committed batches under different names, which harms nothing.
`place_owner` keeps another LogCluster with this cluster id away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import SKIPS_SINCE
from plimsoll_core.ids import MetadataOffset
from plimsoll_operator.backup import backup_objects
from plimsoll_operator.backup.backup_clock import BackupClock
from plimsoll_operator.backup.backup_objects import Content, ObjectName, ObjectTooLarge, Proof
from plimsoll_operator.backup.backup_reading import parsed
from plimsoll_operator.backup.backup_stores import BackupStore, StoredName, StoreUnavailable
from plimsoll_operator.backup.place_owner import CLAIM_MS, OwnedByAnother, PlaceClaims, PlaceOwner
from plimsoll_operator.backup.place_owner import NAME as OWNER
from plimsoll_operator.controller.metadata_restoration import EPOCHS_ABOVE
from plimsoll_operator.controller.metadata_tail import Committed, MetadataTail, Standing

FINALISED_MS = 120_000
"""How long the brokers of a new cluster may take to finalise the metadata version."""
TOO_OLD = (
    "A backup needs metadata version 0.3. Upgrade all brokers to that release; the version then "
    "follows by itself, and the backup begins."
)
logger = logging.getLogger("plimsoll.backup")

EVERY_S = 2.0
"""The least time in seconds between two objects: changes in between are stored together."""
LOOK_S = 30.0
"""How long a writer waits for new metadata before it looks at the spec again."""
AGAIN_S = 10.0
OBJECTS_MAX = 500
"""Objects after a snapshot until the next snapshot is stored."""
BYTES_MIN = 1024 * 1024
"""Bytes after a snapshot until the next one, at least; more if the snapshot is large."""
RATIO = 8
"""How much larger than stored the content of an earlier operator's objects is taken to be."""
SNAPSHOT_MS = backup_objects.DAY_MS
DELETES_MAX = 50
"""Most objects that are deleted after one write."""
LIST_MS = 3_600_000
"""How often the names in the place are read again: objects may be gone, and others too old."""


class WantedPlace(Protocol):
    """The place that the spec asks for."""

    async def store(self) -> BackupStore | str | None:
        """Return the place, a sentence that says why it cannot be used, or None if no backup is
        wanted."""

    @property
    def wanted(self) -> object:
        """Return what the spec asks for: while it is equal, the place is the same."""

    @property
    def keep_ms(self) -> int: ...

    @property
    def owner(self) -> PlaceOwner:
        """Return the LogCluster that writes."""


@dataclass(slots=True, kw_only=True)
class BackupState:
    """What is known of a cluster's backup. `why`: why it cannot be written, empty if it can;
    `not_deleted`: why old objects cannot be deleted, empty if they can; `end`: the metadata offset
    up to which it is stored; `stored_ms`: when something was stored last, or found stored;
    `oldest_ms`: the oldest point; `drill_failed`: why the last drill failed, empty if it did
    not."""

    place: str = ""
    why: str = ""
    not_deleted: str = ""
    end: int = 0
    stored_ms: int = 0
    oldest_ms: int = 0
    bytes: int = 0
    objects: int = 0
    # Since when something committed is not stored, by the monotonic clock; None if everything is.
    behind_since_ms: int | None = None
    proof: Proof | None = None
    drill_due_ms: int | None = None
    drill_failed: str = ""

    def behind_ms(self, monotonic_ms: int) -> int:
        return 0 if self.behind_since_ms is None else max(0, monotonic_ms - self.behind_since_ms)

    @property
    def proven_ms(self) -> int:
        return 0 if self.proof is None else self.proof.at_ms

    def overdue_ms(self, now_ms: int) -> int:
        """Return for how long a drill is due that has not succeeded yet."""
        return 0 if self.drill_due_ms is None else max(0, now_ms - self.drill_due_ms)


@dataclass(slots=True)
class _SinceSnapshot:
    """What follows the newest snapshot of the history, and that snapshot's bytes and time.
    `content`: the bytes that follow it, decompressed."""

    objects: int = 0
    bytes: int = 0
    content: int = 0
    snapshot_bytes: int = 0
    snapshot_ms: int = 0

    def due(self, now_ms: int) -> bool:
        return (
            self.objects >= OBJECTS_MAX
            or self.bytes > max(BYTES_MIN, 2 * self.snapshot_bytes)
            or now_ms >= self.snapshot_ms + SNAPSHOT_MS
        )


class FollowedController(Committed, Protocol):
    """The part of a controller that a backup follows: its committed state, while it is active."""

    @property
    def active(self) -> bool: ...

    async def wait_active(self) -> None: ...


class BackupWriter:
    """The backup of one cluster, as the operator that leads it writes it. `run` is a task of each
    term. `state` is None while no backup is wanted. `changed` is called when the state differs for
    people."""

    def __init__(
        self,
        cluster_id: UUID,
        log: FollowedController,
        place: WantedPlace,
        clock: BackupClock,
        changed: Callable[[], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._log = log
        self._place = place
        self._clock = clock
        self._claims = PlaceClaims(clock.now_ms, clock.monotonic_ms)
        self._changed = changed
        self._names: dict[ObjectName, int] = {}
        # Objects to delete.
        self._excess: list[ObjectName] = []
        self._since = _SinceSnapshot()
        self._end: ObjectName | None = None
        # By the monotonic clock, as durations are.
        self._listed_ms = 0
        self._claimed_ms = 0
        self._write_began_ms = 0
        self.state: BackupState | None = None

    async def run(self) -> None:
        """Write until cancelled, while the controller is active."""
        self._end, began_ms = None, None
        while True:
            await self._log.wait_active()
            wanted = self._place.wanted
            store = await self._place.store()
            if store is not None and self._log.image.metadata_version < SKIPS_SINCE:
                began_ms = self._clock.monotonic_ms() if began_ms is None else began_ms
                if self._clock.monotonic_ms() < began_ms + FINALISED_MS:
                    await asyncio.sleep(EVERY_S)
                    continue
                store = TOO_OLD
            if store is None:
                self._forget()
                await asyncio.sleep(EVERY_S)
                continue
            if isinstance(store, str):
                self._failed("", store)
                await asyncio.sleep(AGAIN_S)
                continue
            try:
                await self._follow(store, wanted)
            except StoreUnavailable as error:
                self._failed(
                    store.place,
                    f"The backup cannot be written to {store.place}: {error}. The operator tries "
                    "again.",
                )
                await asyncio.sleep(AGAIN_S)
            except OwnedByAnother as error:
                self._failed(store.place, str(error))
                await asyncio.sleep(LOOK_S)
            except ObjectTooLarge as error:
                self._failed(store.place, str(error))
                await asyncio.sleep(AGAIN_S)
            finally:
                await store.close()

    # --- writing ---------------------------------------------------------------------------------

    async def _follow(self, store: BackupStore, wanted: object) -> None:
        """Write to a place until the spec asks for another one. Raises `StoreUnavailable`,
        `OwnedByAnother` and `ObjectTooLarge`."""
        await self._list(store)
        while self._place.wanted == wanted and self._log.active:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._listed_ms + LIST_MS:
                await self._list(store)
            elif now_ms >= self._claimed_ms + CLAIM_MS:
                await self._claim(store, stored=True)
            tail = self._log.tail
            if self._end is not None and self._end.end >= tail.end and _continues(tail, self._end):
                self._stored()
                await self._drop_excess(store)
                await tail.wait_beyond(MetadataOffset(self._end.end), int(LOOK_S * 1000))
                continue
            self._begin_write()
            if self._since.due(self._clock.now_ms()) or not await self._write_batches(store, tail):
                await self._write_snapshot(store)
            await self._drop_excess(store)
            await asyncio.sleep(EVERY_S)

    async def _write_snapshot(self, store: BackupStore) -> None:
        image, nonce, end = self._log.image, self._log.tail.end_nonce, self._log.tail.end
        assert nonce is not None, "a term begins with a committed batch"
        assert end == image.next_offset
        name = ObjectName(
            is_snapshot=True,
            base=end,
            end=end,
            epoch=image.controller_epoch,
            before=nonce,
            nonce=nonce,
            written_ms=self._clock.now_ms(),
        )
        raw = await asyncio.to_thread(encode_image, image)
        size = await self._write(store, Content(name=name, term_id=image.term_id, image=raw))
        self._since = _SinceSnapshot(snapshot_bytes=size, snapshot_ms=name.written_ms)
        await self._find_excess()

    async def _write_batches(self, store: BackupStore, tail: MetadataTail) -> bool:
        """Store the next batches. Return False if they do not follow what is stored, or if too
        many bytes would then follow one snapshot."""
        last = self._end
        if last is None or not _continues(tail, last):
            return False
        batches = tail.read(MetadataOffset(last.end))
        content = self._since.content + backup_objects.content_bytes(batches)
        if content > backup_objects.BATCHES_BYTES_MAX:
            return False
        newest = batches[-1]
        name = ObjectName(
            is_snapshot=False,
            base=last.end,
            end=newest.end_offset,
            epoch=newest.controller_epoch,
            before=last.nonce,
            nonce=newest.nonce,
            written_ms=self._clock.now_ms(),
        )
        term_id = _term_at(self._log.image, name.end)
        size = await self._write(store, Content(name=name, term_id=term_id, batches=batches))
        self._since.objects += 1
        self._since.bytes += size
        self._since.content = content
        return True

    async def _write(self, store: BackupStore, content: Content) -> int:
        data = await asyncio.to_thread(backup_objects.encode, content, self._cluster_id)
        await store.write(str(content.name), data)
        self._names[content.name] = len(data)
        self._end = content.name
        self._stored()
        return len(data)

    # --- what the place has -----------------------------------------------------------------------

    async def _list(self, store: BackupStore) -> None:
        """Read the names in the place, and find the object after which this term goes on: the last
        one that its log contains and that ends a complete history."""
        found = await store.stored()
        sizes = {one.name: one.size for one in found}
        await self._claim(store, stored=OWNER in sizes)
        positions = self._log.tail.positions

        def known() -> tuple[dict[ObjectName, int], tuple[ObjectName, ...]]:
            names = {one: sizes[str(one)] for one in parsed(sizes)}
            return names, backup_objects.newest_history(names, positions)

        self._names, history = await asyncio.to_thread(known)
        self._listed_ms = self._clock.monotonic_ms()
        self._end, self._since = None, _SinceSnapshot()
        if history:
            self._end, self._since = history[-1], self._followed(history)
        state = self._known()
        state.place = store.place
        state.proof = newest_proof(found) or state.proof
        await self._find_excess()

    async def _claim(self, store: BackupStore, *, stored: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        await self._claims.claim(store, self._place.owner, stored=stored)
        self._claimed_ms = now_ms

    def _followed(self, history: tuple[ObjectName, ...]) -> _SinceSnapshot:
        first, rest = history[0], history[1:]
        size = sum(self._names[one] for one in rest)
        return _SinceSnapshot(
            objects=len(rest),
            bytes=size,
            content=RATIO * size,
            snapshot_bytes=self._names[first],
            snapshot_ms=first.written_ms,
        )

    async def _find_excess(self) -> None:
        own = contained(self._names, self._log.image)
        keep_ms, now_ms = self._place.keep_ms, self._clock.deletion_ms()
        self._excess = await asyncio.to_thread(backup_objects.excess, own, keep_ms, now_ms)

    async def _drop_excess(self, store: BackupStore) -> None:
        """Delete some of the objects that are not kept, the oldest first. A place that refuses it
        is asked again once names are listed; what is written does not depend on it."""
        if not self._excess:
            return
        why = ""
        try:
            for name in self._excess[:DELETES_MAX]:
                await store.delete(str(name))
                self._names.pop(name, None)
            del self._excess[:DELETES_MAX]
        except StoreUnavailable as error:
            self._excess, why = [], f"{error}."
        state = self._known()
        if why != state.not_deleted:
            if why:
                logger.warning(
                    "the operator cannot delete old objects of the backup of the cluster's "
                    "metadata and tries again; the backup itself is not affected: %s",
                    why,
                )
            state.not_deleted = why
            self._changed()

    # --- what is known ----------------------------------------------------------------------------

    def _known(self) -> BackupState:
        if self.state is None:
            self.state = BackupState()
        return self.state

    def _forget(self) -> None:
        if self.state is not None:
            self.state = None
            self._changed()

    def _begin_write(self) -> None:
        state = self._known()
        if state.behind_since_ms is None:
            state.behind_since_ms = self._clock.monotonic_ms()
        self._write_began_ms = self._clock.monotonic_ms()

    def _stored(self) -> None:
        """Note that everything up to `_end` is stored."""
        state, end = self._known(), self._end
        assert end is not None, "something is stored"
        failed, state.why = state.why, ""
        first = state.end == 0
        state.end, state.stored_ms = end.end, self._clock.now_ms()
        state.objects, state.bytes = len(self._names), sum(self._names.values())
        state.oldest_ms = min((one.written_ms for one in self._names if one.is_snapshot), default=0)
        behind = end.end < self._log.tail.end
        state.behind_since_ms = self._write_began_ms if behind else None
        if failed:
            logger.info("the cluster's metadata is backed up in %s again", state.place)
        if failed or first:
            self._changed()

    def _failed(self, place: str, why: str) -> None:
        state = self._known()
        state.place = place or state.place
        if state.behind_since_ms is None:
            state.behind_since_ms = self._clock.monotonic_ms()
        if why != state.why:
            logger.warning(
                "the cluster's metadata is not backed up at present; the operator tries again, "
                "and the cluster works on without the backup: %s",
                why,
            )
            state.why = why
            self._changed()


def contained(names: Iterable[ObjectName], image: ClusterImage) -> list[ObjectName]:
    """Return the objects that may be of this log's own history. No other is deleted: another
    cluster with this id may still write it, such as the source of the backup that this cluster was
    restored from. Epochs skip `EPOCHS_ABOVE` at a restore."""
    row = image.restored
    since = image.controller_epoch - EPOCHS_ABOVE // 2
    return [
        one
        for one in names
        if one.epoch <= image.controller_epoch
        and (row is None or one.end <= row.end_offset or one.epoch > since)
    ]


def newest_proof(found: list[StoredName]) -> Proof | None:
    """Return the newest drill that the names in a place tell of."""
    proofs = [one for name in found if (one := backup_objects.parse_proof(name.name)) is not None]
    return max(proofs, key=lambda one: one.at_ms, default=None)


def _continues(tail: MetadataTail, name: ObjectName) -> bool:
    """Return True if the log has every batch after the end of an object, and has that end."""
    if not tail.start <= name.end <= tail.end:
        return False
    return tail.standing(MetadataOffset(name.end), name.nonce) is Standing.WITHIN


def _term_at(image: ClusterImage, offset: int) -> str:
    """Return the id of the term that wrote the record before `offset`, "" if terms had none."""
    before = [term for term in image.terms if term.first_offset < offset]
    return before[-1].id if before else ""
