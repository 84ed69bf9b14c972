"""FullDisks: puts logs back online once a full disk has room, or the process has free descriptors,
again.

A chore of `PeriodicChores`. A write without room, or a file that could not be opened, took one
replica offline; the half-written record was cut, and the controller removed the replica from its
ISR. When enough room is free the log is opened anew, as after a crash, and follows like any replica
that fell behind. If the partition has no leader, the replica is reported again and may be elected.
Other faults last until the broker restarts. A small reserve file, released when needed, allows
checkpoints to be written on a full disk.
"""

from __future__ import annotations

import logging
from functools import partial

from plimsoll_broker.background import in_thread
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_core.cluster.model import PartitionKey

logger = logging.getLogger("plimsoll.full_disks")

RESERVE = ".reserve"
RESERVE_BYTES = 2**20
ROOM_BYTES_MAX = 64 * 2**20
ROOM_SHARE = 0.05
"""The part of the volume that must be free before logs are put back online; at most 64 MiB are
needed."""
DESCRIPTORS_LEFT = 16
"""The number of descriptors that must be free before a log that met EMFILE is opened anew."""
WATCHED_MS = 10_000
"""The interval in ms between measurements of the free space while no log waits for it."""


def enough(free_bytes: int, all_bytes: int) -> bool:
    """Return True if enough of the volume is free to put logs back online. `free_bytes`: free
    space; `all_bytes`: size of the volume."""
    return free_bytes >= RESERVE_BYTES + min(ROOM_BYTES_MAX, int(all_bytes * ROOM_SHARE))


def out_for_room(manager: ReplicaManager) -> list[PartitionKey]:
    """Return the partitions that are offline only because the disk is full."""
    return _out_for(manager, StorageFault.FULL)


def _out_for(manager: ReplicaManager, fault: StorageFault) -> list[PartitionKey]:
    """Return the partitions that are offline because of this fault, including those with a log
    that could not be opened."""
    out = [
        hosted.key for hosted in manager if hosted.replica.failed and _is(hosted.log.fault, fault)
    ]
    return out + [key for key, error in manager.broken.items() if _is(error, fault)]


def _is(error: StorageError | None, *faults: StorageFault) -> bool:
    """Return True if the error is of one of these faults; False for None."""
    return error is not None and error.fault in faults


def _passes(error: StorageError | None) -> bool:
    """Return True if the fault may end without a restart of the broker: a full disk, or no free
    descriptor."""
    return _is(error, StorageFault.FULL, StorageFault.DESCRIPTORS)


class FullDisks:
    """Puts replicas that went offline for lack of disk space or descriptors back online.
    `PeriodicChores` calls `look` every second. It also reports the free space to `DiskShares` and
    keeps the reserve file."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._path = manager.store.directory / RESERVE
        self._reserved = False
        # When the room is measured next if no log waits for it, by the manager's clock.
        self._due_ms = 0

    async def look(self) -> None:
        """Measure the free space and report it to `DiskShares`; reopen logs that lacked
        descriptors. If logs are offline for lack of space, release the reserve file; once there is
        enough space, reopen these logs and create the reserve file again. If no log waits, the
        reserve file exists and the disk is not short, do this only every WATCHED_MS. Raise
        StorageError."""
        await self._look_for_descriptors()
        waiting = out_for_room(self._manager)
        manager = self._manager
        soon = waiting or not self._reserved or manager.disk_shares.look_again
        if not soon and manager.now_ms() < self._due_ms:
            return
        self._due_ms = manager.now_ms() + WATCHED_MS
        disk = manager.store.disk
        if waiting and self._reserved:
            self._reserved = False
            await in_thread(partial(disk.remove, self._path))
        room = await in_thread(partial(disk.room, manager.store.directory))
        manager.store.room = room
        await manager.disk_shares.looked(*room)
        if not enough(*room):
            return
        for key in waiting:
            await self._bring_back(key)
        if not self._reserved:
            await in_thread(partial(disk.set_apart, self._path, RESERVE_BYTES))
            self._reserved = True

    async def _look_for_descriptors(self) -> None:
        """Reopen logs that met EMFILE, once DESCRIPTORS_LEFT descriptors are free. The files that
        logs hold open are bounded, so any number of logs may return."""
        waiting = _out_for(self._manager, StorageFault.DESCRIPTORS)
        if waiting:
            left = await in_thread(self._manager.store.disk.descriptors_left)
            for key in waiting if left >= DESCRIPTORS_LEFT else ():
                await self._bring_back(key)

    async def _bring_back(self, key: PartitionKey) -> None:
        """Reopen a partition's log and put the replica back online, if it may return; otherwise, or
        if the log cannot be opened, leave it offline. Every await lets other tasks run, so each
        condition is checked again after it."""
        manager, hosted = self._manager, self._manager.hosted(key)
        if hosted is None:
            if self._may_return(key) and _passes(manager.broken.get(key)):
                self._return(key, None)
        elif self._is_out(hosted) and hosted.log not in manager.reopening:
            with manager.reopening.claim(hosted.log):
                await manager.flusher.quiet(hosted)
                log = await self._opened(hosted) if self._is_out(hosted) else None
                if log is not None and self._is_out(hosted):
                    self._return(key, log)

    def _may_return(self, key: PartitionKey) -> bool:
        """Return True if the partition is assigned to this broker and the controller has removed
        this replica from the ISR. Before that the controller could rely on records that the log no
        longer has."""
        manager = self._manager
        if manager.image is None or not manager.is_mine(key):
            return False
        return manager.settings.broker_id not in manager.image.partitions[key].isr

    def _is_out(self, hosted: Hosted) -> bool:
        """Return True if this replica is offline for lack of space or descriptors and may
        return."""
        waits = hosted.replica.failed and _passes(hosted.log.fault)
        here = self._manager.hosted(hosted.key) is hosted
        return here and waits and self._may_return(hosted.key)

    def _return(self, key: PartitionKey, log: Log | None) -> None:
        image = self._manager.image
        topic = None if image is None else image.topics.get(key.topic_id)
        logger.info(
            "%s-%d: the replica on this broker goes back online, because there is disk space or a "
            "file descriptor for its log again",
            *(key.topic_id if topic is None else topic.name, key.index),
        )
        self._manager.open_again(key, log)

    async def _opened(self, hosted: Hosted) -> Log | None:
        """Return the log, opened anew in a thread. Return None if that fails; the error becomes the
        log's fault."""
        try:
            return await in_thread(self._manager.store.begin_reopen(hosted.log))
        except StorageError as error:
            self._manager.driver.cannot_reopen(hosted, error)
            return None
