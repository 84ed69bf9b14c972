"""Consumer lag: records, time, and which groups are shown."""

import pytest

from plimsoll_core.groups.lag import (
    SAMPLES_MAX,
    EndHistory,
    FurthestBehind,
    GroupPartition,
    StandingPartitions,
    TopicLag,
    topic_lag,
)
from plimsoll_core.groups.state import CommittedOffset

LOOK_MS = 10_000


def committed(*offsets: int) -> dict[int, CommittedOffset]:
    return {n: CommittedOffset(at, -1, "", 0, None, None) for n, at in enumerate(offsets)}


def history(*ends: int, began_ms: int = 0) -> EndHistory:
    """Looked at every ten seconds."""
    found = EndHistory()
    for number, end in enumerate(ends):
        found.note(end, began_ms + number * LOOK_MS)
    return found


def lag_of(ends: dict[int, EndHistory], *offsets: int, now_ms: int = 0) -> TopicLag | None:
    return topic_lag(
        "g", "t", committed(*offsets), lambda index, _: ends.get(index), lambda *_: None, now_ms
    )


def test_group_that_has_read_everything_is_not_behind() -> None:
    assert lag_of({0: history(5), 1: history(7)}, 5, 7, now_ms=90_000) == (0, "g", "t", 0, 12, 0)


def test_lag_sums_records_and_takes_longest_time() -> None:
    ends = {0: history(5, 8, 9), 1: history(7, 7, 9)}
    assert lag_of(ends, 5, 8, now_ms=30_000) == (4 + 1, "g", "t", 20_000, 13, 0)


def test_lag_time_counts_from_first_unread_end() -> None:
    ends = history(10, 20, 30, 30, 30)
    assert ends.behind_since_ms(9) == 0
    assert ends.behind_since_ms(10) == 10_000
    assert ends.behind_since_ms(29) == 20_000
    assert ends.behind_since_ms(30) is None


def test_partition_without_known_end_is_left_out() -> None:
    assert lag_of({1: history(7)}, 5, 4) == (3, "g", "t", 0, 4, 0)
    assert lag_of({0: EndHistory()}, 5) is None


def test_offset_beyond_the_end_is_zero_lag() -> None:
    assert lag_of({0: history(3), 1: history(5)}, 9, 4) == (1, "g", "t", 0, 13, 0)


def test_log_that_shrank_begins_its_history_anew() -> None:
    ends = history(10, 20, 5, 8)
    assert ends.end == 8
    assert ends.behind_since_ms(0) == 20_000
    assert ends.behind_since_ms(7) == 30_000


@pytest.mark.parametrize("looks", [20, 100, 1_000, 5_000])
def test_end_history_is_bounded_and_dates_accurately(
    looks: int,
) -> None:
    """The log grows by one record a look, so a position is as old as the looks since."""
    ends = history(*range(1, looks + 1))
    assert len(ends._ends) <= SAMPLES_MAX
    now_ms = (looks - 1) * LOOK_MS
    for position in range(looks):
        since_ms = ends.behind_since_ms(position)
        assert since_ms is not None
        true_ms, told_ms = now_ms - position * LOOK_MS, now_ms - since_ms
        assert told_ms <= true_ms
        assert told_ms >= true_ms / 2 - LOOK_MS


def test_groups_furthest_behind_are_named_and_others_counted() -> None:
    lags = FurthestBehind(2)
    for records, group in ((5, "e"), (1, "a"), (9, "n"), (7, "b")):
        lags.add(TopicLag(records, group, "t", 0, 0))
    assert [(lag.group_id, lag.records) for lag in lags.shown()] == [("b", 7), ("n", 9)]
    assert lags.left_out == 2


def test_groups_are_only_counted_when_none_is_shown() -> None:
    lags = FurthestBehind(0)
    lags.add(TopicLag(5, "e", "t", 0, 0))
    assert (lags.shown(), lags.left_out) == ([], 1)


# --- standing still ------------------------------------------------------------------------------


def stuck_ms(ends: dict[int, EndHistory], stood: dict[int, int], now_ms: int) -> int:
    """Of a group that has committed offset 5 of each partition, since `stood`."""
    offsets = committed(*(5 for _ in ends))
    lag = topic_lag("g", "t", offsets, lambda i, _: ends.get(i), lambda i, _: stood[i], now_ms)
    assert lag is not None
    return lag.stuck_ms


def test_stuck_partition_is_reported_though_others_move() -> None:
    ends = {0: history(9), 1: history(9)}
    assert stuck_ms(ends, {0: 50_000, 1: 10_000}, 60_000) == 50_000


def test_partition_is_stuck_only_with_records_to_read() -> None:
    assert stuck_ms({0: history(5, 5, 5, 6)}, {0: 0}, 90_000) == 60_000
    assert stuck_ms({0: history(5, 5, 5, 5)}, {0: 0}, 90_000) == 0


def test_offset_that_is_committed_again_does_not_move() -> None:
    standing = StandingPartitions(10)
    assert standing.since_ms(GroupPartition("g", "t", 0), 5, 1_000) == 1_000
    standing.looked()
    assert standing.since_ms(GroupPartition("g", "t", 0), 5, 11_000) == 1_000
    standing.looked()
    assert standing.since_ms(GroupPartition("g", "t", 0), 6, 21_000) == 21_000


def test_partition_that_was_not_behind_meanwhile_begins_anew() -> None:
    standing = StandingPartitions(10)
    standing.since_ms(GroupPartition("g", "t", 0), 5, 1_000)
    standing.looked()
    standing.looked()
    assert standing.since_ms(GroupPartition("g", "t", 0), 5, 21_000) == 21_000


def test_partitions_beyond_the_bound_are_not_told_of() -> None:
    standing = StandingPartitions(2)
    found = [standing.since_ms(GroupPartition("g", "t", n), 5, 7) for n in range(4)]
    assert found == [7, 7, None, None]
