"""Idempotent producers: what is new, what is a retry, what is out of order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_core.replica.copies import Batch

from plimsoll_core.errors import Code
from plimsoll_core.replica import producer_states
from plimsoll_core.replica.producer_states import EXPIRATION_MS, ProducerStates
from plimsoll_core.replica.replica_values import Duplicate

LAST = 2**31 - 1


def batch(sequence: int, records: int = 1, epoch: int = 0, at: int = 0, pid: int = 7) -> Batch:
    return Batch(at, 0, records - 1, pid, epoch, sequence)


def test_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(batch(41)) is None


def test_producer_states_keep_newest_epoch_until_cleared() -> None:
    states = ProducerStates()
    states.update(batch(0, 3, epoch=2))
    assert states.newest(7) == (2, 2)
    assert states.newest(8) is None
    states.clear()
    assert states.newest(7) is None


def test_next_sequence_is_accepted_and_gap_refused() -> None:
    states = ProducerStates()
    states.update(batch(0, 3))
    assert states.check(batch(3)) is None
    assert states.check(batch(4)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    states.update(batch(LAST - 1, 2))
    assert states.check(batch(0)) is None
    states.update(batch(0, 1, at=2))
    assert states.check(batch(LAST - 1, 2)) == Duplicate(0, 1)
    wrapping = ProducerStates()
    wrapping.update(batch(LAST, 3))
    assert wrapping.check(batch(2)) is None


def test_retry_of_last_five_batches_returns_their_offsets() -> None:
    states = ProducerStates()
    for number in range(6):
        states.update(batch(2 * number, 2, at=100 + 2 * number))
    assert states.check(batch(2, 2)) == Duplicate(102, 103)
    assert states.check(batch(10, 2)) == Duplicate(110, 111)
    assert states.check(batch(0, 2)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "too old to be known"
    assert states.check(batch(10, 1)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "not the same batch"


def test_older_producer_epoch_is_fenced() -> None:
    states = ProducerStates()
    states.update(batch(5, epoch=2))
    assert states.check(batch(6, epoch=1)) is Code.INVALID_PRODUCER_EPOCH
    assert states.check(batch(6, epoch=3)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(batch(0, epoch=3)) is None
    states.update(batch(0, epoch=3))
    assert states.check(batch(1, epoch=3)) is None


def test_followers_take_whatever_was_replicated() -> None:
    states = ProducerStates()
    states.update(batch(9))
    states.update(batch(3))
    assert states.check(batch(4)) is None


def test_producers_beyond_the_bound_are_forgotten_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may make up an id for each batch: they took the broker's memory, and the log's rolls
    its event loop."""
    monkeypatch.setattr(producer_states, "PRODUCERS_MAX", 8)
    monkeypatch.setattr(producer_states, "_LEFT", 6)
    states = ProducerStates()
    states.update(batch(0, pid=1_000))
    for at in range(1, 100):
        states.update(batch(0, at=2 * at, pid=at))
        states.update(batch(at, at=2 * at + 1, pid=1_000))
        assert len(states) <= 8
    assert states.newest(1_000) == (0, 99), "it wrote all the time"
    assert states.check(batch(0, pid=99)) == Duplicate(198, 198)
    assert states.newest(90) is None


def test_idle_producer_is_forgotten_on_the_brokers_clock() -> None:
    states = ProducerStates()
    states.update(batch(0))
    states.expire(1_000)
    states.update(batch(1))
    states.expire(1_000 + EXPIRATION_MS)
    assert len(states) == 1, "it wrote in between"
    states.expire(2 * EXPIRATION_MS)
    assert len(states) == 1, "idle, but not for that long"
    states.expire(1_000 + 2 * EXPIRATION_MS)
    assert len(states) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, LAST), st.integers(1, 5)),
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_states_equal_snapshot_and_replay(
    writes: list[tuple[int, int, int, int]], cut: int
) -> None:
    log = []
    end = 0
    for pid, epoch, sequence, records in writes:
        log.append(batch(sequence, records, epoch, end, pid))
        end += records
    whole, before = ProducerStates(), ProducerStates()
    for one in log:
        whole.update(one)
    for one in log[:cut]:
        before.update(one)
    restored = ProducerStates(before.snapshot())
    for one in log[cut:]:
        restored.update(one)
    assert restored.snapshot() == whole.snapshot()
    for one in log:
        assert restored.check(one) == whole.check(one)


def test_retriable_batches_are_known_after_restart() -> None:
    """Five may be in flight: a retry of the oldest is no gap in the sequence."""
    states = ProducerStates()
    batches = [batch(n, 1, 0, n, 7) for n in range(7)]
    for one in batches:
        states.update(one)
    restored = ProducerStates(states.snapshot())
    for one in batches[2:]:
        assert restored.check(one) == Duplicate(one.base_offset, one.base_offset)
    assert restored.check(batches[1]) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
