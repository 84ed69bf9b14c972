"""Audits ranges of offsets of partitions on all their replicas, in Spark's tasks.

Called by `audit`. A task reads a range from one replica after another, holds a row a batch of each
(some 80 bytes), and compares them. Replicas of a compacted partition that differ are read again,
as a whole, and compared record by record. Nothing is written to any topic.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from plimsoll_spark.batches import is_control, record_counts
from plimsoll_spark.broker_connection import Standing
from plimsoll_spark.checks import ProgressFile
from plimsoll_spark.compacted_compare import (
    KEYED_AT_ONCE,
    CompactedColumns,
    KeyedRecords,
    Suspect,
    contradictions,
    missing,
    suspects,
)
from plimsoll_spark.replica_compare import Edge, Finding, compare, joined, within
from plimsoll_spark.replica_reader import (
    SETTLE_S,
    Connections,
    Held,
    Place,
    RateLimit,
    ReplicaReader,
    Take,
    Why,
)
from plimsoll_spark.whole_files import put_whole

FINDINGS_MAX = 100
"""The most findings of a range that are kept; all are counted."""
LATER_OFFSETS_MAX = KEYED_AT_ONCE
"""The most offsets behind the end of an audit that are looked through for newer records of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditJob:
    """The settings that all tasks of one audit share. `login`: settings of librdkafka; `until_s`:
    the wall-clock time at which reading ends, in seconds since 1970; `bytes_per_second`: limit for
    each task, None: no limit; `own_copies`: True to read each replica on its own broker, False to
    read the leaders as a consumer; `results`: the directory of progress files and results."""

    login: Mapping[str, str]
    until_s: float
    bytes_per_second: float | None
    own_copies: bool
    results: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditItem:
    """Offsets of one partition, from `first` to before `end`, to be read on `replicas`, the
    leader's first. `in_sync`: ids of the brokers in the ISR: their replicas must hold all these
    offsets. `compacted`: True if offsets may be missing. `record_by_record`: True for the second
    reading of a compacted partition, as a whole."""

    topic: str
    partition: int
    first: int
    end: int
    replicas: tuple[Place, ...]
    in_sync: frozenset[int]
    compacted: bool = False
    record_by_record: bool = False


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of a range from `first` on that could not be read on `broker`. `why`: the cause
    as text (`replica_reader.Why`)."""

    broker: int
    first: int
    why: str


class RangeAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one item. `counts`: number of all findings by kind; `findings`: at most
    `FINDINGS_MAX`, with the first of each kind; `edges`: of each replica with batches; `batches`,
    `records`, `markers` (of transactions): of the replica with the most batches; `size`: bytes read
    from all replicas together; `is_equal`: True if all replicas were read and hold the same
    batches; `excused`: True if missing offsets were taken for compaction; `behind`: the brokers
    outside the ISR with replicas that end early. A record-by-record item leaves these, `edges`,
    `batches`, `records` and `markers` at their defaults."""

    topic: str
    partition: int
    first: int
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    edges: tuple[Edge, ...] = ()
    unread: tuple[Unread, ...] = ()
    batches: int = 0
    records: int = 0
    markers: int = 0
    size: int = 0
    is_equal: bool = True
    excused: bool = False
    behind: tuple[int, ...] = ()


def audit_some(job: AuditJob, items: Iterable[AuditItem]) -> Iterator[RangeAudit]:
    """Read and compare the replicas of one item after another, in one Spark task, and yield the
    result of each. Write a progress file for each item, and a file with its result. The rate limit
    holds for all items together."""
    with contextlib.closing(Connections(job.login)) as connections:
        limit = RateLimit(job.bytes_per_second)
        for item in items:
            progress = ProgressFile(job.results / f"read-{_name(item)}.count")
            reader = partial(_reader, job, connections, limit, item)
            standing = partial(connections.standing, item.replicas)
            found = (
                _by_record(item, reader)
                if item.record_by_record
                else _by_batch(item, reader, standing)
            )
            progress.write(found.records)
            put_whole(job.results / f"range-{_name(item)}.json", msgspec.json.encode(found))
            yield found


def finished_ranges(results: Path) -> list[RangeAudit]:
    """Return the results of the items that all tasks have finished until now."""
    return [
        msgspec.json.decode(path.read_bytes(), type=RangeAudit)
        for path in sorted(results.glob("range-*.json"))
    ]


def _name(item: AuditItem) -> str:
    """Return a part of file names. A topic's name may be as long as a file's."""
    topic = hashlib.blake2b(item.topic.encode(), digest_size=16).hexdigest()
    pass_ = "records" if item.record_by_record else "batches"
    return f"{topic}-{item.partition}-{item.first}-{pass_}"


Reader = Callable[[Place], ReplicaReader]


def _reader(
    job: AuditJob, connections: Connections, limit: RateLimit, item: AuditItem, place: Place
) -> ReplicaReader:
    return ReplicaReader(
        connections,
        place,
        own_copy=job.own_copies,
        until_s=job.until_s,
        limit=limit,
        settle_s=SETTLE_S if place.broker in item.in_sync else 0.0,
    )


def _by_batch(
    item: AuditItem, reader: Reader, standing: Callable[[], Standing | None]
) -> RangeAudit:
    held = [_held(item, place, reader, standing) for place in item.replicas]
    # Retention may have moved a log start while other replicas were read.
    compared = compare(item.partition, item.first, item.end, held, compacted=item.compacted)
    most = max((within(one, item.first, item.end) for one in held), key=len)
    return _result(
        item,
        compared.findings,
        held,
        edges=tuple(_edges(held)),
        batches=len(most),
        records=int(record_counts(most).sum()),
        markers=int(is_control(most["attributes"]).sum()),
        is_equal=compared.is_equal,
        excused=compared.excused,
        behind=tuple(one.broker for one in held if one.why is None and one.end < item.end),
    )


def _by_record(item: AuditItem, reader: Reader) -> RangeAudit:
    """Compare the replicas of a compacted partition record by record, in as many passes over the
    keys as memory demands."""
    passes = max(1, -(-(item.end - item.first) // KEYED_AT_ONCE))
    findings: list[Finding] = []
    held: list[Held] = []
    for number in range(passes):
        keyed: list[KeyedRecords] = []
        for place in item.replicas:
            columns = CompactedColumns(passes, number)
            one = reader(place).read(item.first, item.end, columns.take)
            held.append(one)
            keyed.append(columns.as_records(one.broker, one.start, one.end))
            findings += [
                Finding(
                    partition=item.partition,
                    first=batch.base_offset,
                    last=batch.last_offset,
                    kind="unreadable",
                    brokers=(place.broker,),
                    detail="the records of the batch cannot be decompressed or parsed",
                )
                for batch in columns.unopenable
            ]
        findings += contradictions(item.partition, keyed)
        lost, again = _lost(item, suspects(keyed), held[-len(item.replicas) :], reader)
        findings += missing(item.partition, lost)
        held += again
    return _result(item, joined(findings), held)


def _lost(
    item: AuditItem, suspected: set[Suspect], held: Sequence[Held], reader: Reader
) -> tuple[set[Suspect], list[Held]]:
    """Read the replicas with suspect records again, now up to their present ends, and return those
    of `suspected` that are still suspect, with the results of the reading. A cleaner may have
    removed the others for newer records, also for such behind the range's end."""
    if not suspected:
        return set(), []
    keys = frozenset(one.key for one in suspected)
    first = min(one.offset for one in suspected)
    brokers = {broker for one in suspected for broker in (one.holder, one.lacker)}
    keyed: list[KeyedRecords] = []
    again: list[Held] = []
    for place, before in zip(item.replicas, held, strict=True):
        if place.broker in brokers:
            columns = CompactedColumns(1, 0, keys)
            end = max(before.high_watermark, before.end)
            one = _read_to_end(reader(place), first, end, columns.take)
            again.append(one)
            if one.why is None:
                keyed.append(columns.as_records(one.broker, one.start, one.end))
    return suspected & suspects(keyed), again


def _read_to_end(reader: ReplicaReader, first: int, end: int, take: Take) -> Held:
    """Read a replica from `first` until no record was left at the last fetch. `end`: an offset that
    it has reached already. The result has `why` set if this took more than `LATER_OFFSETS_MAX`
    offsets behind `end`, or if the replica became shorter."""
    bound, size = end + LATER_OFFSETS_MAX, 0
    while True:
        one = reader.read(first, end, take)
        size = one.size = one.size + size
        read = max(one.end, int(one.batches["last_offset"][-1]) + 1 if len(one.batches) else 0)
        if one.why is Why.SHORT or (one.why is None and one.high_watermark > max(read, bound)):
            one.why = Why.BUSY
        if one.why is not None or read >= one.high_watermark:
            one.end = read
            return one
        first, end = read, one.high_watermark


def _held(
    item: AuditItem, place: Place, reader: Reader, standing: Callable[[], Standing | None]
) -> Held:
    """Read one replica. `why` is cleared if the replica is outside the ISR and only ends early. One
    inside is read once more, and stands as too short only if it was in the ISR before and after,
    under one leader epoch."""
    held = reader(place).read(item.first, item.end)
    if held.why is not Why.SHORT:
        return held
    if place.broker not in item.in_sync:
        held.why = None
        return held
    before = standing()
    held = reader(place).read(item.first, item.end)
    if held.why is Why.SHORT and not _stayed(place.broker, before, standing()):
        held.why = Why.MOVED
    return held


def _stayed(broker: int, before: Standing | None, after: Standing | None) -> bool:
    if before is None or after is None or before.leader_epoch != after.leader_epoch:
        return False
    return broker in before.in_sync & after.in_sync


def _result(
    item: AuditItem, findings: Sequence[Finding], held: Sequence[Held], **more: object
) -> RangeAudit:
    unread = {
        one.broker: Unread(broker=one.broker, first=one.end, why=one.why.value)
        for one in held
        if one.why not in (None, Why.SHORT)
    }
    values = {
        "topic": item.topic,
        "partition": item.partition,
        "first": item.first,
        "counts": dict(Counter(one.kind for one in findings)),
        "findings": tuple(_kept(findings)),
        "unread": tuple(unread.values()),
        "size": sum(one.size for one in held),
        **more,
    }
    return msgspec.convert(values, RangeAudit)


def _kept(findings: Sequence[Finding]) -> list[Finding]:
    """Return at most `FINDINGS_MAX` of the findings: the first of each kind, by which the verdict
    names a place, and the first of all."""
    firsts = {one.kind: one for one in reversed(findings)}.values()
    return sorted({*firsts, *findings[: FINDINGS_MAX - len(firsts)]})


def _edges(held: Sequence[Held]) -> Iterator[Edge]:
    for one in held:
        if len(one.batches):
            epochs = one.batches["leader_epoch"]
            yield Edge(broker=one.broker, first_epoch=int(epochs[0]), last_epoch=int(epochs[-1]))
