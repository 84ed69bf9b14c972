"""Members that stay, leave, commit, and what is too much: docs/protocol.md §5.8.1."""

import pytest
from tests.plimsoll_core.groups.classic_members import (
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
from tests.plimsoll_core.groups.coordinator_model import (
    WALL_MS,
    CoordinatorModel,
    a_commit,
    an_image,
)

from plimsoll_core.errors import Code
from plimsoll_core.groups import membership as m
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.classic.phases import generation_of
from plimsoll_core.groups.records import GroupForgotten
from plimsoll_wire.coordinator_records import encode_group_record
from plimsoll_wire.record_sets import size_of

WEEK_MS = 7 * 24 * 3_600_000

# --- staying and leaving ----------------------------------------------------------------------


def test_heartbeats_keep_a_member_and_silence_ends_it(model: CoordinatorModel) -> None:
    leader, follower = stable(model, None, None)
    for _ in range(4):
        model.advance(SESSION_MS // 2)
        assert alive(model, leader, follower) == [m.HeartbeatTaken()] * 2
    for _ in range(2):
        model.advance(SESSION_MS // 2)
        model.ask(a_heartbeat(leader.member_id, 1))
    assert alive(model, leader, follower) == [
        Code.REBALANCE_IN_PROGRESS,
        Code.UNKNOWN_MEMBER_ID,
    ]


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [("m", 1, None, 25), ("", 1, "s", 82), ("", 1, "t", 25), ("own", 0, None, 22)],
)
def test_heartbeat_of_a_stranger_is_refused(
    model: CoordinatorModel, member: str, generation: int, instance: str | None, code: int
) -> None:
    (own,) = stable(model, "s")
    member_id = own.member_id if member == "own" else member
    assert model.ask(a_heartbeat(member_id, generation, instance)) is Code(code)


def test_group_without_members_knows_nobody(model: CoordinatorModel) -> None:
    for _ in range(2):
        assert model.ask(a_heartbeat("m", 0)) is Code.UNKNOWN_MEMBER_ID
        op = m.SyncGroup(group_id="g", member_id="m", generation=0)
        assert model.ask(op) is Code.UNKNOWN_MEMBER_ID
        assert model.ask(leave(("m", None))) == m.MembersLeft((Code.UNKNOWN_MEMBER_ID,))
        assert model.ask(a_join("m")) is Code.UNKNOWN_MEMBER_ID
        given(model)


def test_last_member_that_leaves_makes_the_group_empty(model: CoordinatorModel) -> None:
    (only,) = stable(model, None)
    model.ask(a_commit(("orders", 0, 1), generation=1, member_id=only.member_id))
    assert model.ask(leave((only.member_id, None))) == m.MembersLeft((Code.NONE,))
    assert (stored(model).generation, stored(model).members) == (2, ())
    assert (phase(model), model.turn.soft.seats) == ("none", 0)
    assert model.ask(o.DeleteGroup(group_id="g")) == o.GroupDeleted()
    assert isinstance(model.log[-1], GroupForgotten)


def test_emptiness_that_is_not_stored_is_tried_again(model: CoordinatorModel) -> None:
    (only,) = stable(model, None)
    model.refuses = Code.COORDINATOR_NOT_AVAILABLE
    assert model.ask(leave((only.member_id, None))) is Code.COORDINATOR_NOT_AVAILABLE
    model.advance(1_000)
    assert (phase(model), stored(model).generation) == ("Empty", 1)
    model.refuses = Code.NONE
    model.advance(1_000)
    assert (phase(model), stored(model).generation) == ("none", 2)


def test_offsets_stay_until_emptiness_is_stored(model: CoordinatorModel) -> None:
    (only,) = stable(model, None)
    model.ask(a_commit(("orders", 0, 1), generation=1, member_id=only.member_id))
    model.change(wall_ms=WALL_MS + 2 * WEEK_MS, believed_ms=WALL_MS + 2 * WEEK_MS)
    model.refuses = Code.COORDINATOR_NOT_AVAILABLE
    model.ask(leave((only.member_id, None)))
    model.refuses = Code.NONE
    model.submit(o.ExpireOffsets(group_id="g"), None)
    assert model.turn.state.offsets == 1
    model.advance(1_000)
    assert (stored(model).generation, stored(model).members) == (2, ())
    model.submit(o.ExpireOffsets(group_id="g"), None)
    assert model.turn.state.offsets == 1
    model.change(wall_ms=WALL_MS + 4 * WEEK_MS, believed_ms=WALL_MS + 4 * WEEK_MS)
    model.submit(o.ExpireOffsets(group_id="g"), None)
    assert model.turn.state.offsets == 0


def test_members_leave_by_id_and_by_instance(model: CoordinatorModel) -> None:
    dynamic, static = stable(model, None, "s")
    pending = given(model)
    op = leave((dynamic.member_id, None), ("", "s"), (pending, None), ("", "t"), ("x", "s"))
    answer = model.ask(op)
    assert answer == m.MembersLeft((Code.NONE, Code.NONE, Code.NONE, Code(25), Code(25)))
    assert (stored(model).generation, stored(model).members) == (2, ())
    assert static.generation == 1


def test_removed_member_with_waiting_request_gets_error(model: CoordinatorModel) -> None:
    leader, follower = begins(model, None, None)
    sync = model.asked(a_sync(follower))
    model.ask(leave((follower.member_id, None)))
    assert model.answer(sync) is Code.UNKNOWN_MEMBER_ID
    given(model)
    join = model.asked(a_join(leader.member_id))
    assert model.answer(join) is None
    model.ask(leave((leader.member_id, None)))
    assert model.answer(join) is Code.UNKNOWN_MEMBER_ID


def test_leaving_member_ends_the_wait_of_others(model: CoordinatorModel) -> None:
    leader, follower = stable(model, None, None)
    token = model.asked(a_join(leader.member_id))
    assert model.answer(token) is None
    model.ask(leave((follower.member_id, None)))
    assert len(joined_by(model, token).members) == 1


def test_disconnected_new_member_is_no_longer_awaited(
    model: CoordinatorModel,
) -> None:
    (first,) = stable(model, None)
    newcomer = model.asked(a_join(given(model)))
    model.submit(m.CloseRequest(group_id="g", token=newcomer), None)
    token = model.asked(a_join(first.member_id))
    assert len(joined_by(model, token).members) == 1
    assert model.answer(newcomer) is Code.UNKNOWN_MEMBER_ID or model.answer(newcomer) is None


def test_disconnected_known_member_stays_while_joining(
    model: CoordinatorModel,
) -> None:
    first, second = stable(model, None, None)
    token = model.asked(a_join(first.member_id))
    model.submit(m.CloseRequest(group_id="g", token=token), None)
    model.asked(a_join(second.member_id))
    assert len(joined_by(model, token).members) == 2


def test_newcomer_waits_five_minutes_at_most(model: CoordinatorModel) -> None:
    (first,) = stable(model, "s")
    newcomer = model.asked(a_join(given(model), rebalance_timeout_ms=1_000_000))
    for _ in range(60):
        model.advance(5_000)
        alive(model, first)
    assert model.answer(newcomer) is Code.UNKNOWN_MEMBER_ID


# --- commits -------------------------------------------------------------------------------------


def test_commits_require_the_current_generation(
    model: CoordinatorModel,
) -> None:
    (first,) = stable(model, None)

    def commit(generation: int) -> object:
        op = a_commit(("orders", 0, 1), generation=generation, member_id=first.member_id)
        answer = model.ask(op)
        return answer.partitions[0].code if isinstance(answer, o.OffsetsCommitted) else answer

    assert (commit(1), commit(0)) == (Code.NONE, Code.ILLEGAL_GENERATION)
    model.asked(a_join(given(model)))
    assert (phase(model), commit(1)) == ("Preparing", Code.NONE)
    model.asked(a_join(first.member_id))
    assert phase(model) == "Completing"
    assert (commit(1), commit(2)) == (Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS)


def test_commit_prolongs_the_session(model: CoordinatorModel) -> None:
    (first,) = stable(model, None)
    for _ in range(4):
        model.advance(SESSION_MS // 2)
        model.ask(a_commit(("orders", 0, 1), generation=1, member_id=first.member_id))
    assert alive(model, first) == [m.HeartbeatTaken()]


def test_commit_without_member_is_refused_during_first_join(
    model: CoordinatorModel,
) -> None:
    model.asked(a_join(given(model)))
    assert model.ask(a_commit(("orders", 0, 1))) is Code.UNKNOWN_MEMBER_ID


# --- failover ------------------------------------------------------------------------------------


def test_sessions_begin_anew_after_a_failover(model: CoordinatorModel) -> None:
    leader, follower = stable(model, None, None)
    model.advance(SESSION_MS - 1)
    model.fail_over()
    model.advance(SESSION_MS - 1)
    assert alive(model, leader, follower) == [m.HeartbeatTaken()] * 2
    model.advance(SESSION_MS)
    assert phase(model) == "none"
    assert (stored(model).generation, stored(model).members) == (2, ())


def test_silent_members_of_loaded_group_expire(
    model: CoordinatorModel,
) -> None:
    stable(model, None, "s")
    model.fail_over()
    model.advance(0)
    assert phase(model) == "Stable"
    model.advance(SESSION_MS)
    assert (phase(model), stored(model).members) == ("none", ())


def test_generation_with_only_joins_answered_is_reused(
    model: CoordinatorModel,
) -> None:
    (first,) = stable(model, None)
    second = model.asked(a_join(given(model)))
    again = model.asked(a_join(first.member_id))
    assert joined_by(model, again).generation == 2
    model.fail_over()
    assert model.ask(a_sync(joined_by(model, again))) is Code.ILLEGAL_GENERATION
    assert model.ask(a_sync(joined_by(model, second))) is Code.UNKNOWN_MEMBER_ID
    assert joined_by(model, model.asked(a_join(first.member_id))).generation == 2


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": ""}, 24),
        ({"group_id": "g" * 256}, 24),
        ({"session_timeout_ms": 5_999}, 26),
        ({"session_timeout_ms": 1_800_001}, 26),
        ({"session_timeout_ms": -(2**31)}, 26),
        ({"rebalance_timeout_ms": -1}, 42),
        ({"group_instance_id": ""}, 42),
        ({"protocols": (("range", b"x" * 65_536),)}, 42),
        ({"protocols": (("", b""),) * 1_100}, 42),
        ({"protocols": ()}, 23),
        ({"protocol_type": ""}, 23),
    ],
)
def test_impossible_join_is_refused_and_leaves_nothing(
    model: CoordinatorModel, change: dict[str, object], code: int
) -> None:
    assert model.ask(a_join(**change)) is Code(code)  # type: ignore[arg-type]
    assert model.turn.soft.classic == {}


@pytest.mark.parametrize("change", [{"protocol_type": "connect"}, {"protocols": (("x", b""),)}])
def test_join_without_common_protocol_is_refused(
    model: CoordinatorModel, change: dict[str, object]
) -> None:
    stable(model, None)
    assert model.ask(a_join(**change)) is Code.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert phase(model) == "Stable"


def test_last_member_may_come_with_other_protocols(model: CoordinatorModel) -> None:
    (only,) = stable(model, None)
    op = a_join(only.member_id, protocol_type="connect", protocols=(("x", b""),))
    assert joined_by(model, model.asked(op)).protocol == "x"


def test_group_size_includes_pending_member_ids(
    model: CoordinatorModel,
) -> None:
    settings = model.turn.settings
    fields = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
    model.change(settings=type(settings)(**{**fields, "group_size_max": 2}))
    (first,) = stable(model, None)
    member_id = given(model)
    assert model.ask(a_join()) is Code.GROUP_MAX_SIZE_REACHED
    assert model.ask(a_join(instance="s")) is Code.GROUP_MAX_SIZE_REACHED
    second = model.asked(a_join(member_id))
    model.asked(a_join(first.member_id))
    assert joined_by(model, second).generation == 2
    model.turn.state.memory.seats.capacity = 2
    assert model.ask(a_join(group_id="h")) is Code.GROUP_MAX_SIZE_REACHED


def test_group_with_unstored_start_does_not_begin(model: CoordinatorModel) -> None:
    first, second = given(model), given(model)
    model.refuses = Code.COORDINATOR_NOT_AVAILABLE
    assert model.ask(a_join(first)) is Code.COORDINATOR_NOT_AVAILABLE
    model.refuses = Code.NONE
    assert phase(model) == "Empty"
    token = model.asked(a_join(second))
    model.advance(3_000)
    assert joined_by(model, token).generation == 1


def test_description_of_joining_group_has_no_assignments(
    model: CoordinatorModel,
) -> None:
    stable(model, None)
    model.asked(a_join(given(model)))
    answer = model.ask(o.DescribeGroup(group_id="g"))
    assert isinstance(answer, o.GroupDescribed)
    assert (answer.state, answer.protocol) == ("PreparingRebalance", "")
    assert [one.assignment for one in answer.members] == [b"", b""]
    assert model.ask(o.DeleteGroup(group_id="g")) is Code.NON_EMPTY_GROUP


# --- what no record can hold ------------------------------------------------------------------


@pytest.mark.parametrize("instances", [(None,) * 4, ("s", "t", "u", "v")])
def test_member_of_unstored_generation_is_refused(
    model: CoordinatorModel, instances: tuple[str | None, ...]
) -> None:
    """Also one that was given its id while there was room.  Each generation of such a group failed
    when it was to be stored, and its members began another one, for ever."""
    model.change(record_bytes_max=2_300)
    subscription = (("range", b"x" * 600),)
    ids = [given(model) if instance is None else "" for instance in instances]
    tokens = [
        model.asked(a_join(member_id, instance, protocols=subscription))
        for member_id, instance in zip(ids, instances, strict=True)
    ]
    assert [model.answer(token) for token in tokens[-2:]] == [None, Code.GROUP_MAX_SIZE_REACHED]
    while model.answer(tokens[0]) is None:
        model.advance(3_000)
    leader, *_ = (joined_by(model, token) for token in tokens[:-1])
    assert isinstance(model.ask(a_sync(leader)), m.GroupSynced)
    assert 1_900 < size_of(encode_group_record(stored(model))) <= 2_300


def test_member_metadata_is_bounded_by_a_record(
    model: CoordinatorModel,
) -> None:
    leader, follower = stable(model, None, None)
    group = model.turn.soft.classic["g"]
    size = size_of(encode_group_record(generation_of(model.turn, group)))
    for room, code in ((size - 1, None), (size + 200, Code.GROUP_MAX_SIZE_REACHED)):
        model.change(record_bytes_max=room)
        more = 0 if code is None else 200
        protocols = (("range", b"topics" + b"x" * more),)
        token = model.asked(a_join(leader.member_id, protocols=protocols))
        assert model.answer(token) is code
    model.change(record_bytes_max=size + 600)
    token = model.asked(a_join(follower.member_id, protocols=protocols))
    assert isinstance(model.answer(token), m.GroupJoined)


def test_pending_member_ids_are_bounded_by_group_size(
    model: CoordinatorModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound was asked for where an id is given, when its member has said nothing yet.  The
    group does not wait for who was refused."""
    monkeypatch.setattr("plimsoll_core.groups.classic.join.GROUP_BYTES_MAX", 10_000)
    many = tuple((f"p{n}", b"x" * 1_000) for n in range(4))
    ids = [given(model) for _ in range(4)]
    tokens = [model.asked(a_join(one, protocols=many)) for one in ids]
    assert [model.answer(token) for token in tokens[2:]] == [Code.GROUP_MAX_SIZE_REACHED] * 2
    model.advance(3_000)
    model.advance(6_000)
    assert [joined_by(model, token).generation for token in tokens[:2]] == [1, 1]
    assert (model.turn.soft.classic["g"].size_bytes <= 10_000, model.turn.soft.seats) == (True, 2)


def test_returning_static_members_write_large_group_slowly() -> None:
    """A request of 120 bytes had 900 KB written, as often as it was sent."""
    model = CoordinatorModel(an_image(orders=1), looks_on=True)
    members = begins(model, *(f"s{number}" for number in range(15)))
    leader = next(one for one in members if one.member_id == one.leader)
    parts = {one.member_id.replace("-", "_"): b"x" * 60_000 for one in members}
    model.asked(a_sync(leader, **parts))
    end = len(model.log)
    for _ in range(20):
        model.asked(a_join(instance="s3"))
    assert len(model.log) == end + 1
    assert model.ask(a_join(instance="s4")) == Code.COORDINATOR_LOAD_IN_PROGRESS
    model.advance(900)
    model.asked(a_join(instance="s4"))
    assert len(model.log) == end + 2


def test_static_members_of_ordinary_group_return_at_once() -> None:
    model = CoordinatorModel(an_image(orders=1))
    stable(model, *(f"s{number}" for number in range(3)))
    end = len(model.log)
    for number in range(3):
        model.asked(a_join(instance=f"s{number}"))
        model.advance(1)
    assert len(model.log) == end + 3
