"""Small ledgers and logs that agree with each other, for tests that then break one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from plimsoll_spark.producer import ARROW_LEDGER
from plimsoll_spark.records import Encoder, hash_of, key_of
from plimsoll_spark.schemas import ACKED, LEDGER, LOG, RANGES

RUN = "run-of-the-tests"
KEYS = 4
T0_MS = 1_795_000_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A row of the ledger."""

    producer: int
    sequence: int
    partition: int | None
    offset: int | None
    outcome: str = ACKED
    send_ms: float = T0_MS
    settled_ms: float = T0_MS + 1

    @property
    def key(self) -> str:
        return key_of(self.producer, self.sequence, KEYS)

    @property
    def content_hash(self) -> str:
        return hash_of(self.value)

    @property
    def value(self) -> bytes:
        return Encoder(run=RUN, producer=self.producer, record_bytes=32).value(self.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A row of the log."""

    partition: int
    offset: int
    key: str
    producer: int
    sequence: int
    content_hash: str
    ours: bool = True

    @staticmethod
    def of(sent: Sent) -> Read:
        """The record just as it was acked."""
        assert sent.partition is not None
        assert sent.offset is not None
        return Read(
            partition=sent.partition,
            offset=sent.offset,
            key=sent.key,
            producer=sent.producer,
            sequence=sent.sequence,
            content_hash=sent.content_hash,
        )


def agreeing(per_partition: int = 10) -> tuple[list[Sent], list[Read]]:
    """Two partitions, each written by a producer of its own; all acked, all there."""
    sent = [
        Sent(producer=partition, sequence=number, partition=partition, offset=number)
        for partition in (0, 1)
        for number in range(per_partition)
    ]
    return sent, [Read.of(one) for one in sent]


def moved(read: Read, *, offset: int) -> Read:
    """The same record at another offset."""
    return replace(read, offset=offset)


def ledger_table(spark: SparkSession, rows: Iterable[Sent]) -> DataFrame:
    """The ledger as Spark sees it."""
    names = ARROW_LEDGER.names
    return spark.createDataFrame([tuple(getattr(r, n) for n in names) for r in rows], LEDGER)


def log_table(spark: SparkSession, rows: Iterable[Read]) -> DataFrame:
    """The log as Spark sees it."""
    names = LOG.names
    return spark.createDataFrame([tuple(getattr(r, n) for n in names) for r in rows], LOG)


def ranges_table(spark: SparkSession, *ranges: tuple[int, int, int]) -> DataFrame:
    """(partition, start, end) as Spark sees them."""
    return spark.createDataFrame(list(ranges), RANGES)
