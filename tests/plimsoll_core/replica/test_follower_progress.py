"""A fetch that names only what has changed counts for every partition of its session, exactly as
if it had named them all."""

from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_core.replica.copies import Copy, a_partition

from plimsoll_core.ids import BrokerId
from plimsoll_core.replica.leader import FollowerProgress, Presence
from plimsoll_core.replica.replica_values import FollowerFetch


def a_fetch(offset: int, acknowledged_ms: int) -> FollowerFetch:
    return FollowerFetch(2, 20, 0, offset, 0 if offset else None, 0, acknowledged_ms)


def times(progress: FollowerProgress) -> tuple[int | None, int | None]:
    return progress.caught_up_ms, progress.acknowledged_ms


steps = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(0, 3)),
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("pass"), st.integers(1, 5_000)),
        st.tuples(st.just("lose"), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_session_says_what_full_fetches_would_say(todo: list[tuple[str, int]]) -> None:
    """`fetch n`: the follower has taken n records more.  A settled follower's fetch names nothing;
    it settles when it has everything, and is open again as soon as something is appended."""
    explicit, remembered = FollowerProgress(None), FollowerProgress(None)
    session = Presence()
    end = offset = 0
    now_ms = 1_000
    settled = False
    for what, number in todo:
        now_ms += 1
        if what == "append":
            end += number
            if settled:
                remembered.unsettle(session)
                settled = False
        elif what == "pass":
            now_ms += number
        elif what == "lose":
            remembered.unsettle(session)
            session, settled = Presence(), False
        else:
            offset = min(offset + number, end)
            explicit.fetched(a_fetch(offset, now_ms - 1), end, now_ms)
            session.fetch_ms, session.acknowledged_ms = now_ms, now_ms - 1
            if not settled:
                remembered.fetched(a_fetch(offset, now_ms - 1), end, now_ms)
                settled = offset == end
                if settled:
                    remembered.settle(session)
        assert times(remembered) == times(explicit)
        assert remembered.log_end == explicit.log_end


def test_older_connection_does_not_unsettle_newer_one() -> None:
    progress, older, newer = FollowerProgress(None), Presence(), Presence()
    older.fetch_ms, newer.fetch_ms = 10, 20
    progress.fetched(a_fetch(0, 5), 0, 10)
    progress.settle(older)
    progress.fetched(a_fetch(0, 15), 0, 20)
    progress.settle(newer)
    progress.unsettle(older)
    newer.fetch_ms = 30
    assert progress.caught_up_ms == 30


class TestSettled:
    """Only a follower that has nothing to say and nothing to hear may be left out."""

    def settled(self, copy: Copy, follower: int) -> bool:
        leader = copy.replica.leader
        assert leader is not None
        return leader.settled(follower, copy.end, copy.hw) is not None  # type: ignore[arg-type]

    def test_follower_is_settled_with_every_record_everywhere(self) -> None:
        copy = Copy(1)
        copy.write(2)
        copy.fetched_by(2, 2)
        assert not self.settled(copy, 2), "3 has not, so the high watermark will move"
        copy.fetched_by(3, 2)
        assert self.settled(copy, 2)
        assert self.settled(copy, 3)

    def test_follower_that_lacks_records_is_not_settled(self) -> None:
        copy = Copy(1)
        copy.fetched_by(2, 0)
        copy.fetched_by(3, 0)
        copy.write(1)
        assert not self.settled(copy, 2)

    def test_follower_without_fetch_in_epoch_is_unsettled(self) -> None:
        copy = Copy(1)
        copy.fetched_by(2, 0)
        assert self.settled(copy, 2)
        copy.hear(a_partition(leader_epoch=1, partition_epoch=1))
        assert not self.settled(copy, 2)

    def test_follower_that_could_still_join_is_not_settled(self) -> None:
        """Each of its fetches asks whether it may."""
        copy = Copy(1, a_partition(isr=(1, 2)))
        copy.fetched_by(2, 0)
        copy.fetched_by(3, 0)
        assert self.settled(copy, 2)
        assert not self.settled(copy, 3)

    def test_broker_that_is_no_replica_is_not_settled(self) -> None:
        assert not self.settled(Copy(1, a_partition(replicas=(1, 2), isr=(1, 2))), 3)


def test_settled_follower_that_is_dropped_is_reconsidered() -> None:
    """Its shrink was proposed while it lagged and is committed when it has everything: without
    another look at its fetches it would stay out for ever."""
    copy = Copy(1)
    copy.write(1)
    copy.fetched_by(2, 1)
    copy.fetched_by(3, 0)
    copy.lag_check(60_000)
    assert len(copy.proposals) == 1
    copy.fetched_by(2, 1)
    copy.fetched_by(3, 1)
    leader = copy.replica.leader
    assert leader is not None
    assert leader.settled(BrokerId(3), copy.end, copy.hw) is not None
    copy.replica.parked.park("3's session", for_commit=False)
    copy.answer()
    assert copy.woken == ["3's session"]
    copy.fetched_by(3, 1)
    assert [member.broker_id for member in copy.proposals[-1].new_isr] == [1, 2, 3]
