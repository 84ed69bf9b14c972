"""The ledger: the outcome of every record of a run, as Parquet files that a check can read in part.

Written in each producer's Spark task (`drive.write_ledger`), read by `checks`. A producer writes a
file each time it has `CHUNK_ROWS` rows. In a file the acknowledged records with an offset are
sorted by (partition, offset), each partition in a row group of its own; the last row groups hold
all other records. A check of a range of offsets reads the row groups that can hold them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plimsoll_spark.arrays import Bools, Floats, Ints
from plimsoll_spark.whole_files import whole_file

ACKED = "acked"
FAILED = "failed"  # certainly not appended
UNKNOWN = "unknown"  # may or may not have been appended
CHUNK_ROWS = 50_000
NONE = -1
"""Stands in an array for an unknown partition or offset."""
SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("producer", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("send_ms", pa.float64(), nullable=False),
        # When the outcome became known.
        pa.field("settled_ms", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRows:
    """Rows of the ledger as columns of equal length. In `partition` and `offset`, `NONE` stands for
    an unknown value. Times are milliseconds since 1970."""

    partition: Ints
    offset: Ints
    producer: Ints
    sequence: Ints
    acked: Bools
    send_ms: Floats
    settled_ms: Floats

    def __len__(self) -> int:
        return len(self.offset)

    def between(self, first: int, end: int) -> LedgerRows:
        """Return the rows with an acked offset in [first, end)."""
        return self.only((self.offset >= first) & (self.offset < end))

    def only(self, rows: Bools) -> LedgerRows:
        """Return the rows for which `rows` is True."""
        return LedgerRows(
            partition=self.partition[rows],
            offset=self.offset[rows],
            producer=self.producer[rows],
            sequence=self.sequence[rows],
            acked=self.acked[rows],
            send_ms=self.send_ms[rows],
            settled_ms=self.settled_ms[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Where to find one row group of the ledger, and the bounds of its values. `partition`: that of
    all its records; None if they have none. Times are milliseconds since 1970."""

    path: str
    number: int
    partition: int | None
    offsets: tuple[int, int] | None
    """Smallest and largest acked offset; None if the records have no acked offset."""
    first_sent_ms: float
    first_settled_ms: float
    last_settled_ms: float

    def overlaps(self, first: int, end: int) -> bool:
        """Return True if the row group may have an acked offset in [first, end)."""
        return self.offsets is not None and self.offsets[0] < end and self.offsets[1] >= first


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIndex:
    """Describes all row groups of a ledger, so that a check reads only those that it needs.
    `outcomes`: number of records by outcome."""

    groups: tuple[RowGroup, ...]
    outcomes: Mapping[str, int]
    producers: frozenset[int] = frozenset()
    """Numbers of all producers that have records in the ledger."""

    @property
    def acked(self) -> dict[int, tuple[int, int]]:
        """Return, by partition, the first acked offset and the one after the last. A partition
        without acked offsets is left out."""
        found: dict[int, tuple[int, int]] = {}
        for group in self.groups:
            if group.partition is not None and group.offsets is not None:
                low, high = group.offsets
                first, end = found.get(group.partition, (low, high + 1))
                found[group.partition] = (min(first, low), max(end, high + 1))
        return found

    @property
    def unplaced(self) -> tuple[RowGroup, ...]:
        """Return the row groups of records without an acked offset."""
        return tuple(group for group in self.groups if group.offsets is None)

    def of(self, partition: int) -> tuple[RowGroup, ...]:
        """Return all row groups of a partition."""
        return tuple(group for group in self.groups if group.partition == partition)


def write_chunk(path: Path, rows: pa.RecordBatch) -> None:
    """Write rows to one whole Parquet file, sorted by partition and offset."""
    table = pa.Table.from_batches([rows])
    placed = pc.is_valid(table["offset"])
    order = [("partition", "ascending"), ("offset", "ascending")]
    with whole_file(path) as partial, pq.ParquetWriter(partial, SCHEMA) as writer:
        for part in (table.filter(placed), table.filter(pc.invert(placed))):
            sorted_part = part.sort_by(order)
            for start, end in _runs(pc.fill_null(sorted_part["partition"], NONE).to_numpy()):
                writer.write_table(sorted_part.slice(start, end - start), row_group_size=end)


def _runs(values: Ints) -> Iterable[tuple[int, int]]:
    """Yield (start, end) of each longest range of equal, adjacent values."""
    if len(values):
        edges = (np.flatnonzero(np.diff(values)) + 1).tolist()
        yield from zip([0, *edges], [*edges, len(values)], strict=True)


def index(directory: Path, only: Collection[int] | None = None) -> LedgerIndex:
    """Return the index of all complete files in a ledger's directory. `only`: the producers of
    which the files are included; None: all."""
    groups: list[RowGroup] = []
    outcomes: Counter[str] = Counter()
    producers: set[int] = set()
    for path in sorted(directory.glob("[!_]*.parquet")):
        if only is not None and int(path.name.split("-")[1]) not in only:
            continue
        file = pq.ParquetFile(path)
        groups += (_group(file, path, number) for number in range(file.num_row_groups))
        columns = file.read(["outcome", "producer"])
        for value in pc.value_counts(columns["outcome"]).to_pylist():
            outcomes[value["values"]] += value["counts"]
        producers.update(pc.unique(columns["producer"]).to_pylist())
    return LedgerIndex(groups=tuple(groups), outcomes=outcomes, producers=frozenset(producers))


def read_files(paths: Sequence[Path]) -> tuple[LedgerRows, Mapping[str, int]]:
    """Return all rows of these files, and the number of records by outcome."""
    tables = [pq.read_table(path, schema=SCHEMA) for path in paths]
    table = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    counted = pc.value_counts(table["outcome"]).to_pylist()
    return _columns(table), {one["values"]: one["counts"] for one in counted}


def _group(file: pq.ParquetFile, path: Path, number: int) -> RowGroup:
    group = file.metadata.row_group(number)
    stats = {SCHEMA.names[n]: group.column(n).statistics for n in range(group.num_columns)}
    partition, offset = stats["partition"], stats["offset"]
    return RowGroup(
        path=str(path),
        number=number,
        partition=partition.min if partition.has_min_max else None,
        offsets=(offset.min, offset.max) if offset.has_min_max else None,
        first_sent_ms=stats["send_ms"].min,
        first_settled_ms=stats["settled_ms"].min,
        last_settled_ms=stats["settled_ms"].max,
    )


def extract(groups: Sequence[RowGroup], first: int, end: int) -> bytes:
    """Return a Parquet file of the rows with an acked offset in [first, end), to be sent to an
    executor."""
    table = _table(groups)
    offset = table["offset"]
    kept = pc.and_(pc.greater_equal(offset, first), pc.less(offset, end))
    content = pa.BufferOutputStream()
    pq.write_table(table.filter(kept), content, compression="zstd", row_group_size=len(table) or 1)
    return bytes(content.getvalue())


def read(groups: Sequence[RowGroup]) -> LedgerRows:
    """Return the rows of these row groups, in the given order; none for no row group."""
    return _columns(_table(groups))


def _columns(table: pa.Table) -> LedgerRows:
    return LedgerRows(
        partition=pc.fill_null(table["partition"], NONE).to_numpy(),
        offset=pc.fill_null(table["offset"], NONE).to_numpy(),
        producer=table["producer"].to_numpy(),
        sequence=table["sequence"].to_numpy(),
        acked=pc.equal(table["outcome"], ACKED).to_numpy(),
        send_ms=table["send_ms"].to_numpy(),
        settled_ms=table["settled_ms"].to_numpy(),
    )


def _table(groups: Sequence[RowGroup]) -> pa.Table:
    tables = [pq.ParquetFile(group.path).read_row_group(group.number) for group in groups]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()
