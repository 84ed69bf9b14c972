"""`spark.read.format("plimsoll.audit")`: the findings of an audit of existing topics, a row each.

A Python data source of Spark 4 for notebooks. It checks what `audit` checks, over the same options
as `batch_source`; a `Verification` judges, reports and can be scheduled. Replicas that could not be
read are rows of the kind `unread`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from plimsoll_spark.audit import AWAY, audit_items, whole_partition
from plimsoll_spark.audit_range import AuditItem, AuditJob, RangeAudit, Unread, audit_some
from plimsoll_spark.batch_source import TIMEOUT_S, SourceOptions
from plimsoll_spark.existing_topics import ExistingTopics

TASKS = 8
SCHEMA = (
    "topic string, partition int, firstOffset bigint, lastOffset bigint, kind string, "
    "brokers array<int>, detail string"
)


@dataclass(frozen=True, slots=True)
class AuditSpan(InputPartition):  # type: ignore[misc]
    """One partition of the data frame: a range of all replicas. `again`: the whole partition, to be
    compared record by record if the replicas' batches differ; None if it is not compacted."""

    item: AuditItem
    again: AuditItem | None


@dataclass(frozen=True, slots=True)
class AwaySpan(InputPartition):  # type: ignore[misc]
    """One partition of the data frame: the replicas of a topic's partition that are on brokers
    which are not in the cluster."""

    topic: str
    partition: int
    brokers: tuple[int, ...]


class FindingSource(DataSource):  # type: ignore[misc]
    """The data source `plimsoll.audit`, for Spark to call."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plimsoll.audit"

    def schema(self) -> str:
        """Return the columns of the rows."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a data frame."""
        return FindingSourceReader(dict(self.options))


class FindingSourceReader(DataSourceReader):  # type: ignore[misc]
    """Plans the ranges in the driver, and audits them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: as of `plimsoll.batches`, without `replica` and `reads`."""
        self._options = SourceOptions(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of offsets to audit: several of a partition, but the whole log of a
        compacted one, or of one with an unreadable configuration. Raises `WrongOption`,
        KafkaException, and RuntimeError if a partition has no leader."""
        topics = ExistingTopics(self._options.bootstrap, self._options.login)
        names = self._options.topics(topics)
        sparse = {name for name, known in topics.compacted(names).items() if known is not False}
        found, missing = topics.partitions(names)
        if missing:
            raise RuntimeError(
                f"not every partition of the audited topics can be read: {'; '.join(missing)}"
            )
        away = [AwaySpan(one.topic, one.partition, one.away) for one in found if one.away]
        found = self._options.clipped(topics, found)
        items = audit_items([one for one in found if one.topic not in sparse], set(), TASKS)
        whole = [whole_partition(one) for one in found if one.topic in sparse]
        first = [replace(one, record_by_record=False) for one in whole]
        return [
            *away,
            *(AuditSpan(item, None) for item in items),
            *(AuditSpan(item, again) for item, again in zip(first, whole, strict=True)),
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Audit one range on all replicas, and yield a row for each finding, at most
        `FINDINGS_MAX`, and for each replica that was not read to the end. If `again` is set and the
        batches differ, audit that too."""
        if isinstance(partition, AwaySpan):
            for broker in partition.brokers:
                unread = Unread(broker=broker, first=0, why=AWAY)
                yield _unread(partition.topic, partition.partition, unread)
            return
        assert isinstance(partition, AuditSpan)
        with tempfile.TemporaryDirectory(prefix="plimsoll-audit-") as results:
            job = AuditJob(
                login=self._options.login,
                until_s=time.time() + TIMEOUT_S,
                bytes_per_second=None,
                own_copies=True,
                results=Path(results),
            )
            (found,) = audit_some(job, [partition.item])
            yield from _rows(found)
            if partition.again is not None and not found.is_equal:
                (found,) = audit_some(job, [partition.again])
                yield from _rows(found)


def _rows(found: RangeAudit) -> Iterator[tuple[object, ...]]:
    for one in found.findings:
        yield (
            found.topic, found.partition, one.first, one.last, one.kind, list(one.brokers),
            one.detail,
        )  # fmt: skip
    for missed in found.unread:
        yield _unread(found.topic, found.partition, missed)


def _unread(topic: str, partition: int, one: Unread) -> tuple[object, ...]:
    return topic, partition, one.first, None, "unread", [one.broker], one.why
