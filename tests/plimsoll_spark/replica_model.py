"""Replicas in memory, with files that can be damaged, behind the calls of a broker connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from plimsoll_spark.audit_range import AuditItem, AuditJob, RangeAudit, audit_some
from plimsoll_spark.batches import CONTROL, HEADER_BYTES, TRANSACTIONAL
from plimsoll_spark.broker_connection import ConnectionLost, Fetched, Standing
from plimsoll_spark.replica_reader import CORRUPT, NONE, OUT_OF_RANGE, Connections, Place

HEADER = struct.Struct(">qiibIhiqqqhii")
INDEXED = 3
"""One batch in so many has an index entry."""


def varint(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record(delta: int, key: bytes | None, value: bytes | None) -> bytes:
    parts = b"".join(
        varint(-1) if part is None else varint(len(part)) + part for part in (key, value)
    )
    body = b"\0" + varint(0) + varint(delta) + parts + varint(0)
    return varint(len(body)) + body


def sealed(
    base: int,
    records: Sequence[bytes],
    *,
    last_delta: int | None = None,
    epoch: int = 0,
    attributes: int = 0,
    producer: int = -1,
) -> bytes:
    """A batch as it stands in a log."""
    body = b"".join(records)
    delta = len(records) - 1 if last_delta is None else last_delta
    size = HEADER_BYTES - 12 + len(body)
    whole = bytearray(
        HEADER.pack(
            *(base, size, epoch, 2, 0, attributes, delta, 5, 5),
            *(producer, -1, -1, len(records)),
        )
        + body
    )
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[21:])))
    return bytes(whole)


def marker(base: int, producer: int, *, commits: bool) -> bytes:
    """The control batch at the end of a transaction."""
    kind = struct.pack(">hh", 0, int(commits))
    content = record(0, kind, struct.pack(">hi", 0, 7))
    return sealed(base, [content], attributes=TRANSACTIONAL | CONTROL, producer=producer)


def plain_batch(base: int, count: int = 3, *, epoch: int = 0, content: bytes = b"v") -> bytes:
    return sealed(
        base, [record(at, None, content + b"%d" % (base + at)) for at in range(count)], epoch=epoch
    )


@dataclass
class Replica:
    """One replica: `file` is what a fault changes; `index` is of the file before."""

    file: bytearray
    index: list[tuple[int, int]]
    start: int
    high_watermark: int
    reachable: bool = True
    asked: list[int] = field(default_factory=list)
    empty: int = 0
    held_back: int = 0
    """So many answers are empty, for want of memory or by a quota, before the others."""

    def fetch(self, offset: int, max_bytes: int) -> Fetched:
        self.asked.append(offset)
        if self.held_back:
            self.held_back -= 1
            return Fetched(NONE, -1, -1, memoryview(b""), is_held_back=True)
        if self.empty and offset < self.high_watermark:
            self.empty -= 1
            return self._said(NONE)
        if not self.start <= offset <= self.high_watermark:
            return self._said(OUT_OF_RANGE)
        if offset == self.high_watermark:
            return self._said(NONE)
        at = self._find(offset)
        if at is None:
            return self._said(CORRUPT)
        end = at
        while (size := self._size(end)) is not None and end + size <= len(self.file):
            if end > at and end + size - at > max_bytes:
                break
            end += size
        return self._said(NONE, bytes(self.file[at:end])) if end > at else self._said(CORRUPT)

    def _said(self, code: int, records: bytes = b"") -> Fetched:
        return Fetched(code, self.high_watermark, self.start, memoryview(records))

    def _find(self, offset: int) -> int | None:
        known = [
            (first, at) for first, at in self.index if first <= offset and self._base(at) == first
        ]
        at = max(known, default=(0, 0))[1]
        while (size := self._size(at)) is not None:
            base, delta = self._base(at), struct.unpack_from(">i", self.file, at + 23)[0]
            if base is not None and base + delta >= offset:
                return at
            at += size
        return None

    def _base(self, at: int) -> int | None:
        return None if at + HEADER_BYTES > len(self.file) else HEADER.unpack_from(self.file, at)[0]

    def _size(self, at: int) -> int | None:
        if at + HEADER_BYTES > len(self.file):
            return None
        fields = HEADER.unpack_from(self.file, at)
        good = fields[1] >= HEADER_BYTES - 12 and fields[3] == 2 and fields[6] >= 0
        return fields[1] + 12 if good else None


def replica(batches: Sequence[bytes], *, start: int = 0) -> Replica:
    index, at, end = [], 0, 0
    for number, batch in enumerate(batches):
        base, delta = HEADER.unpack_from(batch)[0], struct.unpack_from(">i", batch, 23)[0]
        if number % INDEXED == 0:
            index.append((base, at))
        at, end = at + len(batch), base + delta + 1
    return Replica(bytearray(b"".join(batches)), index, start, end)


class ModelConnection:
    """Takes the place of a `BrokerConnection`."""

    reads_own_copy = True

    def __init__(self, held: Replica, standing: Callable[[], Standing | None]) -> None:
        self._held = held
        self._standing = standing

    def standing(self, topic: str, partition: int) -> Standing | None:
        return self._standing()

    def ask(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        own_copy: bool,
        committed: bool = False,
    ) -> None:
        assert own_copy, "an audit reads each replica's own"
        if not self._held.reachable:
            raise ConnectionLost("away")
        self._fetched = self._held.fetch(offset, max_bytes)

    def answer(self) -> Fetched:
        return self._fetched

    def close(self) -> None:
        pass


def audited(
    monkeypatch,
    tmp_path,
    replicas: Iterable[Replica],
    *,
    in_sync=None,
    until_s=2**40,
    away_s=0.0,
    standing=None,
    topic="t",
    **item,
) -> RangeAudit:
    """Audit all of partition 0; the first replica is the leader's. `standing`: what the brokers'
    metadata say when they are asked; None: that the ISR stays as it is."""
    held = list(replicas)
    isr = frozenset(range(len(held)) if in_sync is None else in_sync)
    now = standing or (lambda: Standing(0, isr))
    monkeypatch.setattr(
        Connections, "to", lambda self, place: ModelConnection(held[place.broker], now)
    )
    monkeypatch.setattr("plimsoll_spark.audit_range.SETTLE_S", 0.0)
    monkeypatch.setattr("plimsoll_spark.replica_reader.AWAY_S", away_s)
    monkeypatch.setattr("plimsoll_spark.replica_reader.RETRY_S", 0.0)
    job = AuditJob(
        login={}, until_s=until_s, bytes_per_second=None, own_copies=True, results=tmp_path
    )
    values = {"first": held[0].start, "end": held[0].high_watermark, **item}
    asked = AuditItem(
        topic=topic,
        partition=0,
        replicas=tuple(Place(topic, 0, number, "h", 1) for number in range(len(held))),
        in_sync=isr,
        **values,
    )
    (found,) = audit_some(job, [asked])
    return found
