"""Finishes, at a start, what a crash left of a cleaned segment that had begun to replace others.

Called by recovery before anything else in a log's directory is looked at.  What to do,
`plimsoll_core.compaction.swap` says.  Files of a round that was not committed are recovery's to
remove, with all other leftovers.
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
    """Every swap whose log has its name; may be cut short and called again."""
    disk, directory = place.disk, place.directory
    bases = swap.committed(disk.list(directory))
    if bases:
        # Who was killed may not have synced that name yet: nothing goes before it is there to stay.
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
    """Where the batches end that can be read.  If the file is damaged, the segments from there on
    stay, and the look at the log's ends finds that they do not fit."""
    position, end, size = 0, base, file.size()
    try:
        while position < size:
            header = peek_header(file.pread(HEADER_SIZE, position))
            end = header.next_offset
            position += header.length
    except BatchError as error:
        logger.error("%s is damaged at %d: %s", file.path, position, error)
    return end
