"""Opening a log that is (perhaps) on disk already, and making it whole again.

Called by the store when a partition is loaded.  After a clean stop the files are trusted; after any
other end everything from the recovery point on is read, once: CRCs and offset order are checked,
indexes, terms and producer states are taken up, the log is cut at the first bad batch and later
segments are dropped.  Where a checkpoint lies in the middle of a segment (a producer snapshot is
there, and the indexes were synced with it) nothing before it is read again, otherwise the segment
is read from its beginning.  Source: the protocol's load rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from plimsoll_broker.storage import checkpoints
from plimsoll_broker.storage.config import LogConfig
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.parts import LogContents, LogPlace
from plimsoll_broker.storage.segment import Segment
from plimsoll_broker.storage.snapshots import ProducerSnapshots
from plimsoll_core.replica.epochs import EpochCache
from plimsoll_core.replica.producers import ProducerStates
from plimsoll_wire.batches import BatchError

_LEFTOVERS = (".tmp", ".deleted", ".cleaned", ".swap")
_INDEXES = (".index", ".timeindex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the checkpoints say of a log; None where they say nothing."""

    recovery_point: int | None = None
    log_start_offset: int | None = None
    clean: bool = False


@dataclass(slots=True, kw_only=True)
class _Scan:
    """What a look at the segments found: terms in the part that was read, the log's end, and the
    producers as of then (None: what was read is not enough to say).  `rebuilt`: segments whose
    indexes were made again."""

    end_offset: int
    read_from: int
    terms: list[tuple[int, int]]
    producers: ProducerStates | None = None
    rebuilt: list[Segment] = field(default_factory=list)


def load_log(
    place: LogPlace, config: LogConfig, known: Known, before_cut: Callable[[int], None]
) -> Log:
    """Open the log in `place`, or start an empty one there."""
    _tidy(place)
    start = known.log_start_offset or 0
    segments = _open_segments(place, config, start)
    try:
        scan = _trusted(segments) if known.clean else None
        if scan is None:
            scan = _checked(place, segments, known.recovery_point or 0)
        epochs = _epochs(place, segments, scan)
    except BatchError as error:
        raise StorageError(StorageFault.CORRUPT, place.directory, str(error)) from error
    log_start = max(start, segments[0].base_offset)
    recovery_point = scan.end_offset if known.clean else (known.recovery_point or 0)
    rebuilt = [segment for segment in scan.rebuilt if segment in segments]
    for segment in rebuilt:
        if segment.base_offset < recovery_point:  # there indexes are believed
            for file in segment.index_files():
                file.fsync()
    contents = LogContents(
        segments=segments,
        rebuilt=rebuilt,
        log_start_offset=log_start,
        log_end_offset=scan.end_offset,
        recovery_point=min(recovery_point, scan.end_offset),
        epochs=epochs,
        producers=ProducerStates() if scan.producers is None else scan.producers,
    )
    log = Log(place, config, contents, before_cut)
    if log_start > log.log_end_offset:
        log.discard_to(log_start)  # what lies between is gone for everybody
        return log
    epochs.truncate_from_end(log.log_end_offset)
    epochs.truncate_from_start(log_start)
    if scan.producers is None:
        try:
            log.rebuild_producers()
        except BatchError as error:
            raise StorageError(StorageFault.CORRUPT, place.directory, str(error)) from error
    for segment in segments[:-1]:
        segment.seal()
    segments[-1].release_indexes()
    log.prune_snapshots()
    return log


def _tidy(place: LogPlace) -> None:
    """Remove what an interrupted step left: temporary files, indexes without their log."""
    names = place.disk.list(place.directory)
    logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    for name in names:
        stem, _, suffix = name.partition(".")
        orphan = f".{suffix}" in _INDEXES and stem not in logs
        if orphan or name.endswith(_LEFTOVERS):
            place.disk.remove(place.directory / name)


def _open_segments(place: LogPlace, config: LogConfig, start: int) -> list[Segment]:
    names = place.disk.list(place.directory)
    stems = (name.removesuffix(".log") for name in names if name.endswith(".log"))
    bases = sorted(int(stem) for stem in stems if stem.isdecimal()) or [start]
    return [
        Segment(place.disk, place.directory, base, config.index_interval_bytes) for base in bases
    ]


# --- after a clean stop -------------------------------------------------------------------------


def _trusted(segments: list[Segment]) -> _Scan | None:
    """Only the active segment's tail is walked, for the log's end.  None: not clean after all."""
    rebuilt = [segment for segment in segments if not segment.indexes_sane()]
    for segment in rebuilt:
        _reindex(segment)
    active = segments[-1]
    end_offset = active.base_offset
    position = active.offset_index.position_for(2**31 + active.base_offset)
    try:
        for _, header in active.headers():
            active.first_timestamp = header.max_timestamp
            break
        for _, header in active.headers(position):
            end_offset = header.next_offset
            if header.max_timestamp > active.max_timestamp:
                active.max_timestamp = header.max_timestamp
                active.max_timestamp_offset = header.last_offset
    except BatchError:
        return None
    return _Scan(end_offset=end_offset, read_from=end_offset, terms=[], rebuilt=rebuilt)


def _reindex(segment: Segment) -> None:
    segment.reset_indexes()
    for position, header in segment.headers():
        segment.index(position, header)


# --- after any other end ------------------------------------------------------------------------


def _checked(place: LogPlace, segments: list[Segment], recovery_point: int) -> _Scan:
    """Read everything from the last checkpoint at or below the recovery point on; cuts
    `segments`."""
    first = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = at
    rebuilt = [segment for segment in segments[:first] if not segment.indexes_sane()]
    for segment in rebuilt:
        _reindex(segment)
    snapshots = ProducerSnapshots(place.disk, place.directory)
    scan, position = _start(snapshots, segments[first], recovery_point, whole=first == 0)
    dropped: list[Segment] = []
    for at in range(first, len(segments)):
        follows = at == first or segments[at].base_offset == scan.end_offset
        if not follows or not _check(segments[at], scan, position if at == first else 0):
            keep = at + 1 if follows else at
            dropped = segments[keep:]
            del segments[keep:]
            break
    for segment in dropped:
        segment.remove()
    if snapshots.remove(above=scan.end_offset) or dropped:
        # The next power cut must not bring them back beneath what is written from now on.
        place.disk.sync_directory(place.directory)
    scan.rebuilt += rebuilt
    return scan


def _start(
    snapshots: ProducerSnapshots, segment: Segment, recovery_point: int, *, whole: bool
) -> tuple[_Scan, int]:
    """Where to begin in the segment of the recovery point; `whole`: it is the log's first."""
    base = segment.base_offset
    for offset in reversed(snapshots.offsets()):
        if not base < offset <= recovery_point:
            continue
        producers = snapshots.load(offset)
        resumed = segment.resume(offset) if producers is not None else None
        if resumed is not None:
            position, before = resumed
            terms = [(before.leader_epoch, before.base_offset)]
            scan = _Scan(
                end_offset=offset, read_from=before.base_offset, terms=terms, producers=producers
            )
            return scan, position
        break
    producers = ProducerStates() if whole else snapshots.load(base)
    return _Scan(end_offset=base, read_from=base, terms=[], producers=producers), 0


def _check(segment: Segment, scan: _Scan, position: int) -> bool:
    """Whether all of the segment is good from `position` on; if not, it is cut at the first bad
    batch."""
    if not position:
        segment.reset_indexes()
        scan.rebuilt.append(segment)
        scan.end_offset = segment.base_offset
    terms, producers = scan.terms, scan.producers
    end_position = position
    try:
        for at, header in segment.checked_headers(position, scan.end_offset):
            segment.index(at, header)
            if not terms or terms[-1][0] < header.leader_epoch:
                terms.append((header.leader_epoch, header.base_offset))
            if producers is not None and header.producer_id >= 0:
                producers.update(header)
            scan.end_offset = header.next_offset
            end_position = at + header.length
    except BatchError:
        segment.size = end_position
        segment.drop_tail()
        return False
    return True


# --- leader epochs ------------------------------------------------------------------------------


def _epochs(place: LogPlace, segments: list[Segment], scan: _Scan) -> EpochCache:
    """The file's terms below what was read, the batches' own from there on.

    A file that is missing or disagrees with a batch is not believed: all headers are read instead.
    """
    everything = bool(scan.terms) and scan.read_from == segments[0].base_offset
    data = None if everything else place.disk.read(place.directory / checkpoints.EPOCHS)
    entries = None if data is None else checkpoints.decode_epochs(data)
    if everything:
        cache = EpochCache()
        _assign(cache, scan.terms)
        return cache
    if entries is not None:
        cache = EpochCache(entries)
        cache.truncate_from_end(scan.read_from)
        newest = cache.latest
        if not scan.terms or newest == scan.terms[0][0] or scan.terms[0] in entries:
            # Otherwise the first term that was read may have begun before what was read.
            _assign(cache, scan.terms)
            if _agrees(cache, segments):
                return cache
    cache = EpochCache()
    for segment in segments:
        _assign(
            cache, ((header.leader_epoch, header.base_offset) for _, header in segment.headers())
        )
    return cache


def _assign(cache: EpochCache, terms: Iterable[tuple[int, int]]) -> None:
    for epoch, start in terms:
        if epoch > (-1 if cache.latest is None else cache.latest):
            cache.assign(epoch, start)


def _agrees(cache: EpochCache, segments: list[Segment]) -> bool:
    """Every segment's first batch is of the term that the cache has there."""
    for segment in segments:
        for _, header in segment.headers():
            if cache.epoch_at(header.base_offset) != header.leader_epoch:
                return False
            break
    return True
