"""For how long a leader without a controller may answer as if it were not replaced."""

import msgspec
import pytest
from tests.plimsoll_core.replica.copies import Copy, a_partition

from plimsoll_core.cluster.model import Partition
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.replica.leader_lease import ANSWERS_MAX, LeaderLease, from_followers
from plimsoll_core.replica.replica_values import FollowerFetch

SENT = 1_000_000
WINDOW = 5_400


def lease(sent_ms: int = SENT, end: int = 100) -> LeaderLease:
    made = LeaderLease()
    made.answered(sent_ms, 6_000, MetadataOffset(end))
    return made


def holds(one: LeaderLease, now_ms: int, applied: int = 100) -> bool:
    return one.from_controller(now_ms, MetadataOffset(applied))


class TestFromController:
    """(a): the newest answered heartbeat was *sent* less than the session timeout ago."""

    def test_leader_lease_is_session_timeout_less_margin(self) -> None:
        assert lease().window_ms == WINDOW
        assert holds(lease(), SENT + WINDOW - 1)
        assert not holds(lease(), SENT + WINDOW)

    def test_lease_does_not_hold_before_the_first_answer(self) -> None:
        assert not holds(LeaderLease(), 0)

    def test_lease_counts_from_question_not_answer(self) -> None:
        """An answer that took 3 s on its way was true 3 s ago."""
        one = lease()
        one.answered(SENT + 1_000, 6_000, MetadataOffset(100))
        assert holds(one, SENT + 1_000 + WINDOW - 1)
        assert not holds(one, SENT + 1_000 + WINDOW)

    def test_answer_beyond_applied_metadata_extends_nothing(self) -> None:
        """The missing records may hold the election of another broker."""
        one = lease()
        one.answered(SENT + 5_000, 6_000, MetadataOffset(101))
        assert holds(one, SENT + 5_399, applied=100)
        assert not holds(one, SENT + 5_400, applied=100)
        assert holds(one, SENT + 5_400, applied=101)

    def test_answer_that_comes_late_shortens_nothing(self) -> None:
        one = lease()
        one.answered(SENT - 3_000, 6_000, MetadataOffset(100))
        assert holds(one, SENT + WINDOW - 1)

    def test_answers_that_wait_for_metadata_are_bounded(self) -> None:
        one = LeaderLease()
        for n in range(10 * ANSWERS_MAX):
            one.answered(SENT + n, 6_000, MetadataOffset(1_000 + n))
        assert len(one._answers) == ANSWERS_MAX
        assert holds(one, SENT + WINDOW, applied=2_000)


def fetched(copy: Copy, broker: int, acknowledged_ms: int | None, **fields: object) -> object:
    fetch = FollowerFetch(
        broker,
        10 * broker,
        copy.replica.partition.leader_epoch,
        copy.end,
        copy.log.epochs.epoch_of_last(copy.end),
        0,
        acknowledged_ms,
    )
    answer = copy.replica.follower_fetch(fetch._replace(**fields), copy.now_ms)
    copy.step()
    return answer


def follows(copy: Copy, image: Partition | None = None, since_ms: int = SENT) -> bool:
    leader = copy.replica.leader
    assert leader is not None
    return from_followers(leader, image or copy.replica.partition, since_ms)


class TestFromFollowers:
    """(b): every replica that could be elected has followed in this term within that time."""

    def test_holds_while_every_in_sync_replica_follows(self) -> None:
        copy = Copy(1)
        fetched(copy, 2, SENT + 1)
        assert not follows(copy), "nothing was heard of 3 in this term"
        fetched(copy, 3, SENT + 1)
        assert follows(copy)
        assert not follows(copy, since_ms=SENT + 1)

    def test_lease_counts_the_acknowledged_replys_time(self) -> None:
        """The fetch itself may have been on its way for as long as this broker was frozen."""
        copy = Copy(1)
        copy.now_ms = SENT + 60_000
        fetched(copy, 2, SENT - 1)
        fetched(copy, 3, None)
        assert not follows(copy)

    def test_lease_of_sole_isr_member_needs_no_fetch(self) -> None:
        assert follows(Copy(1, a_partition(replicas=(1,), isr=(1,), min_isr=1)))
        assert follows(Copy(1, a_partition(isr=(1,), min_isr=1)))

    def test_replica_in_the_elr_could_be_elected_too(self) -> None:
        copy = Copy(1, a_partition(isr=(1,), elr=(2,)))
        fetched(copy, 3, SENT + 1)
        assert not follows(copy)
        fetched(copy, 2, SENT + 1)
        assert follows(copy)

    def test_adding_replica_counts_for_the_lease(self) -> None:
        copy = Copy(1, a_partition(isr=(1, 2)))
        fetched(copy, 2, SENT + 1)
        assert follows(copy)
        fetched(copy, 3, None)
        assert len(copy.proposals) == 1
        assert not follows(copy)

    def test_follower_dropped_from_isr_counts_as_possible_elr(self) -> None:
        """The answer to the leader's proposal names the new ISR, not the new ELR."""
        copy = Copy(1, a_partition(isr=(1, 2, 3), min_isr=3))
        image = copy.replica.partition
        fetched(copy, 2, SENT + 1)
        copy.write(1)
        copy.now_ms += 60_000
        fetched(copy, 2, SENT + 1)
        copy.lag_check()
        copy.answer()
        assert copy.replica.partition.isr == (1, 2)
        assert not follows(copy, image)
        known = msgspec.structs.replace(copy.replica.partition, elr=(BrokerId(3),))
        assert not follows(copy, known)

    def test_new_term_begins_without_anybody(self) -> None:
        copy = Copy(1)
        fetched(copy, 2, SENT + 1)
        fetched(copy, 3, SENT + 1)
        copy.hear(a_partition(leader_epoch=1, partition_epoch=1))
        assert not follows(copy)

    def test_metadata_of_another_term_proves_nothing(self) -> None:
        copy = Copy(1)
        fetched(copy, 2, SENT + 1)
        fetched(copy, 3, SENT + 1)
        assert not follows(copy, a_partition(leader_epoch=1, partition_epoch=1))

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"leader_epoch": None}, Code.NONE),
            ({"broker_epoch": 19}, Code.NOT_LEADER_OR_FOLLOWER),
            ({"offset": 5}, Code.OFFSET_OUT_OF_RANGE),
        ],
        ids=["without its term", "from an earlier lifetime", "out of range"],
    )
    def test_fetch_without_epoch_or_refused_proves_nothing(
        self, fields: dict[str, object], code: Code
    ) -> None:
        copy = Copy(1)
        fetched(copy, 3, SENT + 1)
        assert fetched(copy, 2, SENT + 1, **fields) is code
        assert not follows(copy)
