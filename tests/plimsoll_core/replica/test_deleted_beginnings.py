"""Followers whose logs ended before all that their leader still has."""

from tests.plimsoll_core.replica.copies import Batch, Copy, a_batch, a_partition
from tests.plimsoll_core.replica.test_follower import lead, term

from plimsoll_core.errors import Code
from plimsoll_core.replica import follower
from plimsoll_core.replica.replica_values import EndOffset


def test_follower_ending_within_leaders_first_batch_begins_again() -> None:
    """The leader let go of offset 0, and takes the end of any older term for its log's start."""
    a, b = stale_and_leading(a_batch(2), a_batch(3))
    assert a.fetch_from(b) == EndOffset(0, -1)
    assert (a.log.log_start_offset, a.end) == (1, 1)
    a.catch_up(b)
    assert a.log.batches == b.log.batches
    assert (a.log.log_start_offset, a.log.epochs.entries) == (1, b.log.epochs.entries)


def test_follower_ending_at_leaders_start_keeps_nothing() -> None:
    """What it has was never committed.  Its leader's next batch would fit behind it (S37j)."""
    a, b = stale_and_leading(a_batch(1), a_batch(3))
    assert b.replica.leader is not None
    assert a.fetch_from(b) == EndOffset(0, -1)
    assert b.replica.leader.followers[1].log_end is None, "it proved nothing"
    a.catch_up(b)
    assert a.log.batches == [Batch(1, 1, 2)]


def test_leader_does_not_answer_before_its_copied_start() -> None:
    """It never held the record before its start, so it cannot know the term (S37k)."""
    a, b = stale_and_leading(a_batch(1), a_batch(3))
    c = Copy(3, term(1, 1))
    assert c.fetch_from(b) is Code.OFFSET_OUT_OF_RANGE
    c.catch_up(b)
    lead(2, c, a)
    assert a.fetch_from(c) == EndOffset(0, -1)
    a.catch_up(c)
    assert a.log.batches == [Batch(1, 1, 2)]


def test_follower_with_same_deletions_is_not_sent_back() -> None:
    """The leader knows the term of the last record that it held, and its end."""
    a, b = Copy(1), Copy(2, term(1, 0))
    a.write(3)
    b.catch_up(a)
    for copy in (a, b):
        copy.log.batches = []
        copy.log.log_start_offset = 3
        copy.log.epochs.truncate_from_start(3, 3)
    lead(1, a, b)
    assert b.fetch_from(a) is Code.NONE
    assert b.replica.position().last_fetched_epoch == 0, "as complete as it was (S37h)"


def test_empty_follower_above_leaders_start_begins_there() -> None:
    """A power cut took its records; it names no term that anybody could contradict (S37m)."""
    a, b = Copy(1, a_partition(isr=(1, 3))), Copy(2, term(1, 0))
    a.write(5)
    for start in (3, 5):
        b.log.discard_to(start)
        assert b.replica.position().last_fetched_epoch is None
        assert a.replica.leader is not None
        assert b.fetch_from(a) is Code.OFFSET_OUT_OF_RANGE
        assert a.replica.leader.followers[2].log_end is None, "it proved nothing"
        assert (b.log.log_start_offset, b.end) == (0, 0)
    b.catch_up(a)
    assert b.log.batches == a.log.batches


def test_empty_follower_keeps_position_while_electable() -> None:
    """It let go of what is committed, and was cut back to where it begins (S37n)."""
    for sets in ({"isr": (1, 2)}, {"isr": (1,), "elr": (2,), "min_isr": 2}):
        a, b = Copy(1, a_partition(**sets)), Copy(2, term(1, 0))
        a.write(5)
        b.log.discard_to(3)
        assert b.fetch_from(a) is Code.NONE
        assert b.log.log_start_offset == 3


def test_empty_follower_at_leaders_start_continues() -> None:
    a, b = Copy(1), Copy(2, term(1, 0))
    a.write(5)
    a.log.batches = a.log.batches[2:]
    a.log.log_start_offset = 2
    b.log.discard_to(2)
    a.log.epochs.truncate_from_start(2, a.end)
    assert b.fetch_from(a) is Code.NONE
    assert follower.reset(b.log, 2, a.end) is None


def test_follower_of_log_from_0_truncates_there() -> None:
    """Nothing is deleted, so the end of any older term is known: it is the log's beginning."""
    a, b = Copy(1, term(1, 0)), Copy(2, term(1, 0))
    a.write(2)
    lead(1, b)
    b.write(1)
    lead(1, a)
    assert a.fetch_from(b) == EndOffset(0, 0)
    assert a.end == 0


def test_consumer_at_log_start_reads_on() -> None:
    """What it read is its own; only a follower's log must be the leader's."""
    _, b = stale_and_leading(a_batch(1), a_batch(3))
    assert b.replica.consumer_fetch(1, 1, 0) is Code.NONE


def stale_and_leading(*written: Batch) -> tuple[Copy, Copy]:
    """The follower 1 has an uncommitted record of term 0 at 0; 2 leads term 1, and let go of its
    own record there."""
    a, b = Copy(1, term(1, 0)), Copy(2, term(1, 0))
    a.write(1)
    lead(1, b)
    for batch in written:
        b.produce(batch, acks=1)
    first = b.log.batches[0]
    if first.next_offset == 1:
        del b.log.batches[0]
    b.log.log_start_offset = 1
    b.log.epochs.truncate_from_start(1, b.end)
    b.fetched_by(3, b.end, last_epoch=1)
    lead(1, a)
    return a, b
