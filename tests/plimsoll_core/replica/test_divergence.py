"""What a replica answers when it is asked where its log and its terms end."""

from tests.plimsoll_core.replica.copies import Copy, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.replica_values import EndOffset


def test_fetch_with_newer_epoch_is_out_of_range() -> None:
    """4.7, divergence: "undefined → 1": nothing can be said about a term newer than the log."""
    leader = Copy(1, a_partition(leader_epoch=1, partition_epoch=1))
    leader.write(2)
    assert leader.replica.consumer_fetch(1, None, 2) is Code.OFFSET_OUT_OF_RANGE
    assert leader.fetched_by(2, 1, last_epoch=2) is Code.OFFSET_OUT_OF_RANGE
    assert leader.replica.leader is not None
    assert leader.replica.leader.followers[2].log_end is None, "and proves nothing"


def test_leader_returns_end_of_known_epoch() -> None:
    """OffsetForLeaderEpoch: the greatest term not above the one asked for, and its end."""
    leader = Copy(1, a_partition(leader_epoch=1, partition_epoch=1))
    leader.write(2)
    leader.hear(a_partition(leader_epoch=3, partition_epoch=2, leader=2))
    leader.hear(a_partition(leader_epoch=4, partition_epoch=3))
    leader.write(1)
    assert leader.replica.end_offset_for(1, None) == EndOffset(1, 2)
    assert leader.replica.end_offset_for(3, 4) == EndOffset(1, 2), "no record of term 3 is here"
    assert leader.replica.end_offset_for(4, 4) == EndOffset(4, 3)
    assert leader.replica.end_offset_for(5, None) is None
    assert leader.replica.end_offset_for(4, 3) is Code.FENCED_LEADER_EPOCH
    assert leader.replica.end_offset_for(4, 9) is Code.UNKNOWN_LEADER_EPOCH


def test_follower_says_where_no_log_ends() -> None:
    """5.5: "Non-leader → 6", and a stale asker hears that first."""
    copy = Copy(1, a_partition(leader=2, leader_epoch=1, partition_epoch=1))
    for for_replica in (True, False):
        answer = copy.replica.latest_offset(1, for_replica=for_replica)
        assert answer is Code.NOT_LEADER_OR_FOLLOWER
        stale = copy.replica.latest_offset(0, for_replica=for_replica)
        assert stale is Code.FENCED_LEADER_EPOCH
    assert copy.replica.end_offset_for(1, 1) is Code.NOT_LEADER_OR_FOLLOWER


def test_failed_disk_says_so_to_everybody_who_asks() -> None:
    leader = Copy(1)
    leader.write(1)
    leader.replica.fail()
    assert leader.fetched_by(2, 0) is Code.KAFKA_STORAGE_ERROR
    assert leader.replica.consumer_fetch(0, 9, None) is Code.KAFKA_STORAGE_ERROR
    assert leader.replica.latest_offset(None, for_replica=False) is Code.KAFKA_STORAGE_ERROR
