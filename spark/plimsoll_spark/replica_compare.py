"""Compares the batches of a partition's replicas over one range of offsets. Pure.

Called by `audit_range`. A range is judged only where a replica must hold it: between its log start
and the end of the range, or the offset up to which it could be read. In a compacted topic offsets
may be missing, and replicas are compacted independently; then only contradictions are told here,
and `is_equal` says whether the records must be compared (`compacted_compare`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from plimsoll_spark.batches import Rows
from plimsoll_spark.replica_reader import Bad, Held, Why

Kind = Literal["unreadable", "missing", "gap", "different", "epochs", "short"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A fault of the log at offsets from `first` to `last`, both included. `brokers`: ids of the
    brokers with replicas that have it; `detail`: the fault as text; `valid`: ids of the brokers
    that hold valid batches at all these offsets; `leader`: id of the leader's broker, None if it is
    not told."""

    partition: int
    first: int
    last: int
    kind: Kind
    brokers: tuple[int, ...]
    detail: str = ""
    valid: tuple[int, ...] = ()
    leader: int | None = None


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The leader epochs of the first and the last batch that a replica holds of a range."""

    broker: int
    first_epoch: int
    last_epoch: int


class Compared(NamedTuple):
    """The result for one range. `is_equal`: True if all replicas were read to the range's end,
    without an invalid batch, and hold the same batches. `excused`: True if each replica lacks some
    offset, which is no finding, since the topic is compacted."""

    findings: list[Finding]
    is_equal: bool
    excused: bool = False


def compare(
    partition: int, first: int, end: int, replicas: Sequence[Held], *, compacted: bool
) -> Compared:
    """Compare the replicas over the offsets from `first` to before `end`. `replicas`: the leader's
    first; if as many replicas hold one batch as another, the findings name the brokers that differ
    from the leader. `compacted`: True to judge neither missing offsets nor differing batches."""
    findings = [*_unreadable(partition, replicas), *_unordered(partition, replicas)]
    findings += _short(partition, end, replicas)
    holes = {one.broker: _holes(one, first, end) for one in replicas}
    there = {one.broker: within(one, first, end) for one in replicas}
    is_equal = not any(one.bad or one.why for one in replicas) and all(
        np.array_equal(there[one.broker], there[replicas[0].broker]) for one in replicas
    )
    excused = compacted and all(holes.values())
    if not compacted:
        findings += _missing(partition, holes, replicas)
        if not is_equal:
            findings += _different(partition, there, replicas)
    found = [_with_valid(one, first, end, replicas) for one in joined(findings)]
    return Compared(found, is_equal, excused)


def _with_valid(finding: Finding, first: int, end: int, replicas: Sequence[Held]) -> Finding:
    """Return the finding with the leader, and the brokers that hold valid batches at its
    offsets."""
    begin, after = finding.first, finding.last + 1
    valid = tuple(
        sorted(
            one.broker
            for one in replicas
            if one.broker not in finding.brokers
            and one.start <= begin
            and after <= one.end
            and not any(bad.first < after and bad.end > begin for bad in one.bad)
            and not any(low < after and high > begin for low, high in _holes(one, first, end))
        )
    )
    return msgspec.structs.replace(finding, valid=valid, leader=replicas[0].broker)


def within(one: Held, first: int, end: int) -> Rows:
    """Return the batches that end at offsets from `first` to before `end`."""
    last = one.batches["last_offset"]
    found: Rows = one.batches[(last >= first) & (last < end)]
    return found


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted. Adjacent or overlapping ones of one partition, kind and set of
    brokers become one, with the detail of the first."""
    order = sorted(findings, key=lambda one: (one.partition, one.kind, one.brokers, one.first))
    out: list[Finding] = []
    for one in order:
        last = out[-1] if out else None
        if last is not None and last.last + 1 >= one.first and _same(last, one):
            out[-1] = msgspec.structs.replace(last, last=max(last.last, one.last))
        else:
            out.append(one)
    return sorted(out)


def _same(a: Finding, b: Finding) -> bool:
    return (a.partition, a.kind, a.brokers) == (b.partition, b.kind, b.brokers)


def _unreadable(partition: int, replicas: Sequence[Held]) -> Iterable[Finding]:
    """Yield one finding for each range of offsets at which brokers hold no valid batch. A finding
    names all brokers with exactly that range."""
    by_span: dict[tuple[int, int], list[tuple[int, Bad]]] = {}
    for one in replicas:
        for bad in one.bad:
            begin = max(bad.first, one.start)
            if begin < bad.end:
                by_span.setdefault((begin, bad.end), []).append((one.broker, bad))
    for (first, end), found in by_span.items():
        yield Finding(
            partition=partition,
            first=first,
            last=end - 1,
            kind="unreadable",
            brokers=tuple(sorted(broker for broker, _ in found)),
            detail=found[0][1].problem.value,
        )


def _unordered(partition: int, replicas: Sequence[Held]) -> Iterable[Finding]:
    for one in replicas:
        falls = np.nonzero(np.diff(one.batches["leader_epoch"]) < 0)[0]
        for at in falls + 1:
            row = one.batches[at]
            before = one.batches[at - 1]["leader_epoch"]
            yield Finding(
                partition=partition,
                first=int(row["base_offset"]),
                last=int(row["last_offset"]),
                kind="epochs",
                brokers=(one.broker,),
                detail=(
                    f"the leader epoch of the batches must never fall, but falls from {before} "
                    f"to {row['leader_epoch']}"
                ),
            )


def _short(partition: int, end: int, replicas: Sequence[Held]) -> Iterable[Finding]:
    for one in replicas:
        if one.why is Why.SHORT and one.end < end:
            yield Finding(
                partition=partition,
                first=one.end,
                last=end - 1,
                kind="short",
                brokers=(one.broker,),
                detail="the replica is in the ISR, but its log ends at this offset",
            )


def _holes(one: Held, first: int, end: int) -> list[tuple[int, int]]:
    """Return the offsets, from each to before each, that the replica should hold and no batch of it
    covers, valid or not."""
    begin, stop = max(first, one.start), min(end, one.end)
    bases, ends = one.batches["base_offset"], one.batches["last_offset"] + 1
    bad = [(max(b.first, begin), min(b.end, stop)) for b in one.bad]
    covered = sorted([*zip(bases.tolist(), ends.tolist(), strict=True), *bad])
    holes, position = [], begin
    for base, after in covered:
        if base > position and position < stop:
            holes.append((position, min(base, stop)))
        position = max(position, after)
    if position < stop:
        holes.append((position, stop))
    return holes


def _missing(
    partition: int, holes: Mapping[int, Sequence[tuple[int, int]]], replicas: Sequence[Held]
) -> Iterable[Finding]:
    """Yield `gap` for offsets that every replica lacks that was read there, else `missing` with the
    brokers that lack them."""
    edges = sorted({edge for some in holes.values() for hole in some for edge in hole})
    for first, end in pairwise(edges):
        lacking = {
            broker
            for broker, some in holes.items()
            if any(begin <= first and end <= after for begin, after in some)
        }
        read = {one.broker for one in replicas if one.start <= first and end <= one.end}
        if lacking:
            kind: Kind = "gap" if lacking >= read else "missing"
            yield Finding(
                partition=partition,
                first=first,
                last=end - 1,
                kind=kind,
                brokers=tuple(sorted(lacking)),
                detail="the replica has no batch with these offsets",
            )


def _different(
    partition: int, there: Mapping[int, Rows], replicas: Sequence[Held]
) -> Iterable[Finding]:
    """Yield a finding for each batch that differs between replicas that hold its offsets. It names
    the replicas that differ from the most frequent batch; of equally frequent ones, that of the
    first replica counts."""
    batches = {
        broker: {row["base_offset"]: tuple(row.tolist()) for row in held}
        for broker, held in there.items()
    }
    uneven = {
        base
        for held in batches.values()
        for base, row in held.items()
        if any(other.get(base) != row for other in batches.values())
    }
    for base in sorted(uneven):
        holders = {one.broker: batches[one.broker].get(base) for one in replicas}
        found = Counter(row for row in holders.values() if row is not None)
        if len(found) < 2:
            continue  # one of the other findings
        most = max(found.values())
        usual = next(row for row in holders.values() if row is not None and found[row] == most)
        odd = tuple(sorted(b for b, row in holders.items() if row is not None and row != usual))
        yield Finding(
            partition=partition,
            first=int(base),
            last=int(max(row[1] for row in found)),
            kind="different",
            brokers=odd,
            detail="the batch differs from that of the other replicas",
        )
