"""What a follower's next request names, and what it takes back."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from plimsoll_broker.replication.follower_session import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    NAMED_AT_ONCE,
    SWEEP_MS,
    FollowerSession,
)
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.replica.follower import FetchPosition
from plimsoll_wire.replication import NEW_SESSION, MalformedReply

LEADER: Any = 1
TOPIC = UUID(int=7)
SESSION = 5


class Hosted:
    """One partition here: where its log ends, and from whom it fetches."""

    def __init__(self, index: int) -> None:
        self.key = PartitionKey(TOPIC, index)
        self.topic_id_bytes = TOPIC.bytes
        self.end = 0
        self.log = SimpleNamespace(
            log_start_offset=0, log_end_offset=0, countable_end=0, incomplete=False
        )
        self.replica = SimpleNamespace(
            fetches_from=LEADER,
            position=lambda: FetchPosition(0, self.end, None),
            compacted_copy=SimpleNamespace(must_begin_again=False),
        )


def following(*indexes: int) -> tuple[FollowerSession, list[Any]]:
    made = FollowerSession(LEADER)
    hosted: list[Any] = [Hosted(index) for index in indexes]
    for one in hosted:
        made.add(one)
    return made, hosted


def ask(made: FollowerSession, now_ms: int = 0) -> tuple[tuple[int, int], list[int], list[int]]:
    """The session, what is named and what is forgotten; the leader takes it."""
    assert made.due_in_ms(now_ms) == 0
    session, topics, forgotten = made.ask(now_ms)
    made.answered(SESSION)
    named = [one.partition for _, asked in topics for one in asked]
    return session, named, [index for _, indexes in forgotten for index in indexes]


def question(made: FollowerSession, index: int) -> Any:
    return made.asked[(TOPIC.bytes, index)]


def test_first_request_names_everything_and_the_next_nothing() -> None:
    made, _ = following(0, 1, 2)
    assert ask(made) == (NEW_SESSION, [0, 1, 2], [])
    assert ask(made) == ((SESSION, 1), [], [])
    assert ask(made) == ((SESSION, 2), [], [])


def test_answered_partition_is_renamed_only_when_moved() -> None:
    made, hosted = following(0, 1, 2)
    ask(made)
    hosted[1].end = 7
    made.look_again(question(made, 1).followed)
    made.look_again(question(made, 2).followed)
    assert ask(made)[1:] == ([1], [])
    assert question(made, 1).position.fetch_offset == 7


def test_newer_metadata_names_a_partition_again() -> None:
    made, hosted = following(0, 1)
    ask(made)
    made.add(hosted[1])
    assert ask(made)[1:] == ([1], [])


def test_removed_partition_is_forgotten_exactly_once() -> None:
    made, hosted = following(0, 1)
    ask(made)
    made.remove(hosted[1])
    assert ask(made)[1:] == ([], [1])
    assert ask(made)[1:] == ([], [])


def test_refused_partition_is_retried_after_backoff() -> None:
    made, _ = following(0, 1)
    ask(made)
    made.rest(question(made, 1).followed, now_ms=0)
    assert ask(made)[1:] == ([], [1])
    assert ask(made, BACKOFF_MS)[1:] == ([1], [])


def test_pause_without_request_restarts_the_session() -> None:
    """All that is followed rests: the leader remembers a refusal, and would repeat it for ever."""
    made, _ = following(0)
    ask(made)
    made.rest(question(made, 0).followed, now_ms=0)
    assert made.due_in_ms(1) == BACKOFF_MS - 1
    assert ask(made, BACKOFF_MS)[1:] == ([0], [0])


def test_broken_disk_and_moved_start_are_noticed() -> None:
    made, hosted = following(0, 1, 2)
    ask(made)
    ask(made, SWEEP_MS)
    hosted[0].log.log_start_offset = 4
    hosted[1].replica.fetches_from = None
    assert ask(made, SWEEP_MS + 1)[1:] == ([], [])
    assert ask(made, 2 * SWEEP_MS)[1:] == ([0], [1])
    assert ask(made, 2 * SWEEP_MS)[1:] == ([], [])


def test_follower_session_without_partitions_sends_nothing() -> None:
    made, hosted = following(0)
    hosted[0].replica.fetches_from = None
    made.ask(0)
    assert made.due_in_ms(1) == SWEEP_MS - 1
    made.remove(hosted[0])
    assert made.due_in_ms(1) is None


def test_lost_connection_begins_anew() -> None:
    made, hosted = following(0, 1)
    ask(made)
    made.remove(hosted[1])
    made.forget_session()
    assert ask(made) == (NEW_SESSION, [0], [])


def test_leader_without_sessions_gets_full_rotating_requests() -> None:
    """A reply that is full leaves out the last ones."""
    made, _ = following(0, 1, 2)
    for named in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        session, topics, _ = made.ask(0)
        made.answered(0)
        assert session == NEW_SESSION
        assert [one.partition for _, asked in topics for one in asked] == named


def test_reply_of_another_session_is_the_leaders_fault() -> None:
    made, _ = following(0)
    ask(made)
    made.ask(0)
    with pytest.raises(MalformedReply, match="session 6 instead of 5"):
        made.answered(6)


class TestLine:
    """Of what is copied under a limit only some are asked for at once."""

    def copies(self, count: int, at_once: int = 2) -> tuple[FollowerSession, list[Any]]:
        made = FollowerSession(LEADER, at_once)
        hosted: list[Any] = [Hosted(index) for index in range(count)]
        assert [made.add(one) for one in hosted] == [n < at_once for n in range(count)]
        return made, hosted

    def test_waiting_partition_is_fetched_when_another_has_gone(self) -> None:
        made, hosted = self.copies(4)
        assert len(made) == 4
        assert ask(made)[1] == [0, 1]
        assert made.remove(hosted[1]), "it was not its turn"
        assert ask(made)[1:] == ([2], [1])
        made.answered(SESSION)
        assert not made.remove(hosted[3]), "it was in the queue"
        assert not made.remove(hosted[0]), "no partition is left in the queue"
        assert len(made) == 1

    def test_refused_partition_yields_slot_and_returns(self) -> None:
        made, _ = self.copies(5)
        turns = []
        now_ms = 0
        for _ in range(10):
            assert made.due_in_ms(now_ms) == 0
            named = ask(made, now_ms)[1]
            made.answered(SESSION)
            for index in named:
                made.rest(made.asked[TOPIC.bytes, index].followed, now_ms)
            turns += named
            now_ms += BACKOFF_MS_MAX
        assert set(turns) == {0, 1, 2, 3, 4}
        assert len(made) == 5
        assert {turns.count(index) for index in range(5)} <= {3, 4, 5}

    def test_broken_disks_hold_no_room(self) -> None:
        made, hosted = self.copies(4)
        for broken in hosted[:3]:
            broken.replica.fetches_from = None
        named: list[int] = []
        for now_ms in range(0, 4 * SWEEP_MS, SWEEP_MS // 10):
            if made.due_in_ms(now_ms) == 0:
                named += ask(made, now_ms)[1]
        assert named == [3]


def test_follower_fetches_nothing_beyond_its_disk() -> None:
    """To ask from an offset says that all below it is there: not while a flush is due."""
    made, (one,) = following(1)
    one.log.log_end_offset, one.log.countable_end = 3, 2
    assert not made.ask(0).topics
    one.log.countable_end = 3
    assert ask(made, BACKOFF_MS)[1] == [1]


def test_half_copy_of_former_term_is_not_fetched() -> None:
    """Its position might bring it into the ISR before it is discarded."""
    made, (one,) = following(0)
    one.replica.compacted_copy.must_begin_again = True
    assert ask(made)[1] == []
    assert [lost.followed.hosted for lost in made.take_lost()] == [one]


def test_request_names_at_most_a_thousand_partitions() -> None:
    """Ten thousand in one request held both sides for 60 to 90 ms."""
    made, _ = following(*range(2 * NAMED_AT_ONCE + 10))
    named = []
    for left in (True, True, False):
        session, some, _ = ask(made)
        assert len(some) <= NAMED_AT_ONCE
        assert made.has_more is left, "then the leader does not wait for records first"
        named += some
    assert session == (SESSION, 2)
    assert named == list(range(2 * NAMED_AT_ONCE + 10))
    assert ask(made)[1] == []


def test_follower_without_session_names_partitions_in_turn() -> None:
    count = 2 * NAMED_AT_ONCE + 10
    made, _ = following(*range(count))
    named: set[int] = set()
    for _ in range(3):
        made.forget_session()
        named |= set(ask(made)[1])
    assert named == set(range(count))


def test_sweep_looks_at_all_in_portions() -> None:
    count = NAMED_AT_ONCE + 10
    made, hosted = following(*range(count))
    while ask(made)[1]:
        pass
    for one in hosted:
        one.log.log_start_offset = 3
    named = [ask(made, SWEEP_MS)[1], ask(made, SWEEP_MS)[1], ask(made, SWEEP_MS)[1]]
    assert [len(some) for some in named] == [NAMED_AT_ONCE, 10, 0]
