"""How far a client may shorten a log, and when its answer says that all logs are that may lead."""

from tests.plimsoll_core.replica.copies import LAG_MS, Copy, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.commit import AckWaiter
from plimsoll_core.replica.replica_values import FollowerFetch


def fetched(leader: Copy, broker_id: int, log_start: int) -> None:
    """A follower that has everything says where its log begins."""
    epoch = leader.replica.partition.leader_epoch
    last_epoch = leader.log.epochs.epoch_of_last(leader.end)
    fetch = FollowerFetch(broker_id, 10 * broker_id, epoch, leader.end, last_epoch, log_start)
    assert leader.replica.follower_fetch(fetch, leader.now_ms) is Code.NONE
    leader.step()


def a_leader(written: int = 10, committed: int = 6) -> Copy:
    leader = Copy(1)
    leader.write(written)
    for broker_id in (2, 3):
        leader.fetched_by(broker_id, committed)
    assert leader.hw == committed
    return leader


def delete(leader: Copy, offset: int, token: object = "gone") -> int | Code:
    """As the shell does it."""
    required = leader.replica.delete_records(offset)
    if not isinstance(required, Code):
        leader.log.log_start_offset = max(leader.log.log_start_offset, required)
        leader.replica.start_moved()
        waiter = AckWaiter(required, leader.now_ms + 1_000, token)
        leader.replica.waiters.for_start.add(waiter)
        leader.step()
    return required


def test_log_is_deleted_up_to_high_watermark() -> None:
    leader = a_leader()
    assert leader.replica.delete_records(7) is Code.OFFSET_OUT_OF_RANGE
    assert leader.replica.delete_records(-2) is Code.OFFSET_OUT_OF_RANGE
    assert leader.replica.delete_records(6) == 6
    assert leader.replica.delete_records(0) == 0
    assert leader.replica.delete_records(-1) == 6, "all that is committed"


def test_deletion_by_a_non_leader_is_refused() -> None:
    follower = Copy(2)
    assert follower.replica.delete_records(0) is Code.NOT_LEADER_OR_FOLLOWER
    follower.replica.fail()
    assert follower.replica.delete_records(0) is Code.KAFKA_STORAGE_ERROR


def test_delete_records_completes_when_isr_log_starts_follow() -> None:
    leader = a_leader(committed=10)
    assert delete(leader, 4) == 4
    assert (leader.answers, leader.replica.low_watermark) == ([], 0)
    fetched(leader, 2, 4)
    assert leader.answers == []
    fetched(leader, 3, 5)
    assert (leader.answers, leader.replica.low_watermark) == ([("gone", Code.NONE)], 4)


def test_out_of_sync_replica_does_not_delay_deletion() -> None:
    leader = a_leader(committed=10)
    delete(leader, 4)
    fetched(leader, 2, 4)
    leader.hear(a_partition(isr=(1, 2), partition_epoch=1))
    assert leader.answers == [("gone", Code.NONE)]


def test_replica_about_to_join_delays_deletion() -> None:
    leader = Copy(1, a_partition(isr=(1, 2)))
    leader.write(10)
    for broker_id in (2, 3):
        leader.fetched_by(broker_id, 10)
    assert leader.proposals
    delete(leader, 4)
    fetched(leader, 2, 4)
    assert leader.answers == []
    fetched(leader, 3, 4)
    assert leader.answers == [("gone", Code.NONE)]


def test_delete_records_timeout_keeps_new_log_start() -> None:
    leader = a_leader(committed=10)
    delete(leader, 4)
    assert leader.replica.waiters
    leader.replica.expire_waiters(leader.now_ms + 1_000)
    leader.step()
    assert leader.answers == [("gone", Code.REQUEST_TIMED_OUT)]
    assert leader.log.log_start_offset == 4
    assert not leader.replica.waiters


def test_end_of_a_term_ends_the_wait() -> None:
    leader = a_leader(committed=10)
    delete(leader, 4)
    leader.hear(a_partition(leader=2, leader_epoch=1, partition_epoch=1))
    assert leader.answers == [("gone", Code.NOT_LEADER_OR_FOLLOWER)]


def test_whoever_may_be_elected_cleanly_is_waited_for() -> None:
    leader = a_leader(committed=10)
    delete(leader, 4)
    leader.hear(a_partition(isr=(1,), elr=(2, 3), partition_epoch=1))
    assert leader.answers == [], "2 and 3 may be elected, and have it all"
    fetched(leader, 2, 4)
    assert leader.answers == []
    leader.hear(a_partition(isr=(1,), elr=(2,), last_known_elr=(3,), partition_epoch=2))
    assert leader.answers == [("gone", Code.NONE)], "3 came back without its data"


def test_deletion_times_out_while_elr_member_is_absent() -> None:
    leader = Copy(1, a_partition(isr=(1,), elr=(2,)))
    leader.log.log_start_offset = leader.log.log_end_offset = 10
    leader.step()
    leader.replica.start_moved()
    leader.replica.waiters.for_start.add(AckWaiter(10, leader.now_ms + 1_000, "gone"))
    leader.step()
    assert leader.answers == []
    leader.replica.expire_waiters(leader.now_ms + 1_000)
    leader.step()
    assert leader.answers == [("gone", Code.REQUEST_TIMED_OUT)]


def test_own_shrink_below_min_isr_ends_no_wait() -> None:
    """The controller's answer tells the ISR alone; the metadata of the same epoch tells the ELR."""
    leader = Copy(1, a_partition(isr=(1, 2)))
    leader.write(10)
    leader.lag_check(after_ms=LAG_MS + 1)
    delete_at = leader.replica.high_watermark
    leader.log.log_start_offset = delete_at + 4
    leader.replica.waiters.for_start.add(AckWaiter(delete_at + 4, leader.now_ms + 1_000, "gone"))
    leader.answer()
    assert (leader.replica.partition.isr, leader.answers) == ((1,), [])
    leader.hear(a_partition(isr=(1,), elr=(2,), partition_epoch=1))
    assert leader.answers == []
    leader.hear(a_partition(isr=(1,), elr=(), last_known_elr=(2,), partition_epoch=1))
    assert leader.answers == [("gone", Code.NONE)]


def test_follower_joins_after_hearing_the_log_start() -> None:
    leader = Copy(1, a_partition(isr=(1, 2)))
    leader.write(10)
    leader.fetched_by(2, 10)
    assert delete(leader, 4) == 4
    fetched(leader, 2, 4)
    assert leader.answers == [("gone", Code.NONE)]
    fetched(leader, 3, 0)
    assert not leader.proposals, "3 may still have what was deleted"
    fetched(leader, 3, 4)
    assert leader.proposals


def test_new_leader_epoch_forgets_followers_log_starts() -> None:
    leader = a_leader(committed=10)
    delete(leader, 4)
    for broker_id in (2, 3):
        fetched(leader, broker_id, 4)
    leader.hear(a_partition(leader_epoch=1, partition_epoch=1))
    assert leader.replica.low_watermark == 0
