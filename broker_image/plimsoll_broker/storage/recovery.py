"""Opening a log that is (perhaps) on disk already, and making it whole again.

Called by the store when a partition is loaded.  After a clean stop the files are trusted; after any
other end everything from the recovery point on is read: CRCs and offset order are checked, the log
is cut at the first bad batch and later segments are dropped.  Source: the protocol's load rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from plimsoll_broker.storage import checkpoints
from plimsoll_broker.storage.config import LogConfig
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.parts import LogContents, LogPlace
from plimsoll_broker.storage.segment import Segment
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
    """What a look at the segments found: terms in the part that was read, and the log's end."""

    end_offset: int
    read_from: int
    terms: list[tuple[int, int]]


def load_log(
    place: LogPlace, config: LogConfig, known: Known, save_recovery_point: Callable[[], None]
) -> Log:
    """Open the log in `place`, or start an empty one there."""
    _tidy(place)
    start = known.log_start_offset or 0
    segments = _open_segments(place, config, start)
    try:
        scan = _trusted(segments) if known.clean else None
        if scan is None:
            scan = _checked(segments, known.recovery_point or 0)
        epochs = _epochs(place, segments, scan)
    except BatchError as error:
        raise StorageError(StorageFault.CORRUPT, place.directory, str(error)) from error
    log_start = max(start, segments[0].base_offset)
    recovery_point = scan.end_offset if known.clean else (known.recovery_point or 0)
    contents = LogContents(
        segments=segments,
        log_start_offset=log_start,
        log_end_offset=scan.end_offset,
        recovery_point=min(recovery_point, scan.end_offset),
        epochs=epochs,
        producers=ProducerStates(),
    )
    log = Log(place, config, contents, save_recovery_point)
    if log_start > log.log_end_offset:
        log.discard_to(log_start)  # what lies between is gone for everybody
        return log
    epochs.truncate_from_end(log.log_end_offset)
    epochs.truncate_from_start(log_start)
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
    for segment in segments:
        if not segment.indexes_sane():
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
    return _Scan(end_offset=end_offset, read_from=end_offset, terms=[])


def _reindex(segment: Segment) -> None:
    segment.reset_indexes()
    for position, header in segment.headers():
        segment.index(position, header)


# --- after any other end ------------------------------------------------------------------------


def _checked(segments: list[Segment], recovery_point: int) -> _Scan:
    """Read everything from the segment that holds the recovery point on; cuts `segments`."""
    first = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = at
    for segment in segments[:first]:
        if not segment.indexes_sane():
            _reindex(segment)
    scan = _Scan(end_offset=0, read_from=segments[first].base_offset, terms=[])
    for at in range(first, len(segments)):
        follows = at == first or segments[at].base_offset == scan.end_offset
        if not follows or not _check(segments[at], scan):
            keep = at + 1 if follows else at
            for dropped in segments[keep:]:
                dropped.remove()
            del segments[keep:]
            break
    return scan


def _check(segment: Segment, scan: _Scan) -> bool:
    """Whether all of the segment is good; if not, it is cut at the first bad batch."""
    segment.reset_indexes()
    scan.end_offset = segment.base_offset
    end_position = 0
    try:
        for position, header in segment.checked_headers():
            segment.index(position, header)
            if not scan.terms or scan.terms[-1][0] < header.leader_epoch:
                scan.terms.append((header.leader_epoch, header.base_offset))
            scan.end_offset = header.next_offset
            end_position = position + header.length
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
    data = place.disk.read(place.directory / checkpoints.EPOCHS)
    entries = None if data is None else checkpoints.decode_epochs(data)
    if entries is not None:
        cache = EpochCache(entries)
        cache.truncate_from_end(scan.read_from)
        newest = cache.latest
        if (
            not scan.terms
            or newest == scan.terms[0][0]
            or scan.read_from == segments[0].base_offset
        ):
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
