"""What a leader may push, what a follower may take of it, and how much is in flight."""

import pytest
from tests.plimsoll_core.replica.copies import Copy, a_batch, a_partition

from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_core.replica.tail import PUSH_BYTES_MIN, Pushed, SendWindow, may_push, may_take

KB = 1024

FOLLOWER = BrokerId(2)


def a_leader(written: int = 5, fetched: int = 5, **fields: object) -> Copy:
    leader = Copy(1, a_partition(**fields))
    leader.write(written)
    leader.fetched_by(2, fetched)
    return leader


def pushes(
    leader: Copy, *, epoch: int = 0, offset: int = 5, last: int | None = 0, begun: int = 5
) -> bool:
    pushed = Pushed()
    pushed.begin(begun)
    asked = FetchPosition(epoch, offset, last)
    return may_push(leader.replica.leader, FOLLOWER, asked, pushed, leader.log)


def test_leader_pushes_to_caught_up_member() -> None:
    assert pushes(a_leader())


def test_leader_pushes_on_while_pushes_are_unacknowledged() -> None:
    leader = a_leader()
    leader.write(3)
    assert pushes(leader)


@pytest.mark.parametrize(
    "asked",
    [
        {"epoch": 1},
        {"offset": 4},
        {"offset": 6},
        {"begun": 4},
        {"last": None},
    ],
)
def test_leader_pushes_only_behind_the_known_position(asked: dict[str, int | None]) -> None:
    assert not pushes(a_leader(), **asked)  # type: ignore[arg-type]


def test_leader_pushes_nothing_outside_committed_isr() -> None:
    assert not pushes(a_leader(isr=(1, 3)))


def test_leader_pushes_nothing_before_first_fetch_of_term() -> None:
    leader = a_leader()
    leader.hear(a_partition(leader_epoch=1, partition_epoch=5))
    assert not pushes(leader, epoch=1)
    leader.fetched_by(2, 5)
    assert pushes(leader, epoch=1)


def test_follower_pushes_nothing() -> None:
    leader = a_leader()
    leader.hear(a_partition(leader=2, leader_epoch=1, partition_epoch=5))
    assert not pushes(leader)


def test_leader_pushes_nothing_of_log_with_holes() -> None:
    leader = a_leader()
    leader.log.holes = True
    assert not pushes(leader)


def test_leader_pushes_nothing_while_flush_is_due() -> None:
    leader = a_leader()
    leader.log.flush_messages, leader.log.flushed_end = 1, 4
    assert not pushes(leader)


@pytest.mark.parametrize(
    ("epoch", "base", "last", "takes"),
    [
        (0, 1, 0, True),
        (1, 1, 0, False),
        (0, 2, 0, False),
        (0, 0, 0, False),
        (0, 1, None, False),
    ],
)
def test_follower_takes_only_what_follows_its_position(
    epoch: int, base: int, last: int | None, takes: bool
) -> None:
    follower = Copy(2)
    follower.take([a_batch()], high_watermark=0)
    assert may_take(FetchPosition(0, 1, last), epoch, base, follower.log) is takes


def test_follower_takes_nothing_into_log_with_holes() -> None:
    follower = Copy(2)
    follower.take([a_batch()], high_watermark=0)
    follower.log.holes = True
    assert not may_take(FetchPosition(0, 1, 0), 0, 1, follower.log)


# --- the window -----------------------------------------------------------------------------------


def begun(*offsets: int) -> list[Pushed]:
    found = []
    for offset in offsets:
        found.append(Pushed())
        found[-1].begin(offset)
    return found


def test_window_is_shared_and_freed_in_order() -> None:
    a, b = begun(0, 10)
    window = SendWindow()
    window.begin(100 * KB)
    window.push(a, 1, 60 * KB)
    window.push(b, 11, 30 * KB)
    window.push(a, 2, 20 * KB)
    assert window.room == -10 * KB
    assert window.acknowledge(b, 11)
    assert window.room == -10 * KB, "the push before is still on its way"
    assert window.acknowledge(a, 1)
    assert window.room == 80 * KB
    assert window.acknowledge(a, 2)
    assert window.room == 100 * KB
    assert not a.outstanding


def test_one_acknowledgement_counts_for_earlier_pushes() -> None:
    (a,) = begun(0)
    window = SendWindow()
    window.begin(100 * KB)
    for end in (1, 2, 3):
        window.push(a, end, 10 * KB)
    assert window.acknowledge(a, 3)
    assert window.room == 100 * KB


@pytest.mark.parametrize("end", [4, 8])
def test_acknowledgement_outside_of_what_was_pushed_is_refused(end: int) -> None:
    (a,) = begun(5)
    window = SendWindow()
    window.begin(100 * KB)
    window.push(a, 7, 10 * KB)
    assert not window.acknowledge(a, end)
    assert (a.acknowledged, window.room) == (5, 90 * KB)


def test_next_fetch_voids_what_is_unacknowledged() -> None:
    (a,) = begun(0)
    window = SendWindow()
    window.begin(100 * KB)
    window.push(a, 1, 60 * KB)
    window.begin(50 * KB)
    a.begin(0)
    assert window.room == 50 * KB
    assert not window.acknowledge(a, 1)


def test_small_pushes_in_flight_are_few() -> None:
    (a,) = begun(0)
    window = SendWindow()
    window.begin(10 * PUSH_BYTES_MIN)
    pushes = 0
    while window.room > 0:
        pushes += 1
        window.push(a, pushes, 100)
    assert pushes == 10


def test_stream_without_pause_counts_as_caught_up() -> None:
    """Ten pushes are always on their way: each acknowledgement is behind the log's end."""
    leader = a_leader()
    (pushed,) = begun(5)
    window = SendWindow()
    window.begin(100 * KB)
    progress = leader.replica.leader.followers[FOLLOWER]
    for sent in range(6, 100):
        leader.write(1)
        leader.now_ms += 1_000
        pushed.pushed_at(sent, leader.now_ms)
        window.push(pushed, sent, 100)
        if sent > 15:
            assert window.acknowledge(pushed, sent - 10)
            leader.fetched_by(2, sent - 10, had_all_ms=pushed.had_all_ms)
            assert leader.now_ms - progress.caught_up_ms <= 22_000
    leader.replica.check_lag(leader.now_ms)
    assert not leader.proposals


def test_complete_copy_dates_from_its_push() -> None:
    (pushed,) = begun(5)
    pushed.pushed_at(8, 1_000)
    pushed.pushed_at(9, 2_000)
    pushed.acknowledge(7)
    assert pushed.had_all_ms is None, "at 1,000 ms the log ended at 8"
    pushed.acknowledge(8)
    assert pushed.had_all_ms == 1_000
    pushed.begin(8)
    assert pushed.had_all_ms is None
