"""A committed log as a backup follows it, and a place in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import ClusterImage, HistoryRestored
from plimsoll_core.cluster.records import (
    ControllerChanged,
    MembersChanged,
    MetadataVersionFinalized,
    Record,
)
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_operator.backup.backup_clock import BackupClock
from plimsoll_operator.backup.backup_stores import BackupStore, DirectoryBackup
from plimsoll_operator.backup.backup_writer import BackupWriter
from plimsoll_operator.backup.place_owner import PlaceOwner
from plimsoll_operator.controller.metadata_tail import MetadataTail
from plimsoll_operator.metalog.codec import encode_records


class FollowedLog:
    """The committed state of an active controller. `commit` is one batch."""

    def __init__(self) -> None:
        self.image = ClusterImage(cluster_id=CLUSTER)
        self.tail = MetadataTail(start=MetadataOffset(0), nonce=None)
        self.active = True
        # The image after each batch, by its end.
        self.images: dict[int, ClusterImage] = {}
        self.begin_term(1)
        self.commit(MetadataVersionFinalized(cause="test", metadata_version=5))
        self.begin_term(2)

    async def wait_active(self) -> None:
        assert self.active

    def begin_term(self, epoch: int, restored: HistoryRestored | None = None) -> None:
        version = self.image.metadata_version
        self.commit(
            ControllerChanged(
                cause="TakeOver",
                controller_epoch=ControllerEpoch(epoch),
                identity="o",
                term_id=f"term-{epoch}" if version >= 5 else "",
                restored=restored,
            ),
            epoch=epoch,
        )

    def commit(self, *records: Record, epoch: int | None = None) -> None:
        batch = MetadataBatchCopy(
            base_offset=MetadataOffset(self.image.next_offset),
            controller_epoch=ControllerEpoch(
                self.image.controller_epoch if epoch is None else epoch
            ),
            nonce=uuid4().hex[:16],
            records_json=encode_records(records),
            record_count=len(records),
        )
        self.image = apply_all(self.image, records)
        self.tail.append(batch)
        self.tail.terms = self.image.terms
        self.images[self.image.next_offset] = self.image

    def change(self, count: int = 1) -> None:
        """Commit batches of two records each."""
        for number in range(count):
            ids = tuple(BrokerId(one) for one in range(3 + number % 2))
            self.commit(
                MembersChanged(cause="spec", broker_ids=ids),
                MembersChanged(cause="spec", broker_ids=ids[:3]),
            )

    def forget(self) -> None:
        """Keep no batch in memory, as after many of them."""
        self.tail = MetadataTail(
            start=MetadataOffset(self.image.next_offset),
            nonce=self.tail.end_nonce,
            terms=self.image.terms,
        )


OWNER = PlaceOwner(uid="u1", key="kafka/main")


@dataclass(slots=True, kw_only=True)
class OnePlace:
    """`backup_writer.WantedPlace` that always gives the same store."""

    stored_in: BackupStore | str | None
    keep_ms: int = 7 * 86_400_000
    wanted: object = field(default_factory=object)
    owner: PlaceOwner = OWNER

    async def store(self) -> BackupStore | str | None:
        return self.stored_in


def writer_of(
    log: FollowedLog,
    store: BackupStore | str | Path | None,
    now_ms: Callable[[], int],
    owner: PlaceOwner = OWNER,
) -> BackupWriter:
    stored_in = DirectoryBackup(store) if isinstance(store, Path) else store
    place = OnePlace(stored_in=stored_in, owner=owner)
    return BackupWriter(CLUSTER, log, place, clock_of(now_ms), lambda: None)


def clock_of(now_ms: Callable[[], int]) -> BackupClock:
    """Clocks that all agree, and go on as `now_ms` does."""
    return BackupClock(now_ms, now_ms, lambda: None)


async def written(writer: BackupWriter, log: FollowedLog) -> None:
    """Run the writer until it has stored everything, and has nothing left to do."""
    idle, tail = False, log.tail
    wait_beyond = tail.wait_beyond

    async def waits(offset: MetadataOffset, within_ms: int) -> None:
        nonlocal idle
        idle = True
        await wait_beyond(offset, within_ms)

    tail.wait_beyond = waits  # type: ignore[method-assign]
    try:
        async with running(writer) as task:
            await until(lambda: task.done() or idle)
            assert not task.done(), task.exception()
    finally:
        tail.wait_beyond = wait_beyond  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def running(writer: BackupWriter) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(writer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
