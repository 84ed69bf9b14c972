"""`spark.read.format("plimsoll.ledger")`: the ledger of a run, from its evidence: a row for the
outcome of each record.

A Python data source of Spark 4. Option `path`: the directory of the run (`status.evidence.run` in
the claim), or its `ledger`; a run in a bucket is copied to one first. Partitions of the data frame
are some files each; rows reach Spark as Arrow batches. Files that a producer has not completed are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from plimsoll_spark import ledger
from plimsoll_spark.batch_source import ROWS_AT_ONCE, WrongOption
from plimsoll_spark.evidence import newest_run

FILES_AT_ONCE = 16
SCHEMA = (
    "topic string, partition int, offset bigint, producer int, sequence bigint, outcome string, "
    "sendTimestampMs double, settledTimestampMs double"
)


@dataclass(frozen=True, slots=True)
class LedgerFiles(InputPartition):  # type: ignore[misc]
    """One partition of the data frame: some files of a ledger."""

    paths: tuple[str, ...]


class LedgerSource(DataSource):  # type: ignore[misc]
    """The data source `plimsoll.ledger`, for Spark to call."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plimsoll.ledger"

    def schema(self) -> str:
        """Return the columns of the rows."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a data frame."""
        return LedgerReader(dict(self.options))


class LedgerReader(DataSourceReader):  # type: ignore[misc]
    """Lists the files in the driver, and reads them in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: values by name. Raises `WrongOption` if `path` is missing, or is no directory
        with a ledger."""
        stated = {name.lower(): value for name, value in options.items()}.get("path")
        if not stated:
            raise WrongOption("the option path is missing: state the directory of a run")
        path = Path(stated)
        self._ledger = path if path.name == "ledger" else path / "ledger"
        if not self._ledger.is_dir():
            raise WrongOption(
                f"the directory in the option path, {path}, holds no ledger, the list of records "
                "that a Verification's run wrote"
            )
        known = newest_run(self._ledger.parent)
        self._topic = None if known is None else known.topic

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of the ledger that are complete, some to a partition."""
        paths = [str(path) for path in sorted(self._ledger.glob("[!_]*.parquet"))]
        return [
            LedgerFiles(tuple(paths[at : at + FILES_AT_ONCE]))
            for at in range(0, len(paths), FILES_AT_ONCE)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some files, and yield their rows as Arrow batches."""
        assert isinstance(partition, LedgerFiles)
        for path in partition.paths:
            file = pq.ParquetFile(path)
            for rows in file.iter_batches(ROWS_AT_ONCE, columns=ledger.SCHEMA.names):
                topic = pa.array([self._topic] * len(rows), pa.string())
                names = [one.split()[0] for one in SCHEMA.split(", ")]
                yield pa.RecordBatch.from_arrays([topic, *rows.columns], names)
