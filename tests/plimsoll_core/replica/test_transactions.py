"""The last stable offset: what is decided, on leaders and followers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_core.replica.copies import Batch

from plimsoll_core.errors import Code
from plimsoll_core.replica import producer_states
from plimsoll_core.replica.commit import ParkedFetches
from plimsoll_core.replica.producer_states import EXPIRATION_MS, ProducerMemory, ProducerStates
from plimsoll_core.replica.replica_values import TRANSACTIONAL, Duplicate
from plimsoll_core.replica.transactions import EndedTransaction, Transactions, last_stable_offset


def written(at: int, pid: int = 7, sequence: int = 0, epoch: int = 0, records: int = 1) -> Batch:
    return Batch(at, 0, records - 1, pid, epoch, sequence, attributes=TRANSACTIONAL, count=records)


def marker(at: int, pid: int = 7, epoch: int = 0) -> Batch:
    return written(at, pid, -1, epoch)


def stable(states: ProducerStates, high_watermark: int, log_start: int = 0) -> int:
    return last_stable_offset(high_watermark, log_start, states.transactions)


def test_stable_offset_is_high_watermark_without_transactions() -> None:
    assert last_stable_offset(12, 3, Transactions()) == 12


def test_open_transaction_holds_the_stable_offset() -> None:
    states = ProducerStates()
    states.update_transactional(written(5))
    states.update_transactional(written(6, sequence=1))
    assert stable(states, 9) == 5
    assert stable(states, 4) == 4, "never above the high watermark"
    assert stable(states, 9, log_start=6) == 6, "nor below the log's start"


def test_transaction_is_decided_once_its_marker_is_committed() -> None:
    states = ProducerStates()
    states.update_transactional(written(5))
    states.update_transactional(written(6, pid=8))
    assert states.end_transaction(marker(7), 0) == EndedTransaction(7, 5, 7, 6)
    assert stable(states, 7) == 5, "another leader may lack the marker"
    assert stable(states, 8) == 6
    states.transactions.committed(8)
    assert not states.transactions.ended
    assert states.end_transaction(marker(9, pid=8), 0) == EndedTransaction(8, 6, 9, 10)
    assert stable(states, 10) == 10


def test_marker_without_transaction_decides_nothing() -> None:
    states = ProducerStates()
    assert states.end_transaction(marker(0), 3) is None
    assert stable(states, 1) == 1


def test_batch_without_records_opens_no_transaction() -> None:
    states = ProducerStates()
    states.update_transactional(written(5)._replace(count=0))
    assert stable(states, 9) == 9
    assert states.newest(7) == (0, 0), "its sequence counts"


def test_transactional_batch_without_sequence_opens_a_transaction() -> None:
    states = ProducerStates()
    states.update_transactional(written(5, sequence=-1))
    assert stable(states, 9) == 5
    assert ProducerStates(states.snapshot()).transactions.open == {7: 5}


def test_marker_fences_older_epochs_and_keeps_sequences() -> None:
    states = ProducerStates()
    states.update_transactional(written(0, records=3))
    states.end_transaction(marker(3), 4)
    assert states.check(written(4, sequence=3)) is None, "the same epoch goes on"
    assert states.check(written(4, records=3)) == Duplicate(0, 2)
    states.end_transaction(marker(4, epoch=1), 4)
    assert states.check(written(5, sequence=3)) is Code.INVALID_PRODUCER_EPOCH
    assert states.check(written(5, sequence=3, epoch=1)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(written(5, epoch=1)) is None


def test_batch_outside_open_transaction_is_refused() -> None:
    states = ProducerStates()
    states.update_transactional(written(0))
    plain = written(1, sequence=1)._replace(attributes=0)
    assert states.check(plain) is Code.INVALID_TXN_STATE
    assert states.check(plain._replace(producer_id=8)) is None
    states.end_transaction(marker(1), 0)
    assert states.check(plain) is None


def test_markers_of_older_epochs_and_coordinators_are_refused() -> None:
    states = ProducerStates()
    states.update_transactional(written(0, epoch=2))
    states.end_transaction(marker(1, epoch=2), 5)
    assert states.check_marker(7, 1, 5) is Code.INVALID_PRODUCER_EPOCH
    assert states.check_marker(7, 2, 4) is Code.TRANSACTION_COORDINATOR_FENCED
    assert states.check_marker(7, 2, 5) is Code.NONE
    assert states.check_marker(8, 0, 0) is Code.NONE
    states.update(Batch(2, 0, 0, 7, 3, 0))
    assert states.check_marker(7, 3, 4) is Code.TRANSACTION_COORDINATOR_FENCED, "a new epoch too"


def test_producer_with_undecided_transaction_never_expires() -> None:
    states = ProducerStates()
    states.update_transactional(written(0))
    states.update_transactional(written(1, pid=8))
    states.end_transaction(marker(2, pid=8), 0)
    states.update(Batch(3, 0, 0, 9, 0, 0))
    for now_ms in (0, EXPIRATION_MS, 2 * EXPIRATION_MS):
        states.expire(now_ms)
    assert (states.newest(7), states.newest(8), states.newest(9)) == ((0, 0), (0, 0), None)
    states.transactions.committed(3)
    for now_ms in (3 * EXPIRATION_MS, 4 * EXPIRATION_MS):
        states.expire(now_ms)
    assert (states.newest(7), states.newest(8)) == ((0, 0), None)


def test_producer_memory_forgets_no_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_states, "PRODUCERS_MAX", 4)
    monkeypatch.setattr(producer_states, "_LEFT", 2)
    states = ProducerStates()
    states.share(ProducerMemory(3))
    states.update_transactional(written(0, pid=1))
    for number in range(2, 12):
        states.update(Batch(number, 0, 0, number, 0, 0))
    assert states.newest(1) == (0, 0)
    assert len(states) <= 5
    states.forget_to(0)
    assert [entry.producer_id for entry in states.snapshot()] == [1]


def test_undecided_producers_are_seldom_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them can be forgotten: going through all for each newcomer took quadratic time."""
    monkeypatch.setattr(producer_states, "PRODUCERS_MAX", 80)
    monkeypatch.setattr(producer_states, "_LEFT", 60)
    forget_to, calls = ProducerStates.forget_to, []

    def counted(states: ProducerStates, most: int) -> None:
        calls.append(most)
        forget_to(states, most)

    monkeypatch.setattr(ProducerStates, "forget_to", counted)
    states = ProducerStates()
    for number in range(1_000):
        states.update_transactional(written(2 * number, pid=number))
        states.end_transaction(marker(2 * number + 1, pid=number), 0)
    assert len(states) == 1_000
    assert len(calls) < 40
    states.transactions.committed(2_000)
    for number in range(1_000, 1_300):
        states.update(Batch(2 * number, 0, 0, number, 0, 0))
    assert len(states) <= 80, "the bound is what it was"


def test_marker_below_known_commit_is_decided_at_once() -> None:
    states = ProducerStates()
    states.transactions.committed(6)
    for at in (0, 2, 4, 6):
        states.update_transactional(written(at, pid=at))
        states.end_transaction(marker(at + 1, pid=at), 0)
    assert [each.last_offset for each in states.transactions.ended] == [7]
    states.transactions.cut(2)
    states.update_transactional(written(2))
    states.end_transaction(marker(3), 0)
    assert stable(states, 3) == 2, "what is new there is not committed"


def test_active_producer_states_its_transaction() -> None:
    states = ProducerStates()
    states.update_transactional(written(4))
    assert states.active(9)[0][4:] == (-1, 4)
    states.end_transaction(marker(5), 6)
    assert states.active(9)[0] == (7, 0, 0, 0, 6, -1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("batch", "marker", "plain")), st.integers(1, 4), st.integers(0, 2)
        ),
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_restored_states_go_on_as_the_saved_ones(
    steps: list[tuple[str, int, int]], committed: int
) -> None:
    states = ProducerStates()
    for at, (kind, pid, epoch) in enumerate(steps):
        if kind == "marker":
            states.end_transaction(marker(at, pid, epoch), at)
        elif kind == "batch":
            states.update_transactional(written(at, pid, at, epoch))
        else:
            states.update(Batch(at, 0, 0, pid, epoch, at))
    restored = ProducerStates(states.snapshot())
    assert restored.snapshot() == states.snapshot()
    assert restored.transactions.open == states.transactions.open
    assert list(restored.transactions.open) == list(states.transactions.open), "in their order"
    for high_watermark in range(len(steps) + 1):
        assert stable(restored, high_watermark) == stable(states, high_watermark)
    states.transactions.committed(committed)
    for high_watermark in range(committed, len(steps) + 1):
        assert stable(restored, high_watermark) == stable(states, high_watermark)


def test_fetches_waiting_for_stable_offset_are_apart() -> None:
    parked = ParkedFetches()
    for token, waits in (("consumer", False), ("committed", True)):
        parked.park(token, for_commit=True, for_stable=waits)
    assert parked.take(end_moved=True, commit_moved=True) == ["consumer"]
    parked.park("other", for_commit=True, for_stable=True)
    parked.forget("other")
    assert parked.take_stable() == ["committed"]
    assert not parked.for_stable
