"""Measures latency, pace and stalls of the acks of one partition, by the times in the ledger. Pure.

Called in Spark's tasks (`checks`), one call a partition; `joined` joins the partitions. Times are
kept to 0.1 ms, latencies in buckets that are 1 % wide; the worst ones are exact to 0.1 ms.

A stall is a time in which records were waiting and none was acknowledged. It ends with an ack (or
when the last record is given up). It begins with the previous ack or, if no record was waiting
then, with the first record sent since. The time before the run's first ack is the producers'
connecting, and no stall.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from plimsoll_spark.arrays import Bools, Floats, Ints
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.values import Bin, Latency, PartitionPace, Stall

UNITS_A_MS = 10
BUCKETS_A_DECADE = 232  # 1.01 ** 232 is about 10
SMALLEST_MS = 0.1
BUCKETS = 8 * BUCKETS_A_DECADE  # up to 10,000 s


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The times that the timelines of all partitions share, in milliseconds since 1970. `bin_ms`:
    the width of a time bin, counted from `start_ms` on."""

    start_ms: float  # when the first record was sent
    first_ack_ms: float
    bin_ms: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The measured acks of one partition. `stall`: the longest one, None if the partition has no
    records; `worst`: the worst latency in ms. `buckets`: number of acks by latency; `bins`: the
    same for each time bin from `first_bin` on (rows of `BUCKETS`); `worst_ms`: the worst latency of
    each bin. The last three are arrays as bytes."""

    stall: Stall | None
    worst: float
    buckets: bytes
    first_bin: int
    bins: bytes
    worst_ms: bytes


class LatencyCounts(msgspec.Struct, kw_only=True):
    """Numbers of acks by latency, of any number of acks. `worst`: the worst latency in ms."""

    by_bucket: dict[int, int] = {}
    worst: float = 0.0

    def add(self, latency_ms: Floats) -> None:
        """Count acks."""
        if not len(latency_ms):
            return
        buckets, numbers = np.unique(_bucket(latency_ms), return_counts=True)
        for bucket, number in zip(buckets.tolist(), numbers.tolist(), strict=True):
            self.by_bucket[bucket] = self.by_bucket.get(bucket, 0) + number
        self.worst = max(self.worst, float(latency_ms.max()))

    def latency(self) -> Latency | None:
        """Return the quantiles, None without acks."""
        if not self.by_bucket:
            return None
        buckets = np.zeros(BUCKETS, np.int64)
        buckets[list(self.by_bucket)] = list(self.by_bucket.values())
        return _latency(buckets, self.worst)


def timeline(partition: int, rows: LedgerRows, clock: Clock) -> Timeline:
    """Measure one partition. `rows`: all its records in the ledger, with any outcome."""
    latency = (rows.settled_ms - rows.send_ms)[rows.acked]
    bucket = _bucket(latency)
    place = ((rows.settled_ms[rows.acked] - clock.start_ms) // clock.bin_ms).astype(np.int64)
    first = int(place.min()) if len(place) else 0
    count = int(place.max()) + 1 - first if len(place) else 0
    bins = np.bincount((place - first) * BUCKETS + bucket, minlength=count * BUCKETS)
    worst_ms = np.zeros(count)
    np.maximum.at(worst_ms, place - first, latency)
    return Timeline(
        stall=_stall(partition, rows, clock),
        worst=float(latency.max()) if len(latency) else 0.0,
        buckets=np.bincount(bucket, minlength=BUCKETS).astype(np.int64).tobytes(),
        first_bin=first,
        bins=bins.astype(np.int64).tobytes(),
        worst_ms=worst_ms.tobytes(),
    )


def _bucket(latency: Floats) -> Ints:
    decades = np.log10(np.maximum(latency, SMALLEST_MS) / SMALLEST_MS)
    return np.minimum((decades * BUCKETS_A_DECADE).astype(np.int64), BUCKETS - 1)


def _middle_ms(bucket: int) -> float:
    return float(SMALLEST_MS * 10 ** ((bucket + 0.5) / BUCKETS_A_DECADE))


def _stall(partition: int, rows: LedgerRows, clock: Clock) -> Stall | None:
    """Return the partition's longest stall; None if it has no records."""
    if not len(rows):
        return None
    settled, send, acked = _in_order(rows, clock)
    waiting = np.minimum.accumulate(send[::-1])[::-1]  # the oldest record that waits
    acked_before = np.concatenate(([True], acked[:-1]))
    settled_before = np.concatenate(([0], settled[:-1]))
    # A wait continues past records that were given up, as long as others were waiting.
    starts = np.flatnonzero(acked_before | (waiting > settled_before))
    ack_times = np.where(acked, settled, -1)
    last_ack = np.maximum.accumulate(np.concatenate(([-1], ack_times[:-1])))
    until = settled[np.concatenate((starts[1:] - 1, [len(settled) - 1]))]
    connected = int((clock.first_ack_ms - clock.start_ms) * UNITS_A_MS)
    since = np.maximum(np.maximum(last_ack[starts], waiting[starts]), connected)
    since = np.minimum(since, until)
    longest = int(np.argmax(until - since))
    return Stall(
        partition=partition,
        milliseconds=round(int(until[longest] - since[longest]) / UNITS_A_MS, 1),
        from_ms=clock.start_ms + int(since[longest]) / UNITS_A_MS,
        to_ms=clock.start_ms + int(until[longest]) / UNITS_A_MS,
    )


def _in_order(rows: LedgerRows, clock: Clock) -> tuple[Ints, Ints, Bools]:
    """Return three columns, sorted by the time at which the outcome became known: that time and the
    send time, both in units of 0.1 ms since the start, and True for an acked record.

    One integer for each record is sorted in place, which takes half the memory of sorting places.
    """
    settled = np.round((rows.settled_ms - clock.start_ms) * UNITS_A_MS).astype(np.int64)
    send = np.round((rows.send_ms - clock.start_ms) * UNITS_A_MS).astype(np.int64)
    packed = settled << 32 | np.maximum(send, 0) << 1 | rows.acked
    packed.sort()
    return packed >> 32, packed >> 1 & 0x7FFFFFFF, (packed & 1).astype(np.bool_)


def joined(parts: Sequence[Timeline], clock: Clock) -> tuple[Latency, tuple[Bin, ...]]:
    """Return the latency of the acks of all partitions, and their number and latency by time bin.
    Bins without acks are left out."""
    buckets = np.zeros(BUCKETS, np.int64)
    for part in parts:
        buckets += np.frombuffer(part.buckets, np.int64)
    worst = max((part.worst for part in parts), default=0.0)
    if not buckets.any():
        return Latency(), ()
    return _latency(buckets, worst), tuple(_bins(parts, clock))


def _latency(buckets: Ints, worst: float) -> Latency:
    p50, p90, p99, p999 = (_quantile(buckets, share, worst) for share in (0.5, 0.9, 0.99, 0.999))
    return Latency(p50=p50, p90=p90, p99=p99, p999=p999, worst=round(worst, 2))


def by_partition(parts: Sequence[Timeline]) -> tuple[PartitionPace, ...]:
    """Return the acks of each partition that has records, sorted by partition."""
    found = []
    for part in parts:
        if part.stall is None:
            continue
        buckets = np.frombuffer(part.buckets, np.int64)
        acked = int(buckets.sum())
        found.append(
            PartitionPace(
                partition=part.stall.partition,
                acked=acked,
                p99=_quantile(buckets, 0.99, part.worst) if acked else 0.0,
                longest_stall=part.stall.milliseconds,
            )
        )
    return tuple(sorted(found, key=lambda one: one.partition))


def _bins(parts: Sequence[Timeline], clock: Clock) -> list[Bin]:
    count = max(part.first_bin + len(part.worst_ms) // 8 for part in parts)
    bins, worst = np.zeros((count, BUCKETS), np.int64), np.zeros(count)
    for part in parts:
        there = slice(part.first_bin, part.first_bin + len(part.worst_ms) // 8)
        bins[there] += np.frombuffer(part.bins, np.int64).reshape(-1, BUCKETS)
        worst[there] = np.maximum(worst[there], np.frombuffer(part.worst_ms, np.float64))
    return [
        Bin(
            start_ms=clock.start_ms + place * clock.bin_ms,
            acked=int(bins[place].sum()),
            p50=_quantile(bins[place], 0.5, worst[place]),
            p99=_quantile(bins[place], 0.99, worst[place]),
            worst=round(float(worst[place]), 2),
        )
        for place in np.flatnonzero(bins.any(axis=1)).tolist()
    ]


def _quantile(buckets: Ints, share: float, worst: float) -> float:
    """Return the latency in ms that a share (0 to 1) of the counted acks do not exceed, to the
    width of a bucket; at most `worst`."""
    total = np.cumsum(buckets)
    bucket = int(np.searchsorted(total, share * total[-1]))
    return round(min(_middle_ms(bucket), float(worst)), 2)
