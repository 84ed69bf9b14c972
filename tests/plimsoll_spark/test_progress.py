"""How far the reading back is, while Spark's tasks read."""

from pathlib import Path

from plimsoll_spark.checks import ProgressFile, records_so_far


def test_records_are_the_sum_over_ranges(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert records_so_far(results) == 0
    results.mkdir()
    first, second = (ProgressFile(results / f"read-{p}-0.count") for p in (0, 1))
    first.note(30)
    second.note(40)
    assert records_so_far(results) == 70
    second.note(50)  # within a second of the last time
    assert records_so_far(results) == 70
    second.write(50)
    assert records_so_far(results) == 80
