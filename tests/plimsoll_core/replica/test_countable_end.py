"""flush.messages: what is acknowledged is on the disk, by the leader's side and by a follower's."""

from __future__ import annotations

import pytest
from tests.plimsoll_core.replica.copies import Copy, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.commit import AckWaiter, countable_end


@pytest.mark.parametrize(
    ("log_end", "flushed_end", "flush_messages", "counts"),
    [
        (10, 0, None, 10),
        (10, 10, 1, 10),
        (10, 9, 1, 9),
        (10, 9, 2, 10),
        (10, 8, 2, 8),
        (0, 0, 1, 0),
    ],
)
def test_unflushed_records_count_only_up_to_the_limit(
    log_end: int, flushed_end: int, flush_messages: int | None, counts: int
) -> None:
    assert countable_end(log_end, flushed_end, flush_messages) == counts


def a_flushing_leader(**fields: object) -> Copy:
    copy = Copy(1, a_partition(**fields))
    copy.log.flush_messages = 1
    return copy


def flush(copy: Copy) -> None:
    copy.log.flushed_end = copy.end
    copy.step()


def test_leader_commits_nothing_beyond_its_own_disk() -> None:
    leader = a_flushing_leader()
    leader.produce(wait="client")
    leader.fetched_by(2, 1, last_epoch=0)
    leader.fetched_by(3, 1, last_epoch=0)
    assert (leader.hw, leader.answers) == (0, [])
    flush(leader)
    assert (leader.hw, leader.answers) == (1, [("client", Code.NONE)])


def test_acks_1_waits_for_leader_disk_only() -> None:
    leader = a_flushing_leader()
    leader.produce(acks=1)
    leader.replica.wait_for_flush(AckWaiter(1, leader.now_ms + 5_000, "client"))
    leader.step()
    assert leader.answers == []
    flush(leader)
    assert (leader.hw, leader.answers) == (0, [("client", Code.NONE)])


@pytest.mark.parametrize("end_of_term", [False, True])
def test_acks_1_fails_when_flush_fails(end_of_term: bool) -> None:
    leader = a_flushing_leader()
    leader.produce(acks=1)
    leader.replica.wait_for_flush(AckWaiter(1, leader.now_ms + 5_000, "client"))
    if end_of_term:
        leader.hear(a_partition(leader=2, leader_epoch=1, partition_epoch=1))
        assert leader.answers == [("client", Code.NOT_LEADER_OR_FOLLOWER)]
    else:
        assert leader.replica.waiters
        leader.replica.expire_waiters(leader.now_ms + 5_001)
        leader.step()
        assert leader.answers == [("client", Code.REQUEST_TIMED_OUT)]


def test_small_committed_set_fails_no_acks_1() -> None:
    leader = a_flushing_leader(isr=(1, 2))
    leader.produce(acks=1)
    leader.replica.wait_for_flush(AckWaiter(1, leader.now_ms + 5_000, "client"))
    leader.hear(a_partition(isr=(1,), elr=(2,), partition_epoch=1))
    assert leader.answers == []
    flush(leader)
    assert leader.answers == [("client", Code.NONE)]
