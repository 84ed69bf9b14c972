"""How far the reading back is, while Spark copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def test_rows_are_counted_while_spark_removes_the_directory_of_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, plain = tmp_path / "log", os.scandir
    written(copy / "part-0.parquet", 30)
    (copy / "attempt").mkdir()

    def removed_first(path: Any) -> Any:
        if Path(path).name == "attempt":
            Path(path).rmdir()
        return plain(path)

    monkeypatch.setattr(os, "scandir", removed_first)
    assert rows_so_far(copy) == 30
    assert not (copy / "attempt").exists()
