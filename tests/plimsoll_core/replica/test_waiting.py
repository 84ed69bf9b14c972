"""Who waits for a commit and who for new records, and in which order they hear of it."""

from tests.plimsoll_core.replica.copies import Copy, a_partition

from plimsoll_core.errors import Code
from plimsoll_core.replica.commit import AckWaiter, AckWaiters, Answered, ParkedFetches

LATE = 1_000


class TestAckWaiters:
    """4.11: "wait for hw ≥ last+1 … deadline → REQUEST_TIMED_OUT 7"."""

    def test_ack_waiters_are_completed_in_order(self) -> None:
        waiters = AckWaiters()
        for offset in (1, 2, 3):
            waiters.add(AckWaiter(offset, LATE, f"to {offset}"))
        assert waiters.reached(0, Code.NONE) == []
        assert waiters.reached(2, Code.NONE) == [
            Answered("to 1", Code.NONE),
            Answered("to 2", Code.NONE),
        ]
        assert len(waiters) == 1

    def test_retry_with_lower_offset_is_not_delayed(self) -> None:
        """A duplicate is answered when its own batch is committed, not when the newest is."""
        waiters = AckWaiters()
        for offset in (5, 9, 2, 5):
            waiters.add(AckWaiter(offset, LATE, offset))
        assert waiters.reached(2, Code.NONE) == [Answered(2, Code.NONE)]
        assert [answer.token for answer in waiters.reached(9, Code.NONE)] == [5, 5, 9]

    def test_deadlines_are_each_ones_own(self) -> None:
        """Who came last may be the first to give up; the others go on waiting."""
        waiters = AckWaiters()
        waiters.add(AckWaiter(1, LATE, "patient"))
        waiters.add(AckWaiter(2, LATE - 1, "hasty"))
        assert waiters.expire(LATE - 2) == []
        assert waiters.expire(LATE - 1) == [Answered("hasty", Code.REQUEST_TIMED_OUT)]
        assert waiters.reached(9, Code.NONE) == [Answered("patient", Code.NONE)]

    def test_lost_leadership_is_told_to_all_at_once(self) -> None:
        """4.11: "lost leadership → 6"."""
        waiters = AckWaiters()
        waiters.add(AckWaiter(1, LATE, "a"))
        waiters.add(AckWaiter(2, LATE, "b"))
        answered = waiters.fail_all(Code.NOT_LEADER_OR_FOLLOWER)
        assert [(each.token, each.code) for each in answered] == [("a", 6), ("b", 6)]
        assert not waiters


class TestParkedFetches:
    """Followers wait for the log's end, consumers for the high watermark."""

    def test_each_waiter_is_woken_once(self) -> None:
        parked = ParkedFetches()
        parked.park("consumer", for_commit=True)
        parked.park("follower", for_commit=False)
        assert parked.take(end_moved=False, commit_moved=False) == []
        assert parked.take(end_moved=True, commit_moved=False) == ["follower"]
        assert parked.take(end_moved=True, commit_moved=True) == ["consumer"]
        assert parked.take(end_moved=True, commit_moved=True) == []

    def test_first_parked_first_woken(self) -> None:
        parked = ParkedFetches()
        for token in ("b", "a", "c"):
            parked.park(token, for_commit=True)
        assert parked.take(end_moved=False, commit_moved=True) == ["b", "a", "c"]

    def test_parked_fetch_of_closed_connection_is_not_woken(self) -> None:
        parked = ParkedFetches()
        for for_commit in (True, False):
            parked.park("gone", for_commit=for_commit)
            parked.park("there", for_commit=for_commit)
        parked.forget("gone")
        parked.forget("never came")
        assert parked.take(end_moved=True, commit_moved=True) == ["there", "there"]

    def test_change_of_role_wakes_everybody(self) -> None:
        """4.7: "wake it on data, role or LE change": the answer is another one now."""
        leader = Copy(1)
        leader.replica.parked.park("follower", for_commit=False)
        leader.replica.parked.park("consumer", for_commit=True)
        leader.step()
        assert leader.woken == []
        leader.hear(a_partition(leader=2, leader_epoch=1, partition_epoch=1))
        assert leader.woken == ["follower", "consumer"]

    def test_followers_hear_where_the_log_begins_now(self) -> None:
        """Retention dropped records: nothing else may happen for long."""
        leader = Copy(1)
        leader.replica.parked.park("follower", for_commit=False)
        leader.replica.parked.park("consumer", for_commit=True)
        leader.step()
        leader.woken.clear()
        leader.replica.start_moved()
        leader.step()
        assert leader.woken == ["follower"]

    def test_write_wakes_followers_and_its_commit_consumers(self) -> None:
        leader = Copy(1)
        leader.replica.parked.park("follower", for_commit=False)
        leader.replica.parked.park("consumer", for_commit=True)
        leader.write(1)
        assert leader.woken == ["follower"]
        leader.fetched_by(2, 1)
        assert leader.woken == ["follower"]
        leader.fetched_by(3, 1)
        assert leader.woken == ["follower", "consumer"]
