"""The objects of a backup of the metadata log: their names, their content, and which of them make a
point in time. Pure.

An object is a snapshot of the image, or committed batches that follow another object. Its name says
what it holds, so that a list of names is enough to choose. No object is changed once it is stored.
An object of a deposed operator holds committed batches as any other; the same batches may be stored
twice. A restored log makes a branch: the higher controller epoch is the newer history.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records
from plimsoll_core.cluster.records import ControllerChanged
from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_core.messages.requests import LogPosition

SNAPSHOT_BYTES_MAX = 36 * 1024 * 1024
"""Most decompressed bytes of a snapshot."""
BATCHES_BYTES_MAX = 12 * 1024 * 1024
"""Most decompressed bytes of all batches that follow one snapshot."""
POINT_BYTES_MAX = SNAPSHOT_BYTES_MAX + BATCHES_BYTES_MAX
"""Most decompressed bytes of all objects of one point. A drill holds them in memory, and an image
as large in the pod's /tmp."""
STORED_BYTES_MAX = 64 * 1024 * 1024
"""Most stored bytes of all objects of one point: those that do not compress, and their headers."""
BATCH_FRAME_BYTES = 256
"""More than what a batch takes beside its records."""
OBJECTS_MAX = 20_000
"""Most objects of one point."""
DAY_MS = 86_400_000
FINE_MS = DAY_MS
"""For how long each stored change stays a point of its own. Of older times the snapshots are kept,
so that the number of objects is bounded."""

_NAME = re.compile(
    r"(?P<kind>snapshot|batches)-(?P<end>\d{20})-(?P<epoch>\d{10})-(?P<base>\d{20})"
    r"-(?P<before>[0-9a-f]{1,32}|none)-(?P<nonce>[0-9a-f]{1,32})-(?P<ms>\d{13})"
)
_PROOF = re.compile(r"proved-(?P<ms>\d{13})-(?P<end>\d{20})-(?P<digest>[0-9a-f]{16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """What an object holds: with `is_snapshot` the image after `end` records, else the batches from
    offset `base` up to `end`, exclusive. `nonce`, `epoch`: those of the last batch; `before`: the
    nonce of the batch before `base`, None at the beginning of a log; `written_ms`: the writer's
    wall clock."""

    is_snapshot: bool
    base: int
    end: int
    epoch: int
    before: str | None
    nonce: str
    written_ms: int

    def __str__(self) -> str:
        kind = "snapshot" if self.is_snapshot else "batches"
        return (
            f"{kind}-{self.end:020d}-{self.epoch:010d}-{self.base:020d}-{self.before or 'none'}"
            f"-{self.nonce}-{self.written_ms:013d}"
        )

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the key by which a newer history, and then a later end, is greater."""
        return (self.epoch, self.end, self.written_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A restore drill that succeeded at `at_ms`: the backup up to offset `end`, with the
    digest of its image."""

    at_ms: int
    end: int
    digest: str

    def __str__(self) -> str:
        return f"proved-{self.at_ms:013d}-{self.end:020d}-{self.digest}"


def parse(name: str) -> ObjectName | None:
    """Return what the object `name` holds, or None if the name is not one of an object."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    before = found["before"]
    parsed = ObjectName(
        is_snapshot=found["kind"] == "snapshot",
        base=int(found["base"]),
        end=int(found["end"]),
        epoch=int(found["epoch"]),
        before=None if before == "none" else before,
        nonce=found["nonce"],
        written_ms=int(found["ms"]),
    )
    if parsed.is_snapshot:
        return parsed if (parsed.base, parsed.before) == (parsed.end, parsed.nonce) else None
    return parsed if parsed.base < parsed.end else None


def parse_proof(name: str) -> Proof | None:
    """Return the drill that an object named `name` stands for; None if it is no such name."""
    found = _PROOF.fullmatch(name)
    if found is None:
        return None
    return Proof(at_ms=int(found["ms"]), end=int(found["end"]), digest=found["digest"])


# --- content --------------------------------------------------------------------------------------


class _Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first line of an object. `sha256`: of the stored bytes that follow; `size`: their
    decompressed size; `term_id`: that of the last record."""

    name: str
    cluster_id: UUID
    size: int
    sha256: str
    term_id: str
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of an object: an encoded image, or batches. `term_id`: the controller term at the
    end of it; `size`: the decompressed bytes that were read."""

    name: ObjectName
    term_id: str
    image: bytes = b""
    batches: tuple[MetadataBatchCopy, ...] = ()
    size: int = field(default=0, compare=False)

    @property
    def position(self) -> LogPosition:
        """Return the position in the metadata log at the end of the object."""
        return LogPosition(
            applied_offset=MetadataOffset(self.name.end),
            nonce=self.name.nonce,
            controller_epoch=ControllerEpoch(self.name.epoch),
            term_id=self.term_id,
        )


class ObjectUnreadable(Exception):
    """Raised if the bytes of an object are not what its name says. The message is a part of a
    sentence."""


class ObjectTooLarge(Exception):
    """Raised if a content is too large for a backup: no restore would read it. The message is a
    sentence."""


_header = msgspec.json.Decoder(_Header)
_batches = msgspec.msgpack.Decoder(tuple[MetadataBatchCopy, ...])


def encode(content: Content, cluster_id: UUID) -> bytes:
    """Return the bytes to store for an object. Raises `ObjectTooLarge`."""
    name = content.name
    raw = content.image if name.is_snapshot else msgspec.msgpack.encode(content.batches)
    bytes_max = SNAPSHOT_BYTES_MAX if name.is_snapshot else BATCHES_BYTES_MAX
    if len(raw) > bytes_max:
        raise ObjectTooLarge(
            f"The metadata at offset {name.end} cannot be backed up: it takes {len(raw)} bytes, "
            f"and an object of a backup holds at most {bytes_max}. Reduce the number of topics, "
            "partitions and users."
        )
    stored = zlib.compress(raw, 6)
    header = _Header(
        name=str(name),
        cluster_id=cluster_id,
        size=len(raw),
        sha256=hashlib.sha256(stored).hexdigest(),
        term_id=content.term_id,
    )
    return msgspec.json.encode(header) + b"\n" + stored


def decode(
    data: bytes, name: ObjectName, cluster_id: UUID, bytes_max: int = POINT_BYTES_MAX
) -> Content:
    """Return the content of the object `name`. Raise `ObjectUnreadable` if it is torn, changed, of
    another cluster, not what its name says, or larger than `bytes_max` once decompressed."""
    head, _, stored = data.partition(b"\n")
    try:
        header = _header.decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ObjectUnreadable(
            f"the first line of the backup object cannot be read: {error}"
        ) from None
    if header.version != 1:
        raise ObjectUnreadable(
            f"the backup object has version {header.version}, which only a newer release can read"
        )
    if header.cluster_id != cluster_id:
        raise ObjectUnreadable(
            f"the backup object belongs to cluster {header.cluster_id}, not to cluster {cluster_id}"
        )
    if header.name != str(name):
        raise ObjectUnreadable(
            f"the backup object was written under another name, {header.name}, so it was copied "
            "or renamed"
        )
    if hashlib.sha256(stored).hexdigest() != header.sha256:
        raise ObjectUnreadable("the backup object does not match its checksum")
    raw = _inflated(stored, header.size, bytes_max)
    if name.is_snapshot:
        return Content(name=name, term_id=header.term_id, image=raw, size=len(raw))
    try:
        batches = _batches.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ObjectUnreadable(
            f"the metadata batches in the backup object cannot be read: {error}"
        ) from None
    _check(batches, name)
    return Content(name=name, term_id=header.term_id, batches=batches, size=len(raw))


def content_bytes(batches: Iterable[MetadataBatchCopy]) -> int:
    """Return the most bytes that these batches take in an object before compression."""
    return sum(len(batch.records_json) + BATCH_FRAME_BYTES for batch in batches)


def _inflated(stored: bytes, size: int, bytes_max: int) -> bytes:
    if not 0 <= size <= bytes_max:
        raise ObjectUnreadable(
            f"the backup object states a size of {size} bytes; at most {bytes_max} are allowed"
        )
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(stored, size + 1)
    except zlib.error as error:
        raise ObjectUnreadable(f"the backup object cannot be decompressed: {error}") from None
    if not inflater.eof or len(raw) != size:
        raise ObjectUnreadable("the backup object has another size than it states")
    return raw


def _check(batches: Sequence[MetadataBatchCopy], name: ObjectName) -> None:
    end = name.base
    for batch in batches:
        if batch.base_offset != end or batch.record_count < 1:
            at = batch.base_offset
            raise ObjectUnreadable(
                f"in the backup object, the metadata batch at offset {at} does not follow the "
                "batch before it"
            )
        end += batch.record_count
    if not batches or end != name.end or batches[-1].nonce != name.nonce:
        raise ObjectUnreadable(
            "the metadata batches in the backup object do not end at the offset in its name"
        )


def term_of(batches: Iterable[MetadataBatchCopy], before: str) -> str:
    """Return the id of the controller term after these batches; `before`: the one before them.
    Raise `ObjectUnreadable` if their records cannot be read."""
    found = before
    for batch in batches:
        try:
            records = read_records(batch.records_json)
        except (MetadataTooNew, ValueError) as error:
            raise ObjectUnreadable(
                f"the metadata records in the backup object cannot be read: {error}"
            ) from None
        for one in records:
            if isinstance(one, ControllerChanged):
                found = one.term_id or found
    return found


# --- the choice of a point ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The point up to which a backup is wanted: the end of what was stored at `at_ms`, or before
    the record at `offset`; neither: the newest."""

    at_ms: int | None = None
    offset: int | None = None

    def has(self, name: ObjectName) -> bool:
        """Return True if an object may be the last of this point."""
        if self.at_ms is not None:
            return name.written_ms <= self.at_ms
        if self.offset is None:
            return True
        if name.is_snapshot:
            return name.end == self.offset
        return name.base < self.offset <= name.end


NEWEST = Point()


def chain(names: Iterable[ObjectName], point: Point) -> tuple[ObjectName, ...] | str:
    """Return the objects that make a point, the snapshot first; of several histories the newest.
    Return a sentence without an end if there are none."""
    known = set(names)
    if not known:
        return "it contains no object"
    ends = _by_end(known)
    tips = sorted((one for one in known if point.has(one)), key=_rank, reverse=True)
    if not tips:
        return "it contains no object up to the wanted point"
    for tip in tips:
        found = _back(tip, ends)
        if found is not None:
            return found
        if point == NEWEST:
            break
    return f"the object that precedes {tips[0]} is missing"


def newest_history(
    names: Iterable[ObjectName], positions: Set[tuple[int, str]]
) -> tuple[ObjectName, ...]:
    """Return the newest complete history that ends at one of `positions` (offset and nonce): its
    objects from a snapshot, or the log's beginning, on. Return () if there is none."""
    known = set(names)
    ends = _by_end(known)
    tips = (one for one in known if (one.end, one.nonce) in positions)
    for tip in sorted(tips, key=_rank, reverse=True):
        if found := _back(tip, ends):
            return found
    return ()


def _by_end(names: Iterable[ObjectName]) -> dict[tuple[int, str], ObjectName]:
    """Return the object to prefer by its end: a snapshot, then the one that reaches back
    furthest."""
    ends: dict[tuple[int, str], ObjectName] = {}
    for one in sorted(names, key=lambda one: (not one.is_snapshot, one.base, str(one))):
        ends.setdefault((one.end, one.nonce), one)
    return ends


def _rank(one: ObjectName) -> tuple[tuple[int, int, int], bool]:
    return (one.order, one.is_snapshot)


def _back(
    tip: ObjectName, ends: Mapping[tuple[int, str], ObjectName]
) -> tuple[ObjectName, ...] | None:
    """Return the objects from a snapshot, or the log's beginning, to `tip`; None if one is
    missing."""
    found = [tip]
    while not found[-1].is_snapshot and (nonce := found[-1].before) is not None:
        before = ends.get((found[-1].base, nonce))
        if before is None or len(found) > OBJECTS_MAX:
            return None
        found.append(before)
    if not found[-1].is_snapshot and found[-1].base != 0:
        return None
    return tuple(reversed(found))


def excess(names: Iterable[ObjectName], keep_ms: int, now_ms: int) -> list[ObjectName]:
    """Return the objects that are not kept: those from before the newest snapshot that is older
    than `keep_ms`, and the batches from before the newest one that is older than `FINE_MS`. The
    newest snapshot always stays."""
    known = sorted(names, key=lambda one: one.written_ms)
    first = _newest_snapshot(known, now_ms - keep_ms)
    fine = _newest_snapshot(known, now_ms - min(keep_ms, FINE_MS))
    return [
        one
        for one in known
        if _is_before(one, first) or (not one.is_snapshot and _is_before(one, fine))
    ]


def _newest_snapshot(names: Iterable[ObjectName], until_ms: int) -> ObjectName | None:
    old = [one for one in names if one.is_snapshot and one.written_ms <= until_ms]
    return max(old, key=lambda one: one.order, default=None)


def _is_before(one: ObjectName, snapshot: ObjectName | None) -> bool:
    if snapshot is None or one == snapshot:
        return False
    return one.written_ms <= snapshot.written_ms and one.order < snapshot.order
