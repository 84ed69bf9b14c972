"""Every row of the table of docs/protocol.md §5.8.1: phase, event, effect."""

import pytest
from tests.plimsoll_core.groups.classic_members import (
    REBALANCE_MS,
    SESSION_MS,
    a_heartbeat,
    a_join,
    a_sync,
    alive,
    begins,
    given,
    joined_by,
    leave,
    phase,
    stable,
    stored,
)
from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel

from plimsoll_core.errors import Code
from plimsoll_core.groups import membership as m
from plimsoll_core.groups.records import GroupStored

# --- joining -------------------------------------------------------------------------------------


def test_member_without_id_gets_one_and_retries(model: CoordinatorModel) -> None:
    member_id = given(model)
    assert (model.log, phase(model)) == ([], "Empty")
    token = model.asked(a_join(member_id))
    assert phase(model) == "Preparing"
    assert stored(model) == GroupStored(
        group_id="g",
        protocol_type="consumer",
        generation=0,
        protocol=None,
        leader=None,
        state_ms=model.turn.wall_ms,
    )
    model.advance(3_000)
    assert model.answer(token) == m.GroupJoined(
        member_id=member_id,
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader=member_id,
        members=(m.JoinedMember(member_id, None, b"topics"),),
    )
    assert phase(model) == "Completing"


def test_member_of_old_client_joins_without_id(model: CoordinatorModel) -> None:
    op = a_join(must_know_its_id=False)
    token = model.asked(op)
    model.advance(3_000)
    assert joined_by(model, token).member_id == op.new_member_id


def test_first_rebalance_extends_while_members_arrive(
    model: CoordinatorModel,
) -> None:
    tokens = []
    for ms in range(0, 8_000, 500):
        assert ms == 0 or model.answer(tokens[0]) is None
        if ms in (0, 500, 3_500, 6_500):
            tokens.append(model.asked(a_join(given(model), rebalance_timeout_ms=8_000)))
        model.advance(500)
    assert [joined_by(model, token).generation for token in tokens] == [1] * 4
    assert [len(joined_by(model, token).members) for token in tokens] == [4, 0, 0, 0]


def test_pending_member_id_delays_rebalance_up_to_session(
    model: CoordinatorModel,
) -> None:
    (first,) = stable(model, None)
    given(model)
    token = model.asked(a_join(first.member_id))
    assert model.answer(token) is None
    model.advance(SESSION_MS)
    assert joined_by(model, token).generation == 2


def test_second_member_makes_the_first_join_again(model: CoordinatorModel) -> None:
    (first,) = stable(model, None)
    second = model.asked(a_join(given(model)))
    assert phase(model) == "Preparing"
    assert alive(model, first) == [Code.REBALANCE_IN_PROGRESS]
    again = model.asked(a_join(first.member_id))
    assert joined_by(model, again).leader == first.member_id
    assert joined_by(model, second).generation == 2
    assert [one.member_id for one in joined_by(model, again).members] == [
        first.member_id,
        joined_by(model, second).member_id,
    ]


def test_late_dynamic_member_is_removed_and_static_kept(
    model: CoordinatorModel,
) -> None:
    first, second, third = stable(model, None, None, "s")
    token = model.asked(a_join(second.member_id, protocols=(("range", b"other"),)))
    for _ in range(5):
        model.advance(REBALANCE_MS // 5)
        alive(model, first, third)
    assert joined_by(model, token).leader == second.member_id
    assert [one.member_id for one in joined_by(model, token).members] == [
        second.member_id,
        third.member_id,
    ]
    assert alive(model, first) == [Code.UNKNOWN_MEMBER_ID]


def test_rebalance_waits_for_absent_static_members(
    model: CoordinatorModel,
) -> None:
    first, static = stable(model, None, "s")
    model.ask(leave((first.member_id, None)))
    for _ in range(8):
        model.advance(SESSION_MS // 2)
        assert alive(model, static) == [Code.REBALANCE_IN_PROGRESS]
    assert phase(model) == "Preparing"
    token = model.asked(a_join(static.member_id, "s"))
    assert joined_by(model, token).generation == 2


def test_follower_that_rejoins_unchanged_gets_same_answer(model: CoordinatorModel) -> None:
    leader, follower = begins(model, None, None)
    assert model.ask(a_join(follower.member_id)) == follower
    assert model.ask(a_join(leader.member_id)) == leader
    model.fail_over()
    leader, follower = stable(model, None, None)
    assert model.ask(a_join(follower.member_id)) == follower
    assert phase(model) == "Stable"
    model.asked(a_join(leader.member_id))
    assert phase(model) == "Preparing"


@pytest.mark.parametrize("after", ["joins", "syncs"])
def test_member_with_other_metadata_makes_all_join_again(
    model: CoordinatorModel, after: str
) -> None:
    leader, follower = (begins if after == "joins" else stable)(model, None, None)
    waiting = model.asked(a_sync(leader)) if after == "syncs" else model.asked(a_sync(follower))
    model.asked(a_join(follower.member_id, protocols=(("range", b"more"),)))
    assert phase(model) == "Preparing"
    told = m.GroupSynced("consumer", "range", leader.member_id.encode())
    expected = told if after == "syncs" else Code.REBALANCE_IN_PROGRESS
    assert model.answer(waiting) == expected


def test_join_that_is_sent_twice_is_answered_once(model: CoordinatorModel) -> None:
    member_id = given(model)
    lost = model.asked(a_join(member_id))
    token = model.asked(a_join(member_id))
    assert model.answer(lost) is Code.REBALANCE_IN_PROGRESS
    model.advance(3_000)
    assert joined_by(model, token).generation == 1


def test_protocol_is_most_preferred_of_common_ones(
    model: CoordinatorModel,
) -> None:
    wishes = ("abc", "bca", "cb")
    tokens = [
        model.asked(a_join(instance=names, protocols=tuple((name, b"") for name in names)))
        for names in wishes
    ]
    model.advance(3_000)
    model.advance(3_000)
    assert joined_by(model, tokens[0]).protocol == "b"


# --- static members ------------------------------------------------------------------------------


def test_static_member_returns_to_stable_group_unchanged(
    model: CoordinatorModel,
) -> None:
    leader, follower = stable(model, None, "s")
    op = a_join(instance="s")
    answer = joined_by(model, model.asked(op))
    assert (answer.generation, answer.leader, answer.members) == (1, leader.member_id, ())
    assert (phase(model), stored(model).members[1].member_id) == ("Stable", op.new_member_id)
    old = follower.member_id
    assert model.ask(a_heartbeat(old, 1, "s")) is Code.FENCED_INSTANCE_ID
    assert model.ask(a_sync(answer)) == m.GroupSynced("consumer", "range", old.encode())


@pytest.mark.parametrize("may_skip", [False, True])
def test_static_leader_that_comes_back_does_not_assign(
    model: CoordinatorModel, may_skip: bool
) -> None:
    (old,) = stable(model, "s")
    op = a_join(instance="s", may_skip_assignment=may_skip)
    answer = joined_by(model, model.asked(op))
    assert answer.leader == (op.new_member_id if may_skip else old.member_id)
    assert (answer.skip_assignment, len(answer.members)) == (may_skip, may_skip)
    assert stored(model).leader == op.new_member_id


def test_returning_static_member_fences_its_waiting_request(
    model: CoordinatorModel,
) -> None:
    leader, static = begins(model, None, "s")
    sync = model.asked(a_sync(static))
    join = model.asked(a_join(instance="s"))
    assert model.answer(sync) is Code.FENCED_INSTANCE_ID
    assert phase(model) == "Preparing"
    again = model.asked(a_join(instance="s"))
    assert model.answer(join) is Code.FENCED_INSTANCE_ID
    model.asked(a_join(leader.member_id))
    assert joined_by(model, again).generation == 2


def test_returning_static_member_with_new_vote_forces_rejoin(
    model: CoordinatorModel,
) -> None:
    both = (("range", b""), ("sticky", b""))
    tokens = [model.asked(a_join(instance=name, protocols=both)) for name in ("s", "t")]
    model.advance(3_000)
    model.advance(3_000)
    leader, follower = (joined_by(model, token) for token in tokens)
    model.asked(a_sync(follower))
    model.ask(a_sync(leader))
    other = (("sticky", b""),)
    model.asked(a_join(instance="t", protocols=other))
    assert phase(model) == "Preparing"


def test_static_member_with_unstored_return_gets_error(model: CoordinatorModel) -> None:
    stable(model, "s")
    model.refuses = Code.COORDINATOR_NOT_AVAILABLE
    assert model.ask(a_join(instance="s")) is Code.COORDINATOR_NOT_AVAILABLE
    model.refuses = Code.NONE
    answer = joined_by(model, model.asked(a_join(instance="s")))
    assert answer.skip_assignment
    assert stored(model).members[0].member_id == answer.member_id


# --- syncing -------------------------------------------------------------------------------------


def test_follower_waits_for_leader_and_commit(
    model: CoordinatorModel,
) -> None:
    leader, follower = begins(model, None, None)
    waits = model.asked(a_sync(follower))
    model.holds = True
    leads = model.asked(a_sync(leader, **{follower.member_id: b"f"}))
    late = model.asked(a_sync(leader, **{follower.member_id: b"other"}))
    assert (phase(model), model.answer(waits)) == ("Completing", None)
    assert (model.answer(leads), model.answer(late)) == (Code.REBALANCE_IN_PROGRESS, None)
    model.commit()
    assert model.answer(waits) == m.GroupSynced("consumer", "range", b"f")
    assert model.answer(late) == m.GroupSynced("consumer", "range", b"")
    assert phase(model) == "Stable"


def test_unstored_assignments_force_everybody_to_rejoin(
    model: CoordinatorModel,
) -> None:
    leader, follower = begins(model, None, None)
    waits = model.asked(a_sync(follower))
    model.refuses = Code.COORDINATOR_NOT_AVAILABLE
    assert model.ask(a_sync(leader)) is Code.COORDINATOR_NOT_AVAILABLE
    assert model.answer(waits) is Code.COORDINATOR_NOT_AVAILABLE
    assert phase(model) == "Preparing"
    model.refuses = Code.NONE
    tokens = [model.asked(a_join(one.member_id)) for one in (leader, follower)]
    assert [joined_by(model, token).generation for token in tokens] == [2, 2]


def test_commit_that_comes_after_a_newcomer_answers_nobody(model: CoordinatorModel) -> None:
    (leader,) = begins(model, None)
    model.holds = True
    waits = model.asked(a_sync(leader))
    model.asked(a_join(given(model)))
    assert model.answer(waits) is Code.REBALANCE_IN_PROGRESS
    model.commit()
    assert phase(model) == "Preparing"


def test_commit_of_past_generation_gets_no_answer(model: CoordinatorModel) -> None:
    (leader,) = begins(model, None)
    model.holds = True
    model.asked(a_sync(leader))
    newcomer = model.asked(a_join(given(model)))
    again = joined_by(model, model.asked(a_join(leader.member_id)))
    sync = model.asked(a_sync(again, **{again.member_id: b"two"}))
    then, code = model.thens.pop(0)
    model.submit(then(code), None)
    assert (phase(model), model.answer(sync)) == ("Completing", None)
    model.commit()
    assert model.answer(sync) == m.GroupSynced("consumer", "range", b"two")
    assert joined_by(model, newcomer).generation == 2


def test_assignment_is_told_again_also_after_a_failover(model: CoordinatorModel) -> None:
    _, follower = stable(model, None, None)
    own = m.GroupSynced("consumer", "range", follower.member_id.encode())
    assert model.ask(a_sync(follower)) == own
    model.fail_over()
    assert model.ask(a_sync(follower)) == own


def test_members_late_to_sync_are_removed(model: CoordinatorModel) -> None:
    leader, follower = begins(model, None, None)
    waits = model.asked(a_sync(follower))
    for _ in range(4):
        model.advance(REBALANCE_MS // 4)
        alive(model, leader)
    assert model.answer(waits) is Code.REBALANCE_IN_PROGRESS
    assert alive(model, leader) == [Code.UNKNOWN_MEMBER_ID]
    token = model.asked(a_join(follower.member_id))
    assert joined_by(model, token).leader == follower.member_id


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"generation": 0}, 22),
        ({"generation": 2}, 22),
        ({"member_id": "m"}, 25),
        ({"group_instance_id": "s"}, 25),
        ({"protocol_type": "connect"}, 23),
        ({"protocol": "sticky"}, 23),
    ],
)
def test_sync_of_another_generation_or_member_is_refused(
    model: CoordinatorModel, change: dict[str, object], code: int
) -> None:
    (leader,) = begins(model, None)
    op = a_sync(leader)
    fields = {name: getattr(op, name) for name in op.__dataclass_fields__}
    assert model.ask(m.SyncGroup(**{**fields, **change})) is Code(code)  # type: ignore[arg-type]
