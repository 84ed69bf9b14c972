"""What all logs of a broker remember of producers has one bound."""

import pytest
from tests.plimsoll_core.replica.copies import Batch

from plimsoll_core.replica.producer_memory import ProducerMemory, _level
from plimsoll_core.replica.producer_sequences import ProducerStates
from plimsoll_core.replica.replica_values import Duplicate


def write(states: ProducerStates, pid: int, at: int) -> None:
    states.update(Batch(at, 0, 0, pid, 0, 0))


def known(logs: list[ProducerStates]) -> int:
    return sum(map(len, logs))


def test_any_number_of_ids_in_any_number_of_logs_takes_no_more_than_the_bound() -> None:
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


def test_logs_that_know_most_forget_first_and_what_was_written_last_stays() -> None:
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


def test_log_that_is_closed_counts_no_more_and_a_lower_bound_counts_at_once() -> None:
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
