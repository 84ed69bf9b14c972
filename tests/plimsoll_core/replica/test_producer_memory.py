"""What all logs of a broker remember of producers has one bound."""

import time

import pytest
from tests.plimsoll_core.replica.copies import Batch

from plimsoll_core.replica.producer_states import (
    AT_ONCE,
    PRODUCERS_MAX,
    ProducerMemory,
    ProducerStates,
    _level,
)
from plimsoll_core.replica.replica_values import Duplicate


def write(states: ProducerStates, pid: int, at: int) -> None:
    states.update(Batch(at, 0, 0, pid, 0, 0))


def known(logs: list[ProducerStates]) -> int:
    return sum(map(len, logs))


def test_producer_ids_never_exceed_the_bound() -> None:
    """Each log forgot its own at 10,000: a thousand of them held 11 GiB, and a broker that ended
    for want of memory read them back at its next start."""
    memory = ProducerMemory(1_000)
    logs = [ProducerStates() for _ in range(50)]
    for states in logs:
        states.share(memory)
    for at in range(500):
        for number, states in enumerate(logs):
            write(states, number * 1_000 + at, at)
        assert known(logs) <= 1_000
    assert known(logs) >= 500


def test_logs_with_most_producers_forget_first() -> None:
    memory = ProducerMemory(800)
    quiet, busy = ProducerStates(), ProducerStates()
    quiet.share(memory)
    busy.share(memory)
    for pid in range(100):
        write(quiet, pid, pid)
    for pid in range(5_000):
        write(busy, pid, pid)
        assert known([quiet, busy]) <= 800
    assert len(quiet) == 100
    assert isinstance(busy.check(Batch(5_000, 0, 0, 4_999, 0, 0)), Duplicate)
    assert busy.check(Batch(5_000, 0, 0, 3, 0, 0)) is None, "it is new there"


def test_producers_that_are_read_back_count_too() -> None:
    whole = ProducerStates()
    for pid in range(700):
        write(whole, pid, pid)
    memory = ProducerMemory(1_000)
    logs = [ProducerStates(whole.snapshot()) for _ in range(10)]
    for states in logs:
        states.share(memory)
        assert known([one for one in logs if one._memory is memory]) <= 1_000
    logs[0].restore(whole.snapshot())
    assert known(logs) <= 1_000


def test_closed_log_is_no_longer_counted() -> None:
    memory = ProducerMemory(1_000)
    logs = [ProducerStates() for _ in range(2)]
    for states in logs:
        states.share(memory)
        for pid in range(400):
            write(states, pid, pid)
    del states
    logs.pop()
    for pid in range(400, 700):
        write(logs[0], pid, pid)
    assert len(logs[0]) == 700
    memory.bound(200)
    assert len(logs[0]) <= 200


@pytest.mark.parametrize(
    ("sizes", "room", "most"),
    [([1, 2, 3], 6, 3), ([1, 2, 30], 13, 10), ([10, 10], 9, 4), ([], 5, 0), ([5], 0, 0)],
)
def test_level_is_what_all_may_have_together(sizes: list[int], room: int, most: int) -> None:
    assert _level(sizes, room) == most


class Counted:
    """A log's producers as a number; `gone_through`: of how many it looked who wrote last."""

    def __init__(self, gone_through: list[int]) -> None:
        self.size = self.written_at = 0
        self._gone_through = gone_through

    def __len__(self) -> int:
        return self.size

    def forget_to(self, most: int) -> None:
        self._gone_through[0] += self.size
        self.size = min(self.size, most)


@pytest.mark.parametrize("logs", [100, 3_001])
def test_new_producer_examines_bounded_number_of_others(
    logs: int,
) -> None:
    """A million were sorted in one turn of the event loop, which took 3.6 s."""
    memory, gone_through = ProducerMemory(PRODUCERS_MAX * 100), [0]
    all_logs = [Counted(gone_through) for _ in range(logs)]
    for log in all_logs:
        memory.join(log)
        log.size = memory.limit * 7 // 8 // logs
        memory.added(log.size)
    most = 0
    for number in range(memory.limit // 2):
        log = all_logs[number % logs]
        log.size += 1
        gone_through[0] = 0
        memory.added(1)
        most = max(most, gone_through[0])
        assert not gone_through[0] or sum(map(len, all_logs)) <= memory.limit
    assert sum(map(len, all_logs)) <= memory.limit
    assert AT_ONCE <= most < AT_ONCE + PRODUCERS_MAX


def test_recently_written_logs_keep_their_producers() -> None:
    """All of them forgot everybody at once: also who wrote a moment ago, whose retries were written
    a second time."""
    memory = ProducerMemory(800)
    logs = [ProducerStates() for _ in range(1_000)]
    for number, states in enumerate(logs):
        states.share(memory)
        write(states, number, 0)
        write(logs[0], 0, number + 1)
        assert known(logs) <= 800
    assert known(logs) >= 500
    told = [states for states in logs if len(states)]
    assert told == [logs[0], *logs[1 - len(told) :]]


def test_log_written_to_since_selection_forgets_nobody() -> None:
    memory = ProducerMemory(9 * AT_ONCE)
    logs = [ProducerStates() for _ in range(memory.limit)]
    for states in logs:
        states.share(memory)
    for number, states in enumerate(logs):
        write(states, number, 0)
        if memory._to_forget:
            break
    left = {share.number for share in memory._to_forget}
    assert 0 in left
    assert len(logs[0]) == 1
    write(logs[0], 0, 1)
    for later, one in enumerate(logs[number + 1 :], number + 1):
        write(one, later, 0)
        if not memory._to_forget:
            break
    assert [len(each) for each in logs[:3]] == [1, 0, 0]


def test_log_opened_at_bound_keeps_newest_producers() -> None:
    """As when several are read back one after the other: the last ones forgot nearly all, and as
    leaders wrote their retries a second time, while others knew who had not written for long."""
    whole = ProducerStates()
    for pid in range(100):
        write(whole, pid, pid)
    memory, greedy = ProducerMemory(1_000), ProducerStates()
    greedy.share(memory)
    for pid in range(870):
        write(greedy, pid, pid)
    opened = [ProducerStates(whole.snapshot()) for _ in range(3)]
    for states in opened:
        states.share(memory)
        assert known([greedy, *opened[: opened.index(states) + 1]]) <= 1_000
    for states in opened:
        assert len(states) == 100
        assert isinstance(states.check(Batch(200, 0, 0, 0, 0, 0)), Duplicate)
    assert len(greedy) >= 500
    assert greedy.newest(869) is not None


def test_logs_loaded_at_bound_stay_within_it() -> None:
    gone_through = [0]
    memory = ProducerMemory(PRODUCERS_MAX * 12)
    logs = [Counted(gone_through) for _ in range(600)]
    for log in logs:
        memory.join(log)
    for log in logs[:12]:
        log.size = PRODUCERS_MAX * 7 // 8 - 1
        memory.added(log.size)
    for log in logs[12:]:
        log.size, gone_through[0] = PRODUCERS_MAX, 0
        memory.read_back(log)
        assert sum(map(len, logs)) <= memory.limit
        assert len(log) >= 100, "its share of so many"
        assert gone_through[0] <= AT_ONCE + 2 * PRODUCERS_MAX, "its own, and a portion of others'"
    assert min(map(len, logs)) >= 100


def test_log_opened_among_others_gets_remaining_room() -> None:
    """All forgot until each knew as many as any other, in one turn of the event loop."""
    gone_through = [0]
    memory = ProducerMemory(PRODUCERS_MAX * 12)
    logs = [Counted(gone_through) for _ in range(13)]
    for log in logs:
        log.size, gone_through[0] = PRODUCERS_MAX - 100, 0
        memory.join(log)
        assert gone_through[0] <= AT_ONCE + 2 * PRODUCERS_MAX, "its own, and a portion of others'"
    assert memory.limit * 7 // 8 <= sum(map(len, logs)) <= memory.limit
    gone_through[0] = 0
    logs[0].size += 1
    memory.added(1)
    assert gone_through[0] <= AT_ONCE + PRODUCERS_MAX, "a portion"
    assert sum(map(len, logs)) <= memory.limit


def test_logs_opened_at_start_share_the_room() -> None:
    memory = ProducerMemory(PRODUCERS_MAX * 2)
    logs = [Counted([0]) for _ in range(10)]
    for log in logs:
        log.size = PRODUCERS_MAX
        memory.join_evenly(log)
        assert sum(map(len, logs)) - PRODUCERS_MAX <= memory.limit
    assert min(map(len, logs)) >= memory.limit * 3 // 4 // 10


def test_log_forgets_thousands_of_producers_in_slices() -> None:
    states = ProducerStates()
    for number in range(PRODUCERS_MAX):
        write(states, number * 7_919 % PRODUCERS_MAX, number)
    began_s = time.process_time()
    states.forget_to(PRODUCERS_MAX // 2)
    assert time.process_time() - began_s < 0.05
    assert len(states) == PRODUCERS_MAX // 2
    assert states.newest((PRODUCERS_MAX // 2 - 1) * 7_919 % PRODUCERS_MAX) is None
    assert states.newest(PRODUCERS_MAX // 2 * 7_919 % PRODUCERS_MAX) == (0, 0)
    states.forget_to(PRODUCERS_MAX)
    assert len(states) == PRODUCERS_MAX // 2
