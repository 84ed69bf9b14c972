"""Finds the markers of other clients' transactions, which take offsets and are no records.

Called where a check reads the log record by record and misses offsets (`checks`, `run_reader`): a
consumer is shown no control batch. Only batch headers are looked at. Plimsoll has no transactions;
Apache Kafka writes a marker into each partition of a transaction when it ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from confluent_kafka import KafkaException

from plimsoll_spark.arrays import Ints
from plimsoll_spark.batches import is_control
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.partition_reader import OutOfTime
from plimsoll_spark.range_check import Gap, Span, gaps_in
from plimsoll_spark.replica_compare import within
from plimsoll_spark.replica_reader import RETRY_S, Connections, Place, RateLimit, ReplicaReader

NEAR_OFFSETS = 1_000
"""Gaps with fewer offsets between them are read at once."""


def markers_of(
    bootstrap: str,
    topic: str,
    login: Mapping[str, str],
    partition: int,
    gaps: Sequence[Gap],
    until_s: float,
) -> Ints:
    """Return the offsets of the markers in `gaps` of one partition, sorted. `login`: settings of
    librdkafka; `until_s`: the wall-clock time at which to give up, in seconds since 1970. Raises
    `OutOfTime` if not every header can be read."""
    if not gaps:
        return np.zeros(0, np.int64)
    topics = ExistingTopics(bootstrap, login)
    while True:
        try:
            shown = topics.partitions([topic], leaders_only=True).partitions
            break
        except KafkaException as error:
            if time.time() >= until_s:
                raise OutOfTime(
                    f"the missing offsets of partition {topic}-{partition} cannot be judged, "
                    f"because the driver pod could not ask the brokers for their cause: {error}"
                ) from error
            time.sleep(RETRY_S)
    places = [one.replicas[0] for one in shown if one.partition == partition and one.replicas]
    if not places:
        raise OutOfTime(
            f"the missing offsets of partition {topic}-{partition} cannot be judged, because the "
            "partition has no leader that the driver pod could ask for their cause"
        )
    return markers_at(places[0], login, gaps, until_s)


def markers_at(place: Place, login: Mapping[str, str], gaps: Sequence[Gap], until_s: float) -> Ints:
    """Return what `markers_of` does. `place`: the leader's."""
    found: list[Ints] = []
    with contextlib.closing(Connections(login)) as connections:
        reader = ReplicaReader(
            connections, place, own_copy=False, until_s=until_s, limit=RateLimit(None), settle_s=0.0
        )
        for near in _near(gaps):
            held = reader.read(near.first, near.end)
            if held.why is not None:
                raise OutOfTime(
                    f"the missing offsets of partition {place.topic}-{place.partition} from "
                    f"{near.first} on cannot be judged, because the driver pod could not read "
                    f"the batches there: {held.why.value}"
                )
            inside = within(held, near.first, near.end)
            inside = inside[is_control(inside["attributes"])]
            found += [np.arange(one["base_offset"], one["last_offset"] + 1) for one in inside]
    offsets = np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
    return offsets[_inside(gaps, offsets)]


def without_markers(gaps: Iterable[Gap], markers: Ints) -> tuple[Gap, ...]:
    """Return the parts of `gaps` that no marker explains. `markers`: offsets, sorted."""
    left: list[Gap] = []
    for gap in gaps:
        low, high = np.searchsorted(markers, [gap.first, gap.end])
        left += gaps_in(Span(partition=0, first=gap.first, end=gap.end), markers[low:high])
    return tuple(left)


def _near(gaps: Sequence[Gap]) -> Iterator[Gap]:
    first, end = gaps[0].first, gaps[0].end
    for gap in gaps[1:]:
        if gap.first - end >= NEAR_OFFSETS:
            yield Gap(first=first, end=end)
            first = gap.first
        end = gap.end
    yield Gap(first=first, end=end)


def _inside(gaps: Sequence[Gap], offsets: Ints) -> Ints:
    """Return the indices of the offsets that lie in one of the gaps."""
    firsts, ends = (np.array([getattr(one, name) for one in gaps]) for name in ("first", "end"))
    at = np.searchsorted(firsts, offsets, side="right") - 1
    return np.flatnonzero((at >= 0) & (offsets < ends[np.maximum(at, 0)]))
