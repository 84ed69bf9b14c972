"""Which batches are the log: the laws of the chain, over whatever storage may show."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_operator.metalog.writer import a_chain, marked, new_nonce, snapshot_at

from plimsoll_operator.metalog import codec, log_integrity
from plimsoll_operator.metalog.interface import EMPTY_TIP, Batch, LogCorrupt, LogRegressed


def by_sequence(*batches: Batch) -> Mapping[int, Batch]:
    return {batch.sequence: batch for batch in batches}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_log_with_missing_batch_is_never_accepted(sizes: list[int], data: st.DataObject) -> None:
    batches = a_chain(1, *sizes)
    missing = data.draw(st.integers(0, len(batches) - 2))
    found = by_sequence(*batches[:missing], *batches[missing + 1 :])
    with pytest.raises((log_integrity.Gap, LogRegressed)):
        log_integrity.assemble([], found)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_snapshot_stands_for_exactly_what_is_below_it(
    sizes: list[int], data: st.DataObject
) -> None:
    batches = a_chain(1, *sizes)
    at = data.draw(st.integers(0, len(batches) - 1))
    kept = data.draw(st.integers(0, at + 1))
    opened, _ = log_integrity.assemble(
        [snapshot_at(batches[at])], by_sequence(*batches[min(kept, at) :])
    )
    assert opened.batches == tuple(batches[at + 1 :])
    assert opened.tip == EMPTY_TIP.after(batches[0]) if not sizes else opened.tip
    assert opened.tip.next_offset == sum(batch.record_count for batch in batches)
    assert opened.tip.nonce == batches[-1].nonce


def test_snapshot_of_another_history_is_passed_over() -> None:
    batches, others = a_chain(1, 1, 1), a_chain(1, 1)
    foreign = snapshot_at(others[1], "foreign")
    opened, _ = log_integrity.assemble([foreign], by_sequence(*batches))
    assert opened.snapshot is None
    opened, _ = log_integrity.assemble([foreign, snapshot_at(batches[0])], by_sequence(*batches))
    assert opened.snapshot is not None
    assert opened.snapshot.name == "s"


def test_mix_of_two_histories_is_reported() -> None:
    batches, others = a_chain(1, 1, 1, 1), a_chain(1, 1, 1, 1)
    with pytest.raises(LogRegressed, match="two histories"):
        log_integrity.assemble([], by_sequence(*batches[:2], *others[2:]))


def test_hole_is_named_with_its_bounds() -> None:
    batches = a_chain(1, 1, 1, 1, 1, 1)
    with pytest.raises(LogRegressed, match="batches 2 to 3 of the metadata log are missing"):
        log_integrity.assemble([], by_sequence(*batches[:2], *batches[4:]))


def test_emptied_batch_is_no_batch() -> None:
    batches = a_chain(1, 1, 1)
    emptied = log_integrity.Emptied(sequence=1, end_offset=2, nonce=batches[1].nonce)
    with pytest.raises(log_integrity.Gap):
        log_integrity.assemble([], {0: batches[0], 1: emptied, 2: batches[2]})
    opened, _ = log_integrity.assemble([snapshot_at(batches[1])], {1: emptied, 2: batches[2]})
    assert opened.batches == (batches[2],)


def test_term_opens_with_one_record_alone() -> None:
    first = a_chain(1)
    crowded = codec.pack([marked("a"), marked("b")], EMPTY_TIP.after(first[0]), 2, new_nonce)
    with pytest.raises(LogCorrupt, match="does not continue the log"):
        log_integrity.assemble([], by_sequence(*first, *crowded))


def test_older_term_never_follows_a_newer_one() -> None:
    first = a_chain(1, epoch=2)
    older = codec.pack([marked("a")], EMPTY_TIP.after(first[0]), 1, new_nonce)
    with pytest.raises(LogCorrupt, match="does not continue the log"):
        log_integrity.assemble([], by_sequence(*first, *older))


def test_history_knows_which_batch_holds_an_offset() -> None:
    batches = a_chain(1, 3, 2)
    history = log_integrity.History()
    history.rebuild(snapshot_at(batches[0]), batches[1:])
    nonces = [batch.nonce for batch in batches]
    expected = [None, nonces[0], *[nonces[1]] * 3, *[nonces[2]] * 2, None]
    assert [history.nonce_at(offset) for offset in range(8)] == expected
    assert history.sequence_of(4, nonces[1]) == 1
    history.forget_below(4)
    assert [history.nonce_at(offset) for offset in (1, 3, 4, 6)] == [
        None,
        nonces[1],
        nonces[1],
        nonces[2],
    ]
