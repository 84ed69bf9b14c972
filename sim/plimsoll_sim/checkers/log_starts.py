"""Checks log starts: a record disappears only by retention, or by a client's request, in a log
that held it. Records that a client was told are deleted do not come back with another leader.

Called by the replica checker for each change. A log start is allowed if all records below it were
removed from a log that held them: by age or size, according to the broker's configs and wall clock,
or by a DeleteRecords request. It is also allowed if another log validly begins there. For a log
that was truncated below its own start, only the second reason counts. The marker of a clean stop is
checked here, too (I25).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.storage.checkpoint_formats import CLEAN_SHUTDOWN
from plimsoll_sim.environment.simulated_disk import FileNode, Volume
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.partition_ghost import (
    CommittedBatch,
    Copy,
    LogRetention,
    PartitionGhost,
    Violation,
)

CLOCK_STEP_MS_MAX = 600_000
"""Bound in milliseconds on the steps of a broker's wall clock. A broker with a clock that steps by
more deletes no records by age."""


class BrokerClock(NamedTuple):
    """Inputs of retention: the broker's wall clock in milliseconds, and the maximum size of a
    segment in bytes."""

    wall_ms: int
    segment_bytes: int


def moved(
    ghost: PartitionGhost,
    host: BrokerHost,
    hosted: Hosted,
    held: Sequence[CommittedBatch],
    *,
    cut: bool,
) -> None:
    """Handle a change of a log's start: accept the new start if it is allowed. `held`: the batches
    that the log held before; `cut`: True if its end was truncated too, in the same lifetime."""
    copy, start = ghost.copy_of(host.id), hosted.log.log_start_offset
    if start < copy.begins:
        # Cut below its own start, or an older checkpoint: then it holds again what it had.
        copy.begins = 0 if cut else start
    if start <= copy.begins:
        return
    others = [other.begins for other in ghost.copies.values()]
    wall_ms = time.time_ns() // 1_000_000 + _offset_ms(host)
    asked = start <= min(ghost.deleted, ghost.true_high_watermark)
    clock = BrokerClock(wall_ms, hosted.log.config.segment_bytes)
    retained = _retained(copy, start, held, retention_of(hosted), clock)
    # A broker that let go of it in its last step did so by what it knew then.
    retained = retained or _retained(copy, start, held, copy.retention, clock)
    if start <= max(ghost.start, *others) or asked or retained:
        copy.begins = start


def moved_out_of_service(ghost: PartitionGhost, host: BrokerHost, hosted: Hosted) -> None:
    """Handle a new start of a log that is out of service because of a full disk, in which retention
    freed space. Once back in service the log may begin there, but not higher."""
    copy = ghost.copy_of(host.id)
    if hosted.log.log_start_offset > copy.begins:
        moved(ghost, host, hosted, copy.batches, cut=False)
        copy.retention = retention_of(hosted)


def retention_of(hosted: Hosted) -> LogRetention:
    config = hosted.log.config
    return LogRetention(config.retention_bytes, config.retention_ms)


def check(ghost: PartitionGhost, broker_id: int, copy: Copy, *, leads: bool) -> None:
    """Check that the log of a leader, or of a replica that may become leader, begins at an allowed
    log start."""
    if copy.start <= max(ghost.start, copy.begins):
        if leads:
            ghost.start = max(ghost.start, copy.start)
        return
    gone = ghost.beyond(copy)
    if not gone:
        return
    sentence = (
        f"{ghost.name}: {broker_id} begins at {copy.start}, and no retention of a log that held "
        f"them let go of {[batch.ident for batch in gone]}"
    )
    if not leads:
        raise Violation("LeaderCandidate", sentence)
    acked = any(batch.ident in ghost.acked for batch in gone)
    if ghost.unclean_epoch >= 0:
        raise Violation("Reported", f"{sentence}; no election told of them")
    raise Violation("AckedNotLost" if acked else "LeaderCompleteness", sentence)


def check_deleted(ghost: PartitionGhost, broker_id: int, copy: Copy) -> None:
    """Check that the log of a leader, or of a replica that may become clean leader, has no record
    below the offset of an answered DeleteRecords."""
    if copy.start < ghost.answered and copy.end > copy.start:
        raise Violation(
            "DeletedStays",
            f"{ghost.name}: {broker_id} leads or may, and begins at {copy.start}; a client was "
            f"told that nothing is left below {ghost.answered}",
        )


def _retained(
    copy: Copy,
    start: int,
    held: Sequence[CommittedBatch],
    retention: LogRetention,
    clock: BrokerClock,
) -> bool:
    """Return True if retention allowed the removal of the batches below `start`: each was too old,
    or enough bytes came after it."""
    bytes_kept, ms_kept = retention
    gone = [batch for batch in held if batch.last < start]
    if not gone or gone[-1].last + 1 < start:
        return False
    left = sum(batch.size for batch in copy.batches if batch.last >= start)
    # How many bytes the segment of a batch from the future may still reach back.
    reach = 0
    for batch in reversed(gone):
        # A segment with one of the future goes by its file's time, which is not looked at here.
        reach = clock.segment_bytes if batch.timestamp > clock.wall_ms else reach - batch.size
        old = reach > 0 or clock.wall_ms - batch.timestamp > (ms_kept or 0)
        if ms_kept is None or not old:
            return bytes_kept is not None and left >= bytes_kept
        left += batch.size
    return True


def _offset_ms(host: BrokerHost) -> int:
    """Return the error of the broker's wall clock in milliseconds; 0 if it is too large for
    retention by age."""
    offset = 0 if host.process is None else host.process.wall_offset_ms
    return offset if abs(offset) <= CLOCK_STEP_MS_MAX else 0


def check_marker(name: str, volume: Volume, directory: Path) -> None:
    """Check the marker file of a clean shutdown: if it exists, every log is durable on the disk, so
    that a power cut can remove none of it."""
    if not isinstance(volume.find(directory / CLEAN_SHUTDOWN), FileNode):
        return
    for path, log in volume.nodes(directory, ".log"):
        served = Path(path).parent.name.rpartition("-")[2].isdecimal()
        if served and log.unsynced:
            raise Violation("Marker", f"{name} is marked as clean, but {path} is not on the disk")
