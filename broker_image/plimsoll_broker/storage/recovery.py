"""Recovery: opens a log that may be on disk already, and repairs it.

Called by the store when a partition is loaded; a log in a directory that was made for it a moment
ago needs no recovery (`new_log`). After a clean stop the files are trusted if the ends
of each segment and its indexes agree. After any other stop everything from the recovery point on is
read once: CRCs, places and leader epochs are checked, indexes, leader epochs and producer states
are rebuilt, the log is truncated at the first bad batch and later segments are dropped. If a
checkpoint lies within a segment (a producer snapshot exists, and the indexes were synced with it),
nothing before it is read; otherwise the segment is read from its start.

Other contradictions are treated like a wrong CRC: the log is truncated there. After a clean stop,
when the cluster may count on this replica, the log goes offline instead; the next start, which
follows no clean stop, truncates it. Source: the protocol's load rules.

`verify` and `reindex` find the valid part of a segment before its file is trusted. Indexes are
hints: if they contradict the log, all of it is read and they are rebuilt. `damage`, `damaged` and
`check_ends` find the place from which a segment differs from what was written, and missing files.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.cleaner.segment_swap import finish_swaps
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_values import Known, LogContents, LogNotes, LogPlace
from plimsoll_broker.storage.producer_snapshots import ProducerSnapshots
from plimsoll_broker.storage.segment import INDEX_SUFFIXES, Segment, file_name, names
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_wire.batches import HEADER_SIZE, BadBatch, BatchError, BatchHeader, peek_header

logger = logging.getLogger("plimsoll.recovery")


class Extent(NamedTuple):
    """The valid part of a segment: the file position where it ends, and the offset of a batch that
    would follow.

    `leader_epoch`: that of its last batch. `reindexed`: True if the indexes were rebuilt. `error`:
    the fault of the segment at that position; None if the file ends there.
    """

    position: int
    next_offset: int
    leader_epoch: int = -1
    reindexed: bool = False
    error: BatchError | None = None


def verify(segment: Segment, *, sealed: bool) -> Extent:
    """Return the valid part of a segment. Read only the first batch and the batches at the ends of
    the indexes; if these disagree, read the whole segment and rebuild its indexes. `sealed`: True
    if it is not the active segment."""
    if segment.indexes_sane():
        try:
            return _ends(segment, sealed=sealed)
        except BatchError:
            pass  # a full read tells which of the two is wrong
    return reindex(segment)


def _ends(segment: Segment, *, sealed: bool) -> Extent:
    """Return the valid part of a segment according to its indexes. Raise BatchError if they
    contradict the log file."""
    base = segment.base_offset
    extent = Extent(0, base)
    if not segment.size:
        return extent
    first = peek_header(segment.file.pread(HEADER_SIZE, 0))
    position, expected = 0, first.last_offset
    if first.base_offset != base and not (segment.holes and first.base_offset > base):
        raise BatchError(BadBatch.PLACE, 0)
    if not _newest_time_is_known(segment):
        raise BatchError(BadBatch.OFFSETS, 0)  # the wrong entry of the other index is dropped now
    if count := len(segment.offset_index):
        relative, position = segment.offset_index[count - 1]
        expected = base + relative
    for at, header in segment.headers(position):
        if at == position and header.last_offset != expected:
            raise BatchError(BadBatch.PLACE, at)
        if header.max_timestamp > segment.max_timestamp:
            if sealed:  # then the time index is complete
                raise BatchError(BadBatch.OFFSETS, at)
            segment.max_timestamp = header.max_timestamp
            segment.max_timestamp_offset = header.last_offset
        extent = Extent(at + header.length, header.next_offset, header.leader_epoch)
    segment.first_timestamp = first.max_timestamp
    return extent


def _newest_time_is_known(segment: Segment) -> bool:
    """Return True if the last entry of the time index agrees with the batch that it names."""
    newest = segment.time_index.last
    if newest is None:
        return not segment.size
    found = segment.find(newest[1])
    return found is not None and names(found[1], *newest)


def reindex(segment: Segment) -> Extent:
    """Read the whole segment, rebuild its indexes up to the first bad batch, and return the valid
    part."""
    segment.reset_indexes()
    extent = Extent(0, segment.base_offset, reindexed=True)
    try:
        for position, header in segment.checked_headers(0, segment.base_offset):
            segment.index(position, header)
            end = position + header.length
            extent = Extent(end, header.next_offset, header.leader_epoch, reindexed=True)
    except BatchError as error:
        return extent._replace(error=error)
    return extent


def resume(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    """Return the position of the batch that begins at `offset`, where a checkpoint was taken, and
    the header of the batch before it.

    The indexes below `offset` are trusted, so only headers from their last entry on are read.
    Return None if the indexes do not lead there; the caller must then call `reset_indexes` and read
    the whole segment.
    """
    try:
        return _resume(segment, offset) if segment.indexes_sane() else None
    except BatchError:
        return None


def _resume(segment: Segment, offset: int) -> tuple[int, BatchHeader] | None:
    offsets, times = segment.offset_index, segment.time_index
    if not offsets.grows() or not times.grows():
        return None
    count = offsets.count_until(offset - 1 - segment.base_offset, 0)
    if not count:
        return None
    relative, position = offsets[count - 1]
    offsets.truncate(count)
    times.truncate_to(offset)  # what the checkpoint synced stays as it is
    if not _newest_time_is_known(segment):
        return None
    newest = times.last
    segment.max_timestamp, segment.max_timestamp_offset = newest or (-1, segment.base_offset)
    before: BatchHeader | None = None
    for at, header in segment.headers(position):
        if before is None:
            if header.last_offset != segment.base_offset + relative:
                return None
            segment.bytes_since_index = header.length
        elif header.base_offset >= offset:
            break
        else:
            segment.index(at, header)
        before, position = header, at + header.length
    if before is None or before.next_offset != offset:
        return None
    for _, first in segment.headers():
        segment.first_timestamp = first.max_timestamp
        break
    return position, before


class Damaged(Exception):
    """Raised if the segment is valid only up to `extent`. `mended`: True if only an index was wrong
    and has been rebuilt, so that the caller tries again without truncating."""

    def __init__(self, segment: Segment, extent: Extent, why: object) -> None:
        super().__init__(f"{segment.path.name}: {why}")
        self.segment = segment
        self.extent = extent
        self.mended = False


def damage(segment: Segment, error: BatchError) -> Damaged:
    """Read all of the segment after `error`, rebuild its indexes, and return the exception to
    raise, with the segment's valid part."""
    extent = reindex(segment)
    found = Damaged(segment, extent, extent.error or error)
    found.mended = extent.error is None
    return found


def damaged(segments: list[Segment], segment: Segment, extent: Extent) -> Damaged:
    """Return the exception to raise for a segment with a bad batch behind `extent`. If the leader
    epoch decreases there, the batch before may be the bad one. It is if no other batch before it
    has its epoch, as after a flipped bit in the epoch."""
    assert extent.error is not None, "the fault of a damaged segment is known"
    if extent.error.reason is BadBatch.EPOCH:
        before = batch_at(segments, extent.next_offset - 1)
        earlier = None if before is None else batch_at(segments, before[2].base_offset - 1)
        if before is not None and (
            earlier is None or earlier[2].leader_epoch != before[2].leader_epoch
        ):
            owner, position, header = before
            return Damaged(owner, Extent(position, header.base_offset), extent.error)
    return Damaged(segment, extent, extent.error)


def batch_at(segments: list[Segment], offset: int) -> tuple[Segment, int, BatchHeader] | None:
    """Return the batch that holds `offset`: segment, position and header. Return None if there is
    none. Raise Damaged."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return None
    try:
        found = segments[at].find(offset)
    except BatchError as error:
        raise damage(segments[at], error) from error
    return None if found is None else (segments[at], *found)


def check_ends(place: LogPlace, contents: LogContents, known: Known) -> None:
    """Raise StorageError if the last stop was clean and records that it left are missing at either
    end of the log, since the cluster may count on them. After any other stop the cluster does not.
    Log an error if the log has lost its beginning."""
    if known.clean and (why := _missing(contents, known.saved_start, known.recovery_point)):
        raise StorageError(StorageFault.CORRUPT, place.directory, why)
    if contents.beginning_lost:
        lost = (
            "log %s on this broker lost its first records: it starts at offset %d instead of %s; "
            "this broker copies them from a replica that has them; if brokers of the partition's "
            "other replicas are down, start them, because records that no replica has are lost"
        )
        base = contents.segments[0].base_offset
        logger.error(lost, place.directory.name, base, known.noted_start)


def _missing(contents: LogContents, saved_start: int | None, recovery_point: int | None) -> str:
    """Return a sentence about missing records that a clean stop had left, or an empty string if
    none are missing. Only the checkpoints can tell: a file that is shorter by whole batches, or a
    missing first or last segment, contradicts no other file."""
    end, base = contents.log_end_offset, contents.segments[0].base_offset
    if recovery_point is not None and end < recovery_point:
        return (
            f"records are missing after a clean stop: the log ends at offset {end}, but was on "
            f"the disk up to {recovery_point}"
        )
    if saved_start is not None and base > saved_start:
        return (
            f"records are missing after a clean stop: the first segment begins at offset {base}, "
            f"but the log began at {saved_start}"
        )
    return ""


_LEFTOVERS = (".tmp", ".deleted", ".cleaned", ".swap")
_INDEXES = INDEX_SUFFIXES
_DIGITS = 20


@dataclass(slots=True, kw_only=True)
class _Scan:
    """The result of reading a log at a start. `terms`: the leader epochs of the part that was read
    (from `read_from`), with their start offsets. `end_offset`: the log end. `producers`: the
    producer states at the log end; None if not enough was read to know them. `leader_epoch`: that
    of the last batch so far. `rebuilt`: the segments with rebuilt indexes. `unindexed`: those with
    transactions that were read without knowing the producers."""

    end_offset: int
    read_from: int
    terms: list[tuple[int, int]]
    leader_epoch: int = -1
    producers: ProducerStates | None = None
    rebuilt: list[Segment] = field(default_factory=list)
    unindexed: list[Segment] = field(default_factory=list)


def new_log(place: LogPlace, config: LogConfig, notes: LogNotes) -> Log:
    """Return an empty log in a directory that has just been made, so that nothing is looked for in
    it: the event loop makes new logs. Raise StorageError."""
    segment = Segment(place.disk, place.directory, 0, config.index_interval_bytes)
    segment.holes = config.holes
    contents = LogContents(
        segments=[segment],
        rebuilt=[],
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        epochs=EpochCache(),
        producers=ProducerStates(),
        beginning_lost=False,
    )
    return Log(place, config, contents, notes)


def load_log(place: LogPlace, config: LogConfig, known: Known, notes: LogNotes) -> Log:
    """Open the log in the directory of `place`, and repair it if necessary; start an empty log if
    there is none. Raise StorageError."""
    finish_swaps(place)
    _tidy(place)
    start = max(known.log_start_offset or 0, 0)
    segments = _open_segments(place, config, start)
    if not known.clean:
        _drop_below(place, segments, max(known.saved_start or 0, 0))
    for _ in range(2 * len(segments) + 2):  # each attempt cuts or repairs a segment
        try:
            contents = _contents(place, segments, known, start)
            break
        except Damaged as found:
            if found.mended:
                continue
            if known.clean:
                raise StorageError(StorageFault.CORRUPT, place.directory, str(found)) from found
            offset = found.extent.next_offset
            logger.error(
                "log %s on this broker is damaged, so the broker truncates it at offset %d and "
                "copies the later records from another replica; if brokers of the partition's "
                "other replicas are down, start them, because records that no replica has are "
                "lost: %s",
                *(place.directory.name, offset, found),
            )
            _cut(place, segments, found)
    else:
        raise StorageError(
            StorageFault.CORRUPT,
            place.directory,
            "a segment of the log is missing, or two segments hold the same offsets",
        )
    check_ends(place, contents, known)
    log = Log(place, config, contents, notes)
    if log.log_start_offset > log.log_end_offset:
        log.discard_to(log.log_start_offset)  # the records in between are deleted for all readers
        log.settle()
        return log
    for segment in segments[:-1]:
        segment.seal()
    segments[-1].release_indexes()
    log.prune_snapshots()
    return log


def _contents(place: LogPlace, segments: list[Segment], known: Known, start: int) -> LogContents:
    """Return the log's contents. Raise Damaged if a segment is not valid; the caller truncates it
    there and calls this again."""
    snapshots = ProducerSnapshots(place.disk, place.directory)
    lost = known.noted_start is not None and segments[0].base_offset > known.noted_start
    if lost:
        _forget_producers(place, snapshots)
    scan = _trusted(segments) if known.clean else _checked(place, segments, known)
    log_start = max(start, segments[0].base_offset)
    if log_start <= scan.end_offset:
        epochs = _epochs(place, segments, scan, log_start)
    else:
        epochs = EpochCache()
    recovery_point = scan.end_offset if known.clean else max(known.recovery_point or 0, 0)
    rebuilt = [segment for segment in scan.rebuilt if segment in segments]
    _sync_indexes(rebuilt, recovery_point)
    producers = scan.producers
    if producers is None:
        producers = ProducerStates()
        producers.transactions.committed(known.high_watermark or 0)
        if log_start <= scan.end_offset:
            read_from = snapshots.restore(producers, scan.end_offset)
            for segment in segments:
                if segment.base_offset < scan.end_offset:
                    _replay(segment, read_from, producers)
    producers.transactions.cut(scan.end_offset)
    _index_aborted(snapshots, segments, scan, producers)
    return LogContents(
        segments=segments,
        rebuilt=rebuilt,
        log_start_offset=log_start,
        log_end_offset=scan.end_offset,
        recovery_point=min(recovery_point, scan.end_offset),
        epochs=epochs,
        producers=producers,
        beginning_lost=lost,
    )


def _sync_indexes(rebuilt: list[Segment], recovery_point: int) -> None:
    """Sync the rebuilt indexes of segments below the recovery point, since later starts trust
    them."""
    for segment in rebuilt:
        if segment.base_offset < recovery_point:
            for file in segment.index_files():
                file.fsync()


def _forget_producers(place: LogPlace, snapshots: ProducerSnapshots) -> None:
    """Remove all producer snapshots of a log that has lost its beginning. Retries of the lost
    batches cannot be recognised, so the producer states must rest on the existing batches only."""
    if snapshots.remove(above=-1):
        place.disk.sync_directory(place.directory)


def _index_aborted(
    snapshots: ProducerSnapshots,
    segments: list[Segment],
    scan: _Scan,
    producers: ProducerStates,
) -> None:
    """Make the missing indexes of aborted transactions again, from the batches. An index is missing
    if its file is, although an earlier segment has one or the producer snapshot at the segment's
    end knows transactions; if it contradicts itself; or if the segment was read without knowing the
    producers. Raise Damaged."""
    known = scan.unindexed or producers.transactional
    if not known and all(each.aborted is None for each in segments):
        return
    begun = False
    for at, segment in enumerate(segments):
        last = at + 1 == len(segments)
        end = scan.end_offset if last else segments[at + 1].base_offset
        if segment in scan.unindexed or (begun and segment.aborted is None):
            missing = True
        elif segment.aborted is None:
            there = producers if last else snapshots.load(end)
            missing = there is not None and there.transactional
        else:
            missing = not segment.aborted.sane(end)
        if missing:
            _index_again(snapshots, segments, at)
        begun = segment.aborted is not None


def _index_again(snapshots: ProducerSnapshots, segments: list[Segment], at: int) -> None:
    """Make the index of aborted transactions of segment `at` anew, and sync it. The producers are
    read from the last snapshot at or below its base offset, and the batches from there on. Raise
    Damaged."""
    segment = segments[at]
    index = segment.begin_transactions()
    index.truncate(0)
    before = [offset for offset in snapshots.offsets() if offset <= segment.base_offset]
    for offset in reversed(before):
        if (producers := snapshots.load(offset)) is not None:
            break
    else:
        offset, producers = 0, ProducerStates()
    producers.transactions.committed(2**63 - 1)  # only the index asks, for open ones
    for each in segments[: at + 1]:
        _replay(each, offset, producers)
    index.write()
    index.file.fsync()  # no flush syncs that of a segment below the recovery point


def _replay(segment: Segment, read_from: int, producers: ProducerStates) -> None:
    """Apply the segment's batches from offset `read_from` on to the producers. Raise Damaged."""
    try:
        segment.replay(read_from, producers)
    except BatchError as error:
        raise damage(segment, error) from error


def _cut(place: LogPlace, segments: list[Segment], found: Damaged) -> None:
    """Truncate the log at the damage, and sync that: a power cut must not restore what is not
    trusted."""
    at = segments.index(found.segment)
    for later in reversed(segments[at + 1 :]):
        later.remove()
    del segments[at + 1 :]
    reindex(found.segment)
    found.segment.cut(found.extent.position, found.extent.next_offset)
    found.segment.file.fsync()
    ProducerSnapshots(place.disk, place.directory).remove(above=found.extent.next_offset)
    place.disk.sync_directory(place.directory)


def _tidy(place: LogPlace) -> None:
    """Remove the leftovers of interrupted operations: temporary files, and indexes without a log
    file."""
    names = place.disk.list(place.directory)
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    for name in names:
        stem, _, suffix = name.partition(".")
        orphan = f".{suffix}" in _INDEXES and stem not in logs
        if orphan or name.endswith(_LEFTOVERS):
            place.disk.remove(place.directory / name)


def _open_segments(place: LogPlace, config: LogConfig, start: int) -> list[Segment]:
    """Return the segments of the directory in order. If there is none, make one at offset
    `start`."""
    names = place.disk.list(place.directory)
    stems = (name.removesuffix(".log") for name in names if name.endswith(".log"))
    found = (int(stem) for stem in stems if stem.isdecimal() and len(stem) == _DIGITS)
    bases = sorted(base for base in found if base < 2**63) or [start]
    segments = [
        Segment(place.disk, place.directory, base, config.index_interval_bytes) for base in bases
    ]
    for segment in segments:
        segment.holes = config.holes
        if file_name(segment.base_offset, INDEX_SUFFIXES[-1]) in names:
            segment.begin_transactions()
    return segments


def _drop_below(place: LogPlace, segments: list[Segment], start: int) -> None:
    """Remove the segments wholly below `start`, without reading them: retention had removed them,
    and a power cut restored them. First make the name of the first segment that stays durable."""
    gone = [one for one, following in pairwise(segments) if following.base_offset <= start]
    if gone:
        place.disk.sync_directory(place.directory)
    for segment in gone:
        segments.remove(segment)
        segment.remove()


# --- after a clean stop -------------------------------------------------------------------------


def _trusted(segments: list[Segment]) -> _Scan:
    """Check only the ends of each segment, after a clean stop. Raise Damaged."""
    rebuilt: list[Segment] = []
    extent = _verified(segments, len(segments), rebuilt)
    end = extent.next_offset
    return _Scan(end_offset=end, read_from=end, terms=[], rebuilt=rebuilt)


def _verified(segments: list[Segment], count: int, rebuilt: list[Segment]) -> Extent:
    """Check that each of the first `count` segments ends where the next one begins, and append
    those with rebuilt indexes to `rebuilt`. Return the valid part of the last one checked; an empty
    one if `count` is 0. Raise Damaged."""
    extent = Extent(0, segments[0].base_offset)
    for at, segment in enumerate(segments[:count]):
        following = segments[at + 1] if at + 1 < len(segments) else None
        extent = verify(segment, sealed=following is not None)
        if extent.reindexed:
            rebuilt.append(segment)
        if extent.error is not None:
            raise damaged(segments, segment, extent)
        if following is None or extent.next_offset == following.base_offset:
            continue
        why = (
            f"the log segment {segment.path} ends at offset {extent.next_offset}, but the next "
            f"segment begins at offset {following.base_offset}"
        )
        raise Damaged(segment, extent, why)
    return extent


# --- after any other end ------------------------------------------------------------------------


def _checked(place: LogPlace, segments: list[Segment], known: Known) -> _Scan:
    """Read the log from the last checkpoint at or below the recovery point, and return the result.
    At the first bad batch truncate its segment, and remove the later segments from the disk and
    from `segments`. Raise Damaged if the damage may lie before that checkpoint."""
    first, recovery_point = 0, max(known.recovery_point or 0, 0)
    for at, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = at
    rebuilt: list[Segment] = []
    _uncover(segments[: first + 1])
    before = _verified(segments, first, rebuilt)
    snapshots = ProducerSnapshots(place.disk, place.directory)
    scan, position = _start(snapshots, segments[first], recovery_point, whole=first == 0)
    scan.leader_epoch = max(scan.leader_epoch, before.leader_epoch)
    if scan.producers is not None:
        scan.producers.transactions.committed(known.high_watermark or 0)
    dropped: list[Segment] = []
    for at in range(first, len(segments)):
        follows = at == first or segments[at].base_offset == scan.end_offset
        if not follows or not _check(segments, at, scan, position if at == first else 0):
            keep = at + 1 if follows else at
            dropped = segments[keep:]
            del segments[keep:]
            break
    for segment in reversed(dropped):
        segment.remove()
    if snapshots.remove(above=scan.end_offset) or dropped:
        # Durable removal, or a power cut could restore them beneath new records.
        place.disk.sync_directory(place.directory)
    scan.rebuilt += rebuilt
    return scan


def _uncover(segments: list[Segment]) -> None:
    """Truncate each segment where a batch reaches into the next segment, and sync it: such batches
    had been truncated before and a power cut restored them; the next segment holds newer
    records."""
    for segment, following in pairwise(segments):
        base = following.base_offset
        try:
            found = segment.find(base)
        except BatchError:
            continue  # the check of its ends reports it
        if found is not None and (
            found[1].base_offset == base or (segment.holes and found[1].base_offset > base)
        ):
            segment.cut(found[0], base)
            segment.file.fsync()


def _start(
    snapshots: ProducerSnapshots, segment: Segment, recovery_point: int, *, whole: bool
) -> tuple[_Scan, int]:
    """Return an empty scan and the file position at which it begins, in the segment of the recovery
    point: at a checkpoint within that segment, or at its start. `whole`: True if the segment is the
    log's first."""
    base = segment.base_offset
    for offset in reversed(snapshots.offsets()):
        if not base < offset <= recovery_point:
            continue
        producers = snapshots.load(offset)
        lacks = segment.aborted is None and producers is not None and producers.transactional
        resumed = resume(segment, offset) if producers is not None and not lacks else None
        if resumed is not None:
            position, before = resumed
            epoch = before.leader_epoch
            scan = _Scan(
                end_offset=offset,
                read_from=before.base_offset,
                terms=[(epoch, before.base_offset)],
                leader_epoch=epoch,
                producers=producers,
            )
            return scan, position
        break
    producers = snapshots.load(base)
    if producers is None and whole:
        producers = ProducerStates()  # producers of removed records are forgotten
    return _Scan(end_offset=base, read_from=base, terms=[], producers=producers), 0


def _check(segments: list[Segment], number: int, scan: _Scan, position: int) -> bool:
    """Read segment `number` from `position` on, add its batches to the scan, and rebuild its
    indexes. Return True if all are valid. Otherwise cut the segment at the first bad batch and
    return False."""
    segment = segments[number]
    if segment.aborted is not None:
        segment.aborted.truncate_to(scan.end_offset if position else segment.base_offset)
    if not position:
        segment.reset_indexes()
        scan.rebuilt.append(segment)
        scan.end_offset = segment.base_offset
    terms, producers = scan.terms, scan.producers
    end_position = position
    try:
        for at, header in segment.checked_headers(position, scan.end_offset, scan.leader_epoch):
            segment.index(at, header)
            if not terms or terms[-1][0] < header.leader_epoch:
                terms.append((header.leader_epoch, header.base_offset))
            if header.producer_id >= 0:
                if producers is not None:
                    segment.apply(at, header, producers)
                elif header.is_transactional and segment not in scan.unindexed:
                    scan.unindexed.append(segment)
            scan.end_offset, scan.leader_epoch = header.next_offset, header.leader_epoch
            end_position = at + header.length
    except BatchError as error:
        if error.reason is BadBatch.EPOCH:
            extent = Extent(end_position, scan.end_offset, error=error)
            raise damaged(segments, segment, extent) from error
        logger.warning(
            "after an unclean stop, this broker truncates log segment %s at offset %d, the first "
            "invalid batch; it copies later records from another replica in sync; without such a "
            "replica, the last records before the stop may be lost: %s",
            *(segment.path, scan.end_offset, error),
        )
        segment.size = end_position
        segment.drop_tail()
        return False
    return True


# --- leader epochs ------------------------------------------------------------------------------


def _epochs(place: LogPlace, segments: list[Segment], scan: _Scan, log_start: int) -> EpochCache:
    """Return the leader epochs: below the scanned part those of the file, from there on those of
    the batches. If the file is missing or contradicts a batch, take the leader epochs of all
    batches."""
    everything = bool(scan.terms) and scan.read_from == segments[0].base_offset
    data = None if everything else place.disk.read(place.directory / checkpoint_formats.EPOCHS)
    entries = None if data is None else checkpoint_formats.decode_epochs(data)
    cache = EpochCache()
    if everything:
        _assign(cache, scan.terms)
    elif entries is None or not _believable(cache, entries, segments, scan):
        cache.clear()
        for segment in segments:
            _assign(cache, _terms(segments, segment, cache))
    cache.truncate_from_end(scan.end_offset)
    cache.truncate_from_start(log_start, scan.end_offset)
    return cache


def _believable(
    cache: EpochCache, entries: list[tuple[int, int]], segments: list[Segment], scan: _Scan
) -> bool:
    """Fill the cache with the leader epochs of the file, below the scanned part, and of the scan.
    Return True if the batches at both ends of each leader epoch agree with it; otherwise False, and
    the caller fills the cache anew."""
    for epoch, start in entries:
        cache.assign(epoch, start)
    cache.truncate_from_end(scan.read_from)
    newest = cache.latest
    if scan.terms and newest != scan.terms[0][0] and scan.terms[0] not in entries:
        return False  # the first epoch read may have begun earlier
    _assign(cache, scan.terms)
    cache.truncate_from_start(segments[0].base_offset, scan.end_offset)
    offsets = {segment.base_offset for segment in segments if segment.size}
    for _, start in cache.entries:
        offsets |= {start - 1, start}
    offsets.add(scan.end_offset - 1)
    # Compaction may have removed the batch before an epoch's start; it keeps each epoch's first
    # batch.
    return all(
        (found := batch_at(segments, offset))
        and found[2].leader_epoch == cache.epoch_at(max(offset, found[2].base_offset))
        for offset in sorted(offsets)
        if segments[0].base_offset <= offset < scan.end_offset
    )


def _terms(
    segments: list[Segment], segment: Segment, cache: EpochCache
) -> Iterator[tuple[int, int]]:
    """Yield leader epoch and base offset of each batch of the segment. Raise Damaged if a leader
    epoch is lower than the one before."""
    position, next_offset = 0, segment.base_offset
    try:
        for at, header in segment.headers():
            if header.leader_epoch < (cache.latest or 0):
                raise BatchError(BadBatch.EPOCH, at)
            position, next_offset = at + header.length, header.next_offset
            yield header.leader_epoch, header.base_offset
    except BatchError as error:
        raise damaged(segments, segment, Extent(position, next_offset, error=error)) from error


def _assign(cache: EpochCache, terms: Iterable[tuple[int, int]]) -> None:
    """Add the leader epochs that are higher than the cache's latest one."""
    for epoch, start in terms:
        if epoch > (-1 if cache.latest is None else cache.latest):
            cache.assign(epoch, start)
