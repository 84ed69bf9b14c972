"""Which offsets of a topic are read back."""

from plimsoll_spark.checks import expected, left_by, readable, with_added
from plimsoll_spark.topics import OffsetRange


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(log_start_offset=start, log_end_offset=end)


def test_verification_range_excludes_offsets_from_before_the_run() -> None:
    found = expected({0: span(0, 150)}, {0: span(0, 100)}, {0: (100, 150)})
    assert found == {0: span(100, 150)}


def test_retention_during_the_run_moves_the_start() -> None:
    found = expected({0: span(120, 150)}, {0: span(0, 100)}, {0: (100, 150)})
    assert found == {0: span(120, 150)}


def test_ack_below_earlier_end_is_read() -> None:
    found = expected({0: span(0, 150)}, {0: span(0, 100)}, {0: (90, 150)})
    assert found == {0: span(90, 150)}


def test_offsets_a_log_lost_are_missing() -> None:
    now = {0: span(0, 40)}
    wanted = expected(now, {0: span(0, 100)}, {})
    assert wanted == {0: span(40, 100)}
    shrunk = expected(now, {0: span(0, 100)}, {0: (30, 40)})
    assert shrunk == {0: span(30, 100)}
    assert readable(shrunk, now) == {0: span(30, 40)}
    assert readable(wanted, now) == {0: span(40, 40)}


def test_partitions_added_during_run_are_read_whole() -> None:
    begun = with_added({0: span(20, 100)}, (0, 1, 1))
    assert begun == {0: span(20, 100), 1: span(0, 0)}
    now = {0: span(20, 150), 1: span(0, 7)}
    assert expected(now, begun, {1: (0, 7)}) == {0: span(100, 150), 1: span(0, 7)}


def test_records_deleted_during_read_are_not_requested() -> None:
    ranges = {0: span(100, 150), 1: span(0, 10), 2: span(0, 10)}
    then = {0: span(20, 170), 1: span(4, 10), 2: span(12, 12)}
    assert left_by(ranges, then) == {0: span(100, 150), 1: span(4, 10), 2: span(10, 10)}
