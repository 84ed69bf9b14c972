"""Whom a leader counts, lets in and drops.  Scenario numbers are the protocol's."""

from immutables import Map
from tests.plimsoll_core.replica.copies import LAG_MS, Copy, a_broker, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.fetch_checks import UNKNOWN_END
from plimsoll_core.replica.leader import CommittedIsr, PendingExpand, PendingShrink
from plimsoll_core.replica.replica_values import EndOffset


def isr_of(copy: Copy) -> object:
    assert copy.replica.leader is not None
    return copy.replica.leader.isr


def members(copy: Copy) -> tuple[int, ...]:
    return tuple(member.broker_id for member in copy.proposals[-1].new_isr)


def test_high_watermark_is_minimum_of_isr() -> None:
    leader = Copy(1)
    leader.write(3)
    assert leader.hw == 0
    leader.fetched_by(2, 3)
    assert leader.hw == 0, "3 was not heard of in this term"
    leader.fetched_by(3, 2)
    assert leader.hw == 2


def test_high_watermark_never_decreases_when_follower_regresses() -> None:
    leader = Copy(1)
    leader.write(3)
    leader.fetched_by(2, 3)
    leader.fetched_by(3, 3)
    leader.fetched_by(3, 0)
    assert leader.hw == 3


def test_acks_all_completes_at_commit_only() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.fetched_by(2, 1)
    assert leader.answers == []
    leader.fetched_by(3, 1)
    assert leader.answers == [("a", Code.NONE)]


def test_s05_nobody_joins_below_where_the_term_began() -> None:
    """A new leader with end 10 and high watermark 4: what the last term committed is unknown."""
    leader = Copy(1, a_partition(isr=(1, 3), leader=2, partition_epoch=1))
    for _ in range(10):
        leader.take([_batch_at(leader)], high_watermark=4)
    leader.hear(a_partition(isr=(1, 3), leader_epoch=1, partition_epoch=2))
    leader.fetched_by(2, 5)
    leader.fetched_by(2, 9)
    assert leader.proposals == []
    leader.fetched_by(2, 10)
    assert members(leader) == (1, 3, 2)


def test_s06_joining_replica_counts_before_proposal_is_sent() -> None:
    leader = Copy(1, a_partition(isr=(1, 3)))
    leader.write(10)
    leader.fetched_by(3, 10)
    leader.fetched_by(2, 10)
    assert isinstance(isr_of(leader), PendingExpand)
    assert leader.hw == 10
    leader.write(1)
    leader.fetched_by(3, 11)
    assert leader.hw == 10, "2 may be in the committed set already"
    leader.fetched_by(2, 11)
    assert leader.hw == 11


def test_s07_high_watermark_is_frozen_below_min_isr() -> None:
    leader = Copy(1, a_partition(isr=(1,), elr=(2,)))
    leader.write(1)
    leader.fetched_by(3, 1)
    assert members(leader) == (1, 3)
    assert leader.hw == 0, "2 may be elected from the ELR, without the newest record"
    leader.answer()
    assert leader.hw == 1


def test_acks_all_below_min_isr_writes_nothing() -> None:
    leader = Copy(1, a_partition(isr=(1,), elr=(2,)))
    assert leader.produce() is Code.NOT_ENOUGH_REPLICAS
    assert leader.end == 0


def test_waiters_fail_when_committed_set_is_too_small() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.hear(a_partition(isr=(1,), elr=(2, 3), partition_epoch=1))
    assert leader.answers == [("a", Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]


def test_waiter_that_waits_too_long_hears_timeout() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.replica.expire_waiters(leader.now_ms + 4_999)
    leader.step()
    assert leader.answers == []
    leader.replica.expire_waiters(leader.now_ms + 5_000)
    leader.step()
    assert leader.answers == [("a", Code.REQUEST_TIMED_OUT)]
    leader.replica.expire_waiters(leader.now_ms + 6_000)
    leader.step()
    assert len(leader.answers) == 1, "once"


def test_s14_high_watermark_moves_on_shrink_answer() -> None:
    leader = Copy(1, a_partition(min_isr=1))
    leader.write(2)
    leader.lag_check(after_ms=LAG_MS + 1)
    assert members(leader) == (1,)
    assert leader.hw == 0, "2 and 3 count until the shrink is committed"
    leader.answer()
    assert leader.hw == 2


def test_follower_keeping_up_with_past_end_stays() -> None:
    leader = Copy(1)
    for _ in range(10):
        leader.write(1)
        leader.now_ms += LAG_MS // 2
        for broker in (2, 3):
            leader.fetched_by(broker, leader.end - 1)
        leader.write(1)
    leader.lag_check()
    assert leader.proposals == []


def test_silent_follower_of_idle_log_stays() -> None:
    leader = Copy(1)
    leader.fetched_by(2, 0)
    leader.fetched_by(3, 0)
    leader.lag_check(after_ms=10 * LAG_MS)
    assert leader.proposals == []


def test_leader_sends_isr_proposals_one_at_a_time() -> None:
    leader = Copy(1, a_partition(isr=(1,), min_isr=1))
    leader.fetched_by(2, 0)
    leader.fetched_by(3, 0)
    assert len(leader.proposals) == 1
    leader.answer()
    leader.fetched_by(3, 0)
    assert members(leader) == (1, 2, 3)


def test_s08_fenced_or_leaving_replica_is_not_proposed() -> None:
    for state in ({"fenced": True}, {"shutting_down": True}):
        leader = Copy(1, a_partition(isr=(1, 3)))
        leader.around.brokers = leader.around.brokers.set(2, a_broker(2, 20, **state))
        leader.fetched_by(2, 0)
        assert leader.proposals == []


def test_s09_fetch_of_older_broker_epoch_changes_nothing() -> None:
    leader = Copy(1, a_partition(isr=(1, 3)))
    leader.around.brokers = leader.around.brokers.set(2, a_broker(2, 21))
    assert leader.fetched_by(2, 0, broker_epoch=20) is Code.NOT_LEADER_OR_FOLLOWER
    assert leader.replica.leader is not None
    assert leader.replica.leader.followers[2].log_end is None
    leader.around.brokers = Map()
    assert leader.fetched_by(2, 0, broker_epoch=22) is Code.UNKNOWN_LEADER_EPOCH
    assert leader.proposals == [], "an unregistered broker has no replica"


def test_fetch_of_unregistered_broker_epoch_moves_no_watermark() -> None:
    leader = Copy(1)
    leader.write(1)
    for follower in (2, 3):
        for broker_epoch in (10 * follower + 1, 2**40):
            answer = leader.fetched_by(follower, 1, broker_epoch=broker_epoch)
            assert answer is Code.UNKNOWN_LEADER_EPOCH, "it asks again, until it is known here"
        assert leader.replica.leader is not None
        assert leader.replica.leader.followers[follower].log_end is None
    assert leader.hw == 0


def test_members_are_proposed_with_their_fetched_broker_epoch() -> None:
    leader = Copy(1, a_partition(isr=(1, 3)))
    leader.fetched_by(2, 0)
    epochs = {m.broker_id: m.broker_epoch for m in leader.proposals[-1].new_isr}
    assert epochs == {1: 10, 3: None, 2: 20}


def test_ineligible_member_rolls_the_proposal_back() -> None:
    leader = Copy(1, a_partition(isr=(1, 3)))
    leader.write(1)
    leader.fetched_by(2, 1)
    leader.fetched_by(3, 1)
    assert not leader.answer(Code.INELIGIBLE_REPLICA)
    assert isr_of(leader) == CommittedIsr(committed=(1, 3))
    leader.write(1)
    leader.fetched_by(3, 2)
    assert leader.hw == 2, "2 does not count any more"
    leader.fetched_by(2, 2)
    assert len(leader.proposals) == 1, "not again at once"
    leader.now_ms += 1_000
    leader.fetched_by(2, 2)
    assert len(leader.proposals) == 2


def test_refused_replica_delays_no_other_proposal() -> None:
    leader = Copy(1, a_partition(isr=(1, 4), replicas=(1, 2, 3, 4)))
    leader.fetched_by(2, 0)
    leader.answer(Code.INELIGIBLE_REPLICA)
    leader.fetched_by(3, 0)
    assert [m.broker_id for m in leader.proposals[-1].new_isr] == [1, 4, 3]
    leader.answer(Code.INELIGIBLE_REPLICA)
    leader.write(1)
    leader.lag_check(after_ms=LAG_MS + 1)
    leader.fetched_by(2, 1)
    assert isinstance(isr_of(leader), PendingShrink)


def test_s30_overtaken_proposal_keeps_maximal_set_until_metadata() -> None:
    leader = Copy(1)
    leader.write(1)
    leader.fetched_by(2, 1)
    leader.lag_check(after_ms=LAG_MS + 1)
    leader.fetched_by(2, 1)
    assert isinstance(isr_of(leader), PendingShrink)
    assert leader.replica.altered(leader.proposals[-1], None, leader.now_ms), "no answer: resend"
    assert not leader.answer(Code.INVALID_UPDATE_VERSION)
    assert isinstance(isr_of(leader), PendingShrink)
    assert leader.hw == 0
    leader.hear(a_partition(isr=(1, 2), partition_epoch=1))
    assert isr_of(leader) == CommittedIsr(committed=(1, 2))
    assert leader.hw == 1


def test_answer_after_settling_metadata_is_dropped() -> None:
    leader = Copy(1, a_partition(isr=(1, 3)))
    leader.fetched_by(2, 0)
    leader.hear(a_partition(isr=(1, 2, 3), partition_epoch=1))
    assert not leader.answer(Code.INELIGIBLE_REPLICA)
    assert isr_of(leader) == CommittedIsr(committed=(1, 2, 3))


def test_repeating_metadata_does_not_end_next_proposal() -> None:
    """Else the joining replica would not count although its joining may be committed."""
    leader = Copy(1, a_partition(isr=(1,), min_isr=1))
    leader.fetched_by(2, 0)
    leader.answer()
    leader.fetched_by(3, 0)
    assert isinstance(isr_of(leader), PendingExpand)
    leader.hear(a_partition(isr=(1, 2), min_isr=1, partition_epoch=1))
    assert isinstance(isr_of(leader), PendingExpand)
    leader.write(1)
    leader.fetched_by(2, 1)
    assert leader.hw == 0


def test_other_refusals_are_sent_again() -> None:
    for code, again in ((41, True), (77, True), (7, True), (95, False), (74, False), (108, False)):
        leader = Copy(1, a_partition(isr=(1, 3)))
        leader.fetched_by(2, 0)
        assert leader.answer(code) is again
        assert isinstance(isr_of(leader), PendingExpand)


def test_s23_only_caught_up_replica_joins_while_frozen() -> None:
    leader = Copy(1, a_partition(isr=(1,), elr=(2,)))
    leader.write(5)
    leader.fetched_by(2, 3)
    assert leader.proposals == [], "above the frozen high watermark, but behind"
    leader.fetched_by(2, 5)
    assert members(leader) == (1, 2)
    leader.answer()
    assert leader.hw == 5


def test_s25_new_epoch_knows_nothing_of_followers() -> None:
    """Terms may have passed unseen in which a follower cut its log."""
    leader = Copy(1)
    leader.write(7)
    for broker in (2, 3):
        leader.fetched_by(broker, 7)
    leader.write(3)
    leader.fetched_by(3, 10)
    assert leader.hw == 7
    leader.hear(a_partition(isr=(1, 3), leader_epoch=2, partition_epoch=4))
    assert leader.hw == 7, "3 was at 10 in another term"
    leader.fetched_by(3, 7, last_epoch=0)
    assert leader.hw == 7
    leader.fetched_by(3, 10, last_epoch=0)
    assert leader.hw == 10


def test_followers_in_the_same_term_keep_their_progress() -> None:
    leader = Copy(1)
    leader.write(1)
    leader.fetched_by(2, 1)
    leader.hear(a_partition(isr=(1, 2), partition_epoch=1))
    assert leader.hw == 1


def test_s40_waiter_of_older_epoch_is_never_completed() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.hear(a_partition(leader=2, leader_epoch=1, partition_epoch=1))
    assert leader.answers == [("a", Code.NOT_LEADER_OR_FOLLOWER)]
    leader.hear(a_partition(leader_epoch=2, partition_epoch=2))
    leader.fetched_by(2, 1)
    leader.fetched_by(3, 1)
    assert leader.hw == 1
    assert len(leader.answers) == 1


def test_s40_waiter_fails_across_unseen_epochs() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.hear(a_partition(leader_epoch=2, partition_epoch=2))
    assert leader.answers == [("a", Code.NOT_LEADER_OR_FOLLOWER)]


def test_metadata_older_than_what_is_known_is_ignored() -> None:
    leader = Copy(1, a_partition(partition_epoch=5))
    leader.hear(a_partition(leader=2, leader_epoch=0, partition_epoch=4))
    assert leader.replica.leader is not None


def test_latest_offset_waits_for_last_epochs_commit() -> None:
    leader = Copy(1, a_partition(leader=2))
    leader.take([_batch_at(leader)], high_watermark=0)
    leader.hear(a_partition(leader_epoch=1, partition_epoch=1))
    assert leader.replica.latest_offset(None, for_replica=False) is Code.OFFSET_NOT_AVAILABLE
    assert leader.replica.latest_offset(None, for_replica=True) == 1
    for broker in (2, 3):
        leader.fetched_by(broker, 1, last_epoch=0)
    assert leader.replica.latest_offset(None, for_replica=False) == 1


def test_s04_stale_askers_hear_which_side_is_stale() -> None:
    leader = Copy(1, a_partition(leader_epoch=2, partition_epoch=2))
    assert leader.fetched_by(3, 0, epoch=0) is Code.FENCED_LEADER_EPOCH
    assert leader.fetched_by(3, 0, epoch=3) is Code.UNKNOWN_LEADER_EPOCH
    assert leader.replica.consumer_fetch(0, 1, None) is Code.FENCED_LEADER_EPOCH
    assert leader.fetched_by(9, 0) is Code.UNKNOWN_LEADER_EPOCH, "no replica of this partition"


def test_consumer_beyond_log_end_is_out_of_range() -> None:
    leader = Copy(1)
    leader.write(3)
    assert leader.replica.consumer_fetch(3, None, None) is Code.NONE
    assert leader.replica.consumer_fetch(4, None, None) is Code.OFFSET_OUT_OF_RANGE
    leader.log.log_start_offset = 1
    assert leader.replica.consumer_fetch(0, None, None) is Code.OFFSET_OUT_OF_RANGE


def test_diverging_follower_proves_nothing() -> None:
    leader = Copy(1, a_partition(leader_epoch=1, partition_epoch=1))
    leader.write(2)
    answer = leader.fetched_by(2, 5, last_epoch=1)
    assert answer == (1, 2)
    assert leader.replica.leader is not None
    assert leader.replica.leader.followers[2].log_end is None


def test_leader_has_only_one_proposal_in_flight() -> None:
    """While one is, the leader cannot know the ISR that the next one would change."""
    leader = Copy(1)
    leader.write(1)
    leader.fetched_by(2, 1)
    leader.lag_check(after_ms=LAG_MS + 1)
    leader.lag_check(after_ms=LAG_MS + 1)
    assert len(leader.proposals) == 1


def test_follower_judges_nobodys_lag() -> None:
    copy = Copy(1, a_partition(leader=2, leader_epoch=1, partition_epoch=1))
    copy.lag_check(after_ms=LAG_MS + 1)
    assert copy.proposals == []


def test_failed_disk_acknowledges_nothing() -> None:
    leader = Copy(1)
    leader.produce(wait="a")
    leader.replica.fail()
    leader.step()
    assert leader.answers == [("a", Code.KAFKA_STORAGE_ERROR)]
    assert leader.produce() is Code.KAFKA_STORAGE_ERROR


def _batch_at(copy: Copy, epoch: int = 0):  # type: ignore[no-untyped-def]
    from tests.plimsoll_core.replica.copies import Batch

    return Batch(copy.end, epoch, 0)


def test_answer_that_may_end_move_waits_for_metadata() -> None:
    """The answer names the ISR only; with the move ended the minimum is a higher one (cf. S24)."""
    moving = a_partition(isr=(1, 2), adding=(3,), min_isr=3, partition_epoch=1)
    leader = Copy(1, moving)
    leader.write(1)
    leader.fetched_by(3, 1)
    assert members(leader) == (1, 2, 3)
    leader.answer()
    assert isinstance(isr_of(leader), PendingExpand)
    leader.hear(a_partition(isr=(1, 2, 3), min_isr=3, partition_epoch=2))
    assert leader.replica.leader.min_isr == 3
    assert isr_of(leader) == CommittedIsr(committed=(1, 2, 3))


def test_follower_of_log_lacking_keys_copies_it_anew() -> None:
    """Their records may be the same up to the end, and the follower's hold keys that are gone."""
    leader = Copy(1, a_partition(isr=(1,), min_isr=1))
    leader.write(4)
    leader.log.superseding_lost = True
    leader.hear(a_partition(isr=(1,), min_isr=1, leader_epoch=1, partition_epoch=1))
    leader.log.superseding_lost = False  # it leads with what it has
    begin_again = EndOffset(0, UNKNOWN_END)
    assert leader.fetched_by(2, 4) == begin_again
    assert leader.fetched_by(2, 0, last_epoch=None) is Code.NONE
    assert not leader.proposals
    assert leader.fetched_by(2, 4) is Code.NONE
    assert leader.proposals
    assert leader.fetched_by(3, 4) == begin_again
