"""Completes, at a start, the swap of a cleaned segment that a crash interrupted.

Called by recovery before anything else in a log's directory is looked at.
`plimsoll_core.compaction.swap` decides what to do. Recovery itself removes the files of a round
that was not committed.
"""

from __future__ import annotations

import logging

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.log_values import LogPlace
from plimsoll_broker.storage.segment import file_name
from plimsoll_core.compaction import swap
from plimsoll_wire.batches import HEADER_SIZE, BatchError, peek_header

logger = logging.getLogger("plimsoll.storage")


def finish_swaps(place: LogPlace) -> None:
    """Complete every committed swap; may be interrupted and called again."""
    disk, directory = place.disk, place.directory
    bases = swap.committed(disk.list(directory))
    if bases:
        # The killed process may not have synced that name: nothing is removed before it is durable.
        disk.sync_directory(directory)
    for base in bases:
        path = directory / file_name(base, swap.LOG + swap.SWAP)
        end = _end(disk.open(path, make=False), base)
        logger.info("%s: the cleaned segment of [%d, %d) is put in place", directory, base, end)
        _finish(disk, place, base, end)


def _finish(disk: Disk, place: LogPlace, base: int, end: int) -> None:
    directory = place.directory
    rest = swap.rest(base, end, disk.list(directory))
    for old, new in rest.renames:
        disk.rename(directory / old, directory / new)
    for name in rest.removals:
        disk.remove(directory / name)
    disk.sync_directory(directory)
    disk.rename(directory / rest.last[0], directory / rest.last[1])
    disk.sync_directory(directory)


def _end(file: DiskFile, base: int) -> int:
    """Return the end offset of the readable batches. If the file is damaged, later segments stay,
    and the check of the log's ends finds the mismatch."""
    position, end, size = 0, base, file.size()
    try:
        while position < size:
            header = peek_header(file.pread(HEADER_SIZE, position))
            end = header.next_offset
            position += header.length
    except BatchError as error:
        logger.error("%s is damaged at %d: %s", file.path, position, error)
    return end
