"""Where a follower cuts, what it appends, and that logs never stay apart."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_core.replica.copies import Batch, Copy, a_batch, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica import follower
from plimsoll_core.replica.replica_values import Append, Duplicate, EndOffset


def term(leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3)):
    return a_partition(leader=leader, leader_epoch=epoch, partition_epoch=epoch, isr=isr)


def lead(epoch: int, leader: Copy, *others: Copy) -> None:
    for copy in (leader, *others):
        copy.hear(term(leader.id, epoch))


def test_s01_role_change_truncates_nothing() -> None:
    a, b = Copy(1, term(2, 0)), Copy(2, term(2, 0))
    b.write(2)
    a.fetch_from(b)
    assert (a.end, a.hw) == (2, 0)
    a.hear(term(1, 1))
    assert a.end == 2


def test_s03_the_second_leg_of_truncation() -> None:
    """A's e1 is [0,2), B's [0,1); B wrote [1,3) in e2; told (1,2), B cuts to its own end of e1."""
    a, b = Copy(1, term(1, 1)), Copy(2, term(1, 1))
    a.write(1)
    b.fetch_from(a)
    a.write(1)
    b.hear(term(2, 2))
    b.write(2)
    lead(3, a, b)
    assert b.fetch_from(a) == EndOffset(1, 2)
    assert b.end == 1
    b.catch_up(a)
    assert b.log.batches == a.log.batches


def test_s02_divergence_is_cut_by_epoch_and_refetched() -> None:
    a, b = Copy(1, term(1, 0)), Copy(2, term(1, 0))
    a.write(1)
    b.fetch_from(a)
    a.write(1)
    b.hear(term(2, 1))
    b.write(1)
    lead(1, b, a)
    assert a.fetch_from(b) == EndOffset(0, 1)
    a.catch_up(b)
    assert a.log.batches == b.log.batches
    assert a.end == 2


def test_follower_truncates_to_end_of_unknown_epoch() -> None:
    """4.8, diverging (E, o): "undefined → min(o, leo)" - an answer proves nothing beyond o."""
    copy = Copy(2, term(1, 3))
    copy.take([Batch(0, 2, 4), Batch(5, 3, 4)], high_watermark=0)
    assert copy.end == 10
    assert follower.truncation_offset(copy.log, EndOffset(4, 7)) == 7
    assert follower.truncation_offset(copy.log, EndOffset(4, 30)) == 10, "never beyond its own end"


def test_follower_truncates_to_end_of_older_epoch() -> None:
    """4.8, diverging (E, o): "e' ≠ E → cut to min(o', leo)" - o belongs to a term unknown here."""
    copy = Copy(2, term(1, 5))
    copy.take([Batch(0, 2, 4), Batch(5, 5, 4)], high_watermark=0)
    assert follower.truncation_offset(copy.log, EndOffset(3, 8)) == 5
    assert follower.truncation_offset(copy.log, EndOffset(3, 4)) == 5


def test_repeated_epoch_does_not_restart_follower() -> None:
    """4.3, "Same LE: nothing to do": whoever was stopped in this term stays so."""
    copy = Copy(2, term(1, 1))
    copy.take([Batch(0, 1, 4)], high_watermark=5)
    copy.replica.halt()
    copy.hear(a_partition(leader=1, leader_epoch=1, partition_epoch=2, isr=(1, 2)))
    assert copy.replica.fetches_from is None
    assert (copy.end, copy.hw) == (5, 5)
    copy.hear(term(1, 3))
    assert copy.replica.fetches_from == 1


def test_s15_diverging_reply_high_watermark_is_ignored() -> None:
    copy = Copy(2, term(1, 0))
    copy.take([Batch(0, 0, 7)], high_watermark=8)
    copy.cut(EndOffset(0, 5))
    assert copy.end == 0, "the batch reaches beyond 5, so it goes whole"
    assert copy.hw == 0


def test_s16_empty_epoch_is_removed_without_truncation() -> None:
    """Follower led e5 without a record, the next leader never heard of e5."""
    copy = Copy(2, term(1, 4))
    copy.take([Batch(0, 4, 9)], high_watermark=0)
    copy.hear(term(2, 5))
    assert copy.log.epochs.entries == [(4, 0), (5, 10)]
    copy.log.truncate_to(10)
    assert copy.log.epochs.entries == [(4, 0)]
    copy.hear(term(2, 6))
    assert copy.log.epochs.entries == [(4, 0), (6, 10)]


def test_becoming_a_follower_forgets_terms_without_a_record() -> None:
    copy = Copy(2, term(1, 4))
    copy.take([Batch(0, 4, 9)], high_watermark=0)
    copy.hear(term(2, 5))
    copy.hear(term(1, 6))
    assert copy.replica.position() == (6, 10, 4)


def test_incomplete_log_names_no_last_record() -> None:
    """It is elected after all that hold a record, and no leader goes on with it."""
    copy = Copy(2, term(1, 4))
    copy.take([Batch(0, 4, 9)], high_watermark=0)
    copy.log.incomplete = True
    assert copy.replica.position() == (4, 10, None)


def test_s17_batches_of_newer_epoch_wait() -> None:
    copy = Copy(2, term(1, 1))
    assert copy.take([Batch(0, 1, 0), Batch(1, 3, 0)], high_watermark=2) == 1
    assert copy.end == 1


def test_reply_for_other_offset_or_epoch_is_dropped() -> None:
    copy = Copy(2, term(1, 1))
    asked = copy.replica.position()
    assert copy.replica.expects(1, asked)
    assert not copy.replica.expects(3, asked)
    copy.take([Batch(0, 1, 0)], high_watermark=0)
    assert not copy.replica.expects(1, asked), "the log has grown since"
    asked = copy.replica.position()
    copy.hear(term(1, 2))
    assert not copy.replica.expects(1, asked), "another term"


def test_records_that_do_not_fit_are_not_appended() -> None:
    copy = Copy(2, term(1, 3))
    copy.take([Batch(0, 2, 0)], high_watermark=0)
    for wrong in (Batch(2, 2, 0), Batch(0, 2, 0), Batch(1, 1, 0)):
        assert copy.take([wrong], high_watermark=1) is None
    assert copy.end == 1


def test_follower_high_watermark_stays_within_its_log() -> None:
    copy = Copy(2, term(1, 0))
    copy.take([Batch(0, 0, 0)], high_watermark=5)
    assert copy.hw == 1
    copy.take([], high_watermark=0)
    assert copy.hw == 0, "a follower's may go down"


def test_s20_truncated_batch_is_appended_again_on_retry() -> None:
    a, b = Copy(1), Copy(2, term(1, 0))
    a.write(10)
    b.catch_up(a)
    batch = a_batch(5, producer_id=7)
    assert a.produce(batch, acks=1) == Append(10, 0)
    b.hear(term(2, 1))
    a.hear(term(2, 1))
    a.catch_up(b)
    assert a.end == 10
    lead(2, a, b)
    assert a.produce(batch, acks=1) == Append(10, 2)


def test_s19_retry_at_next_leader_waits_for_commit() -> None:
    a, b, c = Copy(1), Copy(2, term(1, 0)), Copy(3, term(1, 0))
    batch = a_batch(5, producer_id=7)
    a.produce(batch, wait="lost")
    b.fetch_from(a)
    lead(1, b, c)
    assert b.produce(batch, wait="retry") == Duplicate(0, 4)
    assert (b.end, b.answers) == (5, [])
    c.catch_up(b)
    b.fetched_by(1, 5, last_epoch=0)
    assert b.answers == [("retry", Code.NONE)]


def test_s36_epochs_without_records_truncate_nothing() -> None:
    a, b, c = Copy(1), Copy(2, term(1, 0)), Copy(3, term(1, 0))
    a.write(3)
    b.catch_up(a)
    c.catch_up(a)
    for epoch, leader in enumerate((b, c, a, b, c), start=1):
        others = [copy for copy in (a, b, c) if copy is not leader]
        lead(epoch, leader, *others)
        for other in others:
            assert other.catch_up(leader) <= 1
    assert {copy.end for copy in (a, b, c)} == {3}


def test_s37_follower_below_leader_log_start_restarts_there() -> None:
    a, b = Copy(1), Copy(2, term(1, 0))
    a.write(5)
    b.fetch_from(a, batches_max=2)
    a.log.batches = a.log.batches[4:]
    a.log.log_start_offset = 4
    a.log.epochs.truncate_from_start(4, a.end)
    assert b.fetch_from(a) is Code.OFFSET_OUT_OF_RANGE
    assert (b.log.log_start_offset, b.end, b.hw) == (4, 4, 4)
    b.catch_up(a)
    assert b.log.batches == a.log.batches


def test_follower_beyond_leader_truncates_to_its_end() -> None:
    copy = Copy(2, term(1, 0))
    copy.take([Batch(0, 0, 0), Batch(1, 0, 0)], high_watermark=0)
    assert follower.reset(copy.log, 0, 1) == follower.Reset(1, discard=False)
    assert follower.reset(copy.log, 0, 2) is None
    assert follower.reset(copy.log, 3, 4) == follower.Reset(3, discard=True)


def test_errors_state_whether_to_stop_wait_or_ask() -> None:
    assert follower.on_error(Code.FENCED_LEADER_EPOCH) is follower.ErrorAction.STOP
    assert follower.on_error(Code.OFFSET_OUT_OF_RANGE) is follower.ErrorAction.ASK_OFFSETS
    for code in (Code.UNKNOWN_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_ID):
        assert follower.on_error(code) is follower.ErrorAction.BACK_OFF


def test_log_newer_than_metadata_is_not_served() -> None:
    copy = Copy(2, term(1, 5))
    copy.take([Batch(0, 5, 0)], high_watermark=1)
    again = Copy(2, term(1, 0))
    again.log.epochs.assign(5, 0)
    again.hear(term(2, 3))
    assert again.replica.failed
    assert again.produce() is Code.KAFKA_STORAGE_ERROR


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 2), st.sets(st.integers(0, 2))),
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(1, 2)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(EVENTS)
def test_logs_match_and_caches_equal_logs(events: list) -> None:
    """Leaders change with metadata late for some, leaders write, followers fetch a little.

    LogMatching: one (offset, epoch) is one batch with one prefix; EpochCache equals the one
    recomputed from the log, plus at most the leader's own term; ProducerStates equal a replay;
    and in the end all replicas converge.
    """
    copies = [Copy(b, term(1, 0)) for b in (1, 2, 3)]
    sequence = epoch = 0
    for kind, who, value in events:
        copy = copies[who]
        if kind == "lead":
            epoch += 1
            for broker in {who, *value}:
                copies[broker].hear(term(who + 1, epoch))
        elif kind == "write" and copy.replica.leader is not None:
            for _ in range(value):
                sequence += 1
                copy.produce(a_batch(1 + sequence % 3, producer_id=sequence), acks=1)
        elif kind == "fetch" and copy.replica.fetches_from is not None:
            copy.fetch_from(copies[copy.replica.fetches_from - 1], batches_max=value)
        check(copies)
    lead(epoch + 1, *copies)
    for other in copies[1:]:
        other.catch_up(copies[0])
        assert other.log.batches == copies[0].log.batches
    check(copies)


def check(copies: list[Copy]) -> None:
    for copy in copies:
        log = copy.log
        assert log.log_start_offset <= copy.hw <= log.log_end_offset
        extra = [entry for entry in log.epochs.entries if entry not in log.recomputed_epochs()]
        leader = copy.replica.leader
        assert extra in ([], [] if leader is None else [(leader.epoch, log.log_end_offset)])
        for other in copies:
            same = [a == b for a, b in zip(log.batches, other.log.batches, strict=False)]
            for at, (a, b) in enumerate(zip(log.batches, other.log.batches, strict=False)):
                if (a.base_offset, a.leader_epoch) == (b.base_offset, b.leader_epoch):
                    assert all(same[: at + 1]), "one offset and term, one batch, one prefix"


def test_follower_starting_above_leader_end_begins_at_leader() -> None:
    """Cut to the leader's end it would hold nothing and still count as complete."""
    leader, copy = Copy(1), Copy(2)
    leader.write(5)
    copy.log.discard_to(9)
    copy.replica.cut()
    copy.catch_up(leader)
    assert (copy.log.log_start_offset, copy.end) == (0, 5)
    assert copy.log.batches == leader.log.batches


def test_failed_replica_takes_no_role_until_restart() -> None:
    """Its log holds a term that the metadata has not reached: the next change must not lead it."""
    back = Copy(2, term(1, 7))
    back.log.append(Batch(0, 9, 0))
    back.hear(a_partition(leader=2, leader_epoch=8, partition_epoch=8))
    assert back.replica.failed
    back.hear(a_partition(leader=2, leader_epoch=8, partition_epoch=9, isr=(2, 3)))
    assert back.replica.leader is None
    assert back.produce() is Code.KAFKA_STORAGE_ERROR


def test_follower_truncated_below_its_start_begins_at_leader() -> None:
    """Empty at the place of the cut it would hold nothing of the leader's and count as complete."""
    a, b = Copy(1, term(1, 0)), Copy(2, term(1, 0))
    a.write(3)
    b.catch_up(a)
    a.write(10)
    a.log.batches = a.log.batches[6:]
    a.log.log_start_offset = 6
    lead(1, b, a)
    b.write(9)
    a.fetch_from(b)
    assert (a.log.log_start_offset, a.end, a.hw) == (0, 0, 0)
    a.catch_up(b)
    assert a.log.batches == b.log.batches


def test_truncation_at_log_start_keeps_shared_prefix() -> None:
    """Retention dropped what is below: it was the leader's too, and nothing is missing."""
    copy = Copy(2, term(1, 1))
    copy.log.discard_to(6)
    copy.take([Batch(6, 0, 3)], high_watermark=6)
    assert follower.truncation_offset(copy.log, EndOffset(0, 6)) == 6
    assert follower.truncation_offset(copy.log, EndOffset(0, 5)) is None


def test_empty_log_takes_batch_with_its_start() -> None:
    """Clients delete records, not batches; any other batch that begins too early does not fit."""
    copy = Copy(2, term(1, 1))
    copy.take([Batch(0, 1, 3)], high_watermark=3)
    straddling, next_one = Batch(2, 1, 3), Batch(6, 1, 1)
    assert follower.appendable([straddling], 1, copy.log) is None, "it holds what is there"
    copy.log.discard_to(4)
    assert follower.appendable([straddling, next_one], 1, copy.log) == 2
    assert follower.appendable([Batch(2, 1, 1)], 1, copy.log) is None, "it ends before the start"
    assert follower.appendable([next_one], 1, copy.log) is None, "it leaves a gap"


def test_electable_follower_discards_nothing_before_it_left() -> None:
    copy = Copy(2, term(1, 0))
    copy.take([Batch(0, 0, 9)], high_watermark=10)
    assert not copy.replica.may_reset(follower.begin_again(0))
    assert copy.replica.leaving
    assert copy.replica.may_reset(follower.Reset(5, discard=False)), "a truncation"
    assert copy.replica.may_reset(follower.begin_again(10)), "its leader has none of its records"
    assert not copy.replica.leaving
    copy.hear(
        a_partition(leader=1, leader_epoch=0, partition_epoch=1, isr=(1,), elr=(2,), min_isr=2)
    )
    assert not copy.replica.may_reset(follower.begin_again(0))
    copy.hear(a_partition(leader=1, leader_epoch=0, partition_epoch=2, isr=(1,), min_isr=2))
    assert copy.replica.may_reset(follower.begin_again(0))
    copy.hear(term(3, 3))
    assert not copy.replica.leaving
