"""Tells the copies of records that their producer wrote again from those that the log made.

Called by `checks` if a run's log holds second copies of records; no healthy run has any. An
idempotent producer numbers its records for each partition under its id and epoch, and the log may
append each number once. librdkafka raises the epoch when a record times out, and when a partition
with several requests in flight changes its leader; it then writes records again that it had no
answer for, and a log cannot recognise them (librdkafka, issue 4953; KIP-360). Such a copy has a
number of its own, under a later epoch than the first. `rewritten` is pure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from plimsoll_spark.arrays import Bools, Ints
from plimsoll_spark.batches import Rows
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.partition_reader import OutOfTime
from plimsoll_spark.replica_compare import within
from plimsoll_spark.replica_reader import Connections, RateLimit, ReplicaReader

RANGE_OFFSETS = 200_000


class Copies(NamedTuple):
    """The second copies of records in one partition. `offsets`: of the copies; `first`, `end`: the
    run's records lie at offsets from `first` to before `end`."""

    offsets: Ints
    first: int
    end: int


def rewritten(batches: Rows, offsets: Ints) -> Bools:
    """Return, for each second copy of a record in one partition, True if its producer wrote it
    again: its batch has a later epoch than an earlier batch of this producer id, and no other batch
    has its sequence number under the same id and epoch. `batches`: those of the partition, in the
    order of offsets; `offsets`: of the copies."""
    if not len(batches):
        return np.zeros(len(offsets), np.bool_)
    own = _numbered_once(batches) & _raised(batches)
    at = np.searchsorted(batches["last_offset"], offsets)
    found = at < len(batches)
    at = np.minimum(at, len(batches) - 1)
    found &= batches["base_offset"][at] <= offsets
    return np.asarray(found & own[at], np.bool_)


def _raised(batches: Rows) -> Bools:
    """Return, for each batch, True if an earlier one has the same producer id and a lower epoch."""
    raised = np.zeros(len(batches), np.bool_)
    for producer in np.unique(batches["producer_id"]):
        rows = np.flatnonzero(batches["producer_id"] == producer)
        epochs = batches["producer_epoch"][rows]
        raised[rows] = epochs > np.minimum.accumulate(epochs)
    return raised & (batches["producer_id"] >= 0)


def _numbered_once(batches: Rows) -> Bools:
    """Return, for each batch, True if none of its records has the producer id, epoch and sequence
    number of a record in another batch."""
    order = np.lexsort(
        (batches["base_sequence"], batches["producer_epoch"], batches["producer_id"])
    )
    rows = batches[order]
    first = rows["base_sequence"].astype(np.int64)
    end = first + rows["records"]
    same = (rows["producer_id"][1:] == rows["producer_id"][:-1]) & (
        rows["producer_epoch"][1:] == rows["producer_epoch"][:-1]
    )
    once = np.ones(len(batches), np.bool_)
    group = np.concatenate(([0], np.cumsum(~same)))
    # The highest end before a batch in its group: groups are lifted apart, so that one pass does.
    lift = group * 2**33
    reached = np.maximum.accumulate(end + lift)[:-1]
    overlaps = same & (first[1:] + lift[1:] < reached)
    once[order[1:][overlaps]] = False
    once[order[:-1][overlaps]] = False
    return once


def rewritten_in(
    bootstrap: str,
    topic: str,
    login: Mapping[str, str],
    copies: Mapping[int, Copies],
    until_s: float,
) -> dict[int, Bools]:
    """Read the batch headers of the partitions in `copies`, and return what `rewritten` says of the
    copies in each. `login`: settings of librdkafka; `until_s`: the wall-clock time at which to give
    up, in seconds since 1970. Raises KafkaException, and `OutOfTime` if not every header can be
    read."""
    shown = ExistingTopics(bootstrap, login).partitions([topic], leaders_only=True).partitions
    places = {one.partition: one.replicas for one in shown}
    found: dict[int, Bools] = {}
    with contextlib.closing(Connections(login)) as connections:
        for partition, some in copies.items():
            if not places.get(partition):
                raise OutOfTime(_unread(topic, partition, "the partition has no leader"))
            reader = ReplicaReader(
                connections,
                places[partition][0],
                own_copy=False,
                until_s=until_s,
                limit=RateLimit(None),
            )
            parts: list[Rows] = []
            for first in range(some.first, some.end, RANGE_OFFSETS):
                end = min(first + RANGE_OFFSETS, some.end)
                held = reader.read(first, end)
                if held.why is not None:
                    raise OutOfTime(_unread(topic, partition, held.why.value))
                parts.append(within(held, first, end))
            found[partition] = rewritten(np.concatenate(parts), some.offsets)
    return found


def _unread(topic: str, partition: int, why: str) -> str:
    return (
        f"partition {topic}-{partition} holds records twice, and the driver pod could not read "
        f"its batches to find out if a producer or the log wrote them twice: {why}"
    )
