"""How far the reading back is, while Spark copies."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plimsoll_spark.checks import rows_so_far


def written(path: Path, rows: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"offset": list(range(rows))}), path)
    return path


def test_rows_are_those_of_files_that_are_whole(tmp_path: Path) -> None:
    copy = tmp_path / "log"
    assert rows_so_far(copy) == 0
    written(copy / "_temporary" / "0" / "task-1" / "part-0.parquet", 30)
    half = written(copy / "_temporary" / "0" / "task-2" / "part-1.parquet", 40)
    assert rows_so_far(copy) == 70
    half.write_bytes(half.read_bytes()[:-20])
    (copy / "_temporary" / "0" / "task-2" / "part-2.parquet").write_bytes(b"")
    assert rows_so_far(copy) == 30
