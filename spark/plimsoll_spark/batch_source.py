"""`spark.read.format("plimsoll.batches")`: one row a record batch, from the leader or from every
replica's own file, of any cluster that speaks Kafka's protocol.

A Python data source of Spark 4. Options are named as those of Spark's Kafka source. Partitions of
the data frame are ranges of offsets; rows reach Spark as Arrow batches. It reads batch headers
and checks CRCs; it opens no record. A control batch, which holds the marker of a transaction, has
no records (`isControl`). Offsets with no valid batch are rows with `problem`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from plimsoll_spark.batches import is_control, is_transactional, record_counts
from plimsoll_spark.existing_topics import AuditedPartition, ExistingTopics
from plimsoll_spark.replica_compare import within
from plimsoll_spark.replica_reader import Connections, Held, Place, RateLimit, ReplicaReader
from plimsoll_spark.topics import OffsetRange

RANGE_OFFSETS = 200_000
TIMEOUT_S = 3600.0
ROWS_AT_ONCE = 10_000
NAMED_MAX = 5
"""The most partitions that a message names."""
KAFKA = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
SCHEMA = (
    "topic string, partition int, replica int, baseOffset bigint, lastOffset bigint, records int, "
    "sizeBytes int, leaderEpoch int, crc bigint, attributes int, baseTimestampMs bigint, "
    "maxTimestampMs bigint, producerId bigint, producerEpoch int, baseSequence int, "
    "isTransactional boolean, isControl boolean, problem string"
)
_COLUMNS: tuple[tuple[str, str, pa.DataType], ...] = (
    ("baseOffset", "base_offset", pa.int64()),
    ("lastOffset", "last_offset", pa.int64()),
    ("records", "records", pa.int32()),
    ("sizeBytes", "size", pa.int32()),
    ("leaderEpoch", "leader_epoch", pa.int32()),
    ("crc", "crc", pa.int64()),
    ("attributes", "attributes", pa.int32()),
    ("baseTimestampMs", "base_timestamp", pa.int64()),
    ("maxTimestampMs", "max_timestamp", pa.int64()),
    ("producerId", "producer_id", pa.int64()),
    ("producerEpoch", "producer_epoch", pa.int32()),
    ("baseSequence", "base_sequence", pa.int32()),
)
_FLAGS = {"isTransactional": is_transactional, "isControl": is_control}


UNSERVED = (
    "assign",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsetsByTimestamp",
)
"""Options by which Spark's Kafka source selects records, and these sources do not."""


class WrongOption(ValueError):
    """An option of the data source is missing or wrong. The message says which."""


@dataclass(frozen=True, slots=True)
class OffsetSpan(InputPartition):  # type: ignore[misc]
    """One partition of the data frame: the offsets from `first` to before `end` on the replica at
    `place`."""

    place: Place
    first: int
    end: int


class BatchSource(DataSource):  # type: ignore[misc]
    """The data source `plimsoll.batches`, for Spark to call."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plimsoll.batches"

    def schema(self) -> str:
        """Return the columns of the rows."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a data frame."""
        return BatchSourceReader(dict(self.options))


class SourceOptions:
    """The options that all sources share: which cluster, which topics and offsets, and how to log
    in."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: values by name; upper and lower case of names are the same. Raises
        `WrongOption` for one of `UNSERVED`, since other records than the wanted ones were read."""
        self._options = {name.lower(): value for name, value in options.items()}
        for name in UNSERVED:
            if name.lower() in self._options:
                raise WrongOption(
                    f"the option {name} is not supported; state subscribe, startingOffsets or "
                    "startingTimestamp, and endingOffsets instead"
                )
        self.login = {
            name.removeprefix(KAFKA): value
            for name, value in self._options.items()
            if name.startswith(KAFKA) and name != BOOTSTRAP
        }
        """Settings of librdkafka."""

    @property
    def bootstrap(self) -> str:
        """Return the brokers' addresses as stated, comma-separated. Raises `WrongOption` if there
        are none."""
        if stated := self.get(BOOTSTRAP):
            return stated
        raise WrongOption(f"option {BOOTSTRAP} is missing: state the addresses of brokers")

    def get(self, name: str, otherwise: str = "") -> str:
        """Return an option, or `otherwise` if it is not stated. `name`: in lower case."""
        return self._options.get(name, otherwise)

    def topics(self, topics: ExistingTopics) -> Sequence[str]:
        """Return the names that the option `subscribe` lists, else those of the cluster that match
        `subscribePattern`. Raises `WrongOption` if neither is stated."""
        if names := self.get("subscribe"):
            return [one.strip() for one in names.split(",")]
        if pattern := self.get("subscribepattern"):
            return topics.matching(pattern)
        raise WrongOption(
            "the option subscribe or subscribePattern is missing: name the topics to read"
        )

    def clipped(
        self, topics: ExistingTopics, partitions: Sequence[AuditedPartition]
    ) -> list[AuditedPartition]:
        """Return the partitions, each with the part of its log between the stated bounds.
        `startingTimestamp` (ms since 1970) overrides `startingOffsets`. Raises `WrongOption`,
        KafkaException."""
        starts = self._bounds("startingoffsets", "earliest")
        if since := self.get("startingtimestamp"):
            starts = topics.offsets_at(partitions, int(since))
        ends = self._bounds("endingoffsets", "latest")
        _check_named("startingOffsets", starts, partitions)
        _check_named("endingOffsets", ends, partitions)
        return [replace(one, log=_between(starts, ends, one)) for one in partitions]

    def _bounds(self, option: str, otherwise: str) -> Any:
        """Return the bound that an option states: `earliest`, `latest`, or offsets by topic and
        partition, from JSON. `otherwise`: the bound if the option is missing. Raises
        `WrongOption`."""
        stated = self.get(option, otherwise)
        if stated in ("earliest", "latest"):
            return stated
        try:
            return json.loads(stated)
        except ValueError as error:
            raise WrongOption(
                f"the option {option} must be earliest, latest or JSON, not {stated}"
            ) from error


class BatchSourceReader(DataSourceReader):  # type: ignore[misc]
    """Plans the ranges in the driver, and reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: values by name. Raises `WrongOption` if `reads` is neither disk nor memory, or
        is memory for other replicas than the leader's."""
        self._options = SourceOptions(options)
        self._replica = self._options.get("replica", "leader")
        usual = "memory" if self._replica == "leader" else "disk"
        reads = self._options.get("reads", usual).lower()
        if reads not in ("disk", "memory"):
            raise WrongOption(f"the option reads must be disk or memory, not {reads}")
        self._own_copies = reads == "disk"
        if self._replica != "leader" and not self._own_copies:
            raise WrongOption("the option replica needs reads=disk: only leaders serve from memory")

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of at most `RANGE_OFFSETS` offsets of each replica that the options select,
        within the log and the stated bounds. A partition without a leader is left out. Raises
        `WrongOption`, KafkaException."""
        topics = ExistingTopics(self._options.bootstrap, self._options.login)
        found = topics.partitions(self._options.topics(topics)).partitions
        return [
            OffsetSpan(place, first, min(first + RANGE_OFFSETS, one.log.log_end_offset))
            for one in self._options.clipped(topics, found)
            for place in self._places(one)
            for first in range(one.log.log_start_offset, one.log.log_end_offset, RANGE_OFFSETS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range and yield its rows as Arrow batches. Raises RuntimeError, before the first
        row, if the range could not be read to its end."""
        assert isinstance(partition, OffsetSpan)
        with contextlib.closing(Connections(self._options.login)) as connections:
            reader = ReplicaReader(
                connections,
                partition.place,
                own_copy=self._own_copies,
                until_s=time.time() + TIMEOUT_S,
                limit=RateLimit(None),
            )
            held = reader.read(partition.first, partition.end)
        if held.why is not None:
            place = partition.place
            raise RuntimeError(
                f"partition {place.topic}-{place.partition} was not read to its end on broker "
                f"{place.broker}: {held.why.value}"
            )
        yield from arrow_rows(partition, held)

    def _places(self, one: AuditedPartition) -> Sequence[Place]:
        if self._replica == "leader":
            return one.replicas[:1]
        if self._replica == "all":
            return one.replicas
        return [place for place in one.replicas if str(place.broker) == self._replica]


def _check_named(option: str, bounds: Any, partitions: Sequence[AuditedPartition]) -> None:
    """Raise `WrongOption` if `bounds` are offsets by topic and partition, and do not name all of
    `partitions`. Spark's Kafka source refuses this, too."""
    if not isinstance(bounds, dict):
        return
    unnamed = [
        f"{one.topic}-{one.partition}"
        for one in partitions
        if str(one.partition) not in bounds.get(one.topic, {})
    ]
    if unnamed:
        more = f", and {len(unnamed) - NAMED_MAX} more" if len(unnamed) > NAMED_MAX else ""
        raise WrongOption(
            f"the option {option} does not name {', '.join(unnamed[:NAMED_MAX])}{more}: state an "
            "offset for every partition, -2 for the earliest, -1 for the latest"
        )


def _between(starts: Any, ends: Any, one: AuditedPartition) -> OffsetRange:
    end = max(one.log.log_start_offset, min(one.log.log_end_offset, _bound(ends, one)))
    start = min(end, max(one.log.log_start_offset, _bound(starts, one)))
    return OffsetRange(log_start_offset=start, log_end_offset=end)


def _bound(bounds: Any, one: AuditedPartition) -> int:
    """Return one partition's bound as an offset. As in Spark's Kafka source, -2 is the log start
    offset, and -1 the log end offset. `bounds`: a word, or offsets by topic and partition that name
    this one."""
    log = one.log
    stated = bounds
    if isinstance(bounds, dict):
        stated = bounds[one.topic][str(one.partition)]
    if stated in ("earliest", -2):
        return log.log_start_offset
    return log.log_end_offset if stated in ("latest", -1) else int(stated)


def arrow_rows(span: OffsetSpan, held: Held) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches: a row for each valid record batch that ends in the range, then a row
    with `problem` for each span of offsets without a valid batch."""
    inside = within(held, span.first, span.end)
    for at in range(0, len(inside), ROWS_AT_ONCE):
        rows = inside[at : at + ROWS_AT_ONCE]
        columns = {name: pa.array(rows[field].astype(kind.to_pandas_dtype()), kind)
                   for name, field, kind in _COLUMNS}  # fmt: skip
        columns["records"] = pa.array(record_counts(rows).astype(np.int32))
        for name, flag in _FLAGS.items():
            columns[name] = pa.array(flag(rows["attributes"]))
        yield _batch(span, columns, pa.nulls(len(rows), pa.string()))
    if held.bad:
        unknown = {name: pa.nulls(len(held.bad), kind) for name, _, kind in _COLUMNS}
        unknown |= {name: pa.nulls(len(held.bad), pa.bool_()) for name in _FLAGS}
        unknown["baseOffset"] = pa.array([one.first for one in held.bad], pa.int64())
        unknown["lastOffset"] = pa.array([one.end - 1 for one in held.bad], pa.int64())
        yield _batch(span, unknown, pa.array([one.problem.value for one in held.bad]))


def _batch(span: OffsetSpan, columns: Mapping[str, pa.Array], problem: pa.Array) -> pa.RecordBatch:
    count, place = len(problem), span.place
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([place.topic] * count, pa.string()),
            "partition": pa.array(np.full(count, place.partition, np.int32)),
            "replica": pa.array(np.full(count, place.broker, np.int32)),
            **columns,
            "problem": problem,
        }
    )
