"""Committed offsets: who may commit, what is fetched, what is deleted, what expires."""

from typing import Any

import pytest
from tests.plimsoll_core.groups.coordinator_model import (
    WALL_MS,
    CoordinatorModel,
    a_commit,
    an_image,
    codes,
    fetched,
    store,
    topic_id,
)

from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.offsets.delete import RECORDS_AT_ONCE
from plimsoll_core.groups.records import (
    GroupForgotten,
    OffsetCommitted,
    OffsetForgotten,
)
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, apply, skip
from plimsoll_core.groups.step import step

DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS


# --- commit and fetch ----------------------------------------------------------------------------


def test_committed_offset_is_fetched_also_after_a_failover(model: CoordinatorModel) -> None:
    assert codes(model.ask(a_commit(("orders", 0, 10), ("orders", 2, 12)))) == [0, 0]
    assert codes(model.ask(a_commit(("orders", 0, 11)))) == [0]
    for _ in range(2):
        assert fetched(model, ("orders", 0), ("orders", 1), ("orders", 2)) == [11, -1, 12]
        model.fail_over()
    answer = model.ask(o.FetchAllOffsets(group_id="g"))
    assert isinstance(answer, o.AllOffsetsFetched)
    assert list(answer.offsets()) == [
        o.FetchedOffset("orders", 0, 11, 7, "m"),
        o.FetchedOffset("orders", 2, 12, 7, "m"),
    ]


def test_unknown_group_has_no_offsets_and_no_error(model: CoordinatorModel) -> None:
    assert fetched(model, ("orders", 0), group="none") == [-1]
    assert model.ask(o.FetchAllOffsets(group_id="none")) == o.AllOffsetsFetched({})


def test_invalid_partitions_of_a_commit_are_refused_alone(
    model: CoordinatorModel,
) -> None:
    long = o.PartitionOffset("orders", 1, 1, -1, "ö" * 2049)
    op = a_commit(("orders", 0, 1), ("orders", 3, 1), ("nothing", 0, 1))
    op = o.CommitOffsets(group_id="g", offsets=(*op.offsets, long))
    assert codes(model.ask(op)) == [0, 3, 3, 12]
    assert len(model.log) == 1


def test_commit_without_valid_partition_writes_nothing(model: CoordinatorModel) -> None:
    assert codes(model.ask(a_commit(("nothing", 0, 1)))) == [3]
    assert model.log == []
    assert model.turn.state.groups == {}


@pytest.mark.parametrize(("tells", "code"), [(False, 22), (True, 69)])
def test_commit_with_generation_to_missing_group_is_refused(
    model: CoordinatorModel, tells: bool, code: int
) -> None:
    op = a_commit(("orders", 0, 1), generation=4, member_id="m", tells_missing_groups=tells)
    assert model.ask(op) == Code(code)
    assert model.log == []


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("member_id", ["", "m"])
def test_commit_with_generation_needs_group_with_members(
    model: CoordinatorModel, tells: bool, member_id: str
) -> None:
    assert codes(model.ask(a_commit(("orders", 0, 1)))) == [0]
    op = a_commit(("orders", 0, 2), generation=4, member_id=member_id, tells_missing_groups=tells)
    assert model.ask(op) == Code.UNKNOWN_MEMBER_ID
    assert fetched(model, ("orders", 0)) == [1]


@pytest.mark.parametrize(
    ("generation", "member", "instance", "code"),
    [
        (3, "m1", None, 0),
        (2, "m1", None, 22),
        (4, "m1", None, 22),
        (3, "m9", None, 25),
        (-1, "", None, 25),
        (-1, "m1", None, 22),
        (3, "s1", "S1", 0),
        (3, "s0", "S1", 82),
        (3, "s1", "S2", 25),
    ],
)
def test_commit_of_member_requires_generation_and_ids(
    model: CoordinatorModel, generation: int, member: str, instance: str | None, code: int
) -> None:
    store(model, "m1", "s1")
    op = a_commit(
        ("orders", 0, 1), generation=generation, member_id=member, group_instance_id=instance
    )
    answer = model.ask(op)
    assert (codes(answer) == [0]) if code == 0 else (answer == Code(code))


def test_emptied_group_accepts_commits_without_member(model: CoordinatorModel) -> None:
    store(model)
    assert codes(model.ask(a_commit(("orders", 0, 1)))) == [0]
    assert model.ask(a_commit(("orders", 0, 1), generation=3, member_id="m")) == Code(25)


def test_groups_beyond_the_bound_are_refused(
    model: CoordinatorModel,
) -> None:
    model.turn.state.memory.groups.capacity = 2
    assert codes(model.ask(a_commit(("orders", 0, 1)))) == [0]
    refused = model.ask(a_commit(("orders", 0, 1), group="other"))
    assert refused is Code.INVALID_COMMIT_OFFSET_SIZE
    assert codes(model.ask(a_commit(("orders", 0, 2)))) == [0]


# --- topics that are gone ------------------------------------------------------------------------


def test_recreated_topic_does_not_inherit_committed_offset(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    image = an_image(other=3)
    known = {"orders": topic_id("other")}
    model.change(
        image=type(image)(**{**_fields(image), "topic_ids": image.topic_ids.update(known)})
    )
    assert fetched(model, ("orders", 0)) == [-1]


def _fields(image: Any) -> dict[str, Any]:
    return {name: getattr(image, name) for name in image.__struct_fields__}


def test_coordinator_with_old_metadata_omits_unknown_topics(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    model.change(image=an_image(bills=1), image_is_fresh=False)
    asked = o.FetchOffsets(group_id="g", partitions=(("orders", 0),))
    assert model.ask(asked) is Code.COORDINATOR_LOAD_IN_PROGRESS
    model.change(image_is_fresh=True)
    assert fetched(model, ("orders", 0)) == [-1]


def test_offsets_of_topics_that_are_gone_are_forgotten(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("bills", 0, 1)))
    gone = frozenset({topic_id("orders")})
    model.submit(o.ForgetTopics(group_id="g", topic_ids=gone), None)
    model.submit(o.ForgetTopics(group_id="none", topic_ids=gone), None)
    assert model.log[2:] == [OffsetForgotten(group_id="g", topic="orders", partition=0)]


# --- delete --------------------------------------------------------------------------------------


def test_repeated_offset_deletion_is_no_error(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("orders", 1, 11)))
    op = o.DeleteOffsets(group_id="g", partitions=(("orders", 0), ("orders", 0), ("bills", 0)))
    assert codes(model.ask(op)) == [0, 0, 0]
    assert len(model.log) == 3
    assert codes(model.ask(op)) == [0, 0, 0]
    assert fetched(model, ("orders", 0), ("orders", 1)) == [-1, 11]


def test_offset_deletion_requires_an_empty_group(
    model: CoordinatorModel,
) -> None:
    op = o.DeleteOffsets(group_id="g", partitions=(("orders", 0),))
    assert model.ask(op) is Code.GROUP_ID_NOT_FOUND
    store(model, "m1")
    assert codes(model.ask(op)) == [86]


def test_deleted_group_leaves_tombstones_for_everything(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("bills", 0, 11)))
    store(model)
    assert model.ask(o.DeleteGroup(group_id="g")) == o.GroupDeleted()
    assert model.log[3:] == [
        OffsetForgotten(group_id="g", topic="orders", partition=0),
        OffsetForgotten(group_id="g", topic="bills", partition=0),
        GroupForgotten(group_id="g"),
    ]
    assert model.turn.state.groups == {}
    assert model.ask(o.DeleteGroup(group_id="g")) is Code.GROUP_ID_NOT_FOUND


def test_group_with_members_is_not_deleted(model: CoordinatorModel) -> None:
    store(model, "m1")
    assert model.ask(o.DeleteGroup(group_id="g")) is Code.NON_EMPTY_GROUP


# --- what an answer waits for --------------------------------------------------------------------


def test_answers_about_group_wait_for_its_last_record(model: CoordinatorModel) -> None:
    state = model.turn.state
    model.ask(a_commit(("orders", 0, 1)))
    model.ask(a_commit(("orders", 0, 1), group="other"))
    assert (state.written_to("g"), state.written_to("other"), state.written_to("no")) == (1, 2, 0)
    assert state.written_to(None) == 2
    skip(state, 5)
    assert (state.written_to("other"), state.written_to(None)) == (2, 6)


def test_answers_about_deleted_group_wait_for_tombstone(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 1)))
    model.ask(o.DeleteGroup(group_id="g"))
    state = model.turn.state
    assert (state.groups, state.written_to("g")) == ({}, 2)
    state.committed(1)
    assert state.written_to("g") == 2
    state.committed(2)
    assert state.written_to("g") == 0
    model.ask(a_commit(("orders", 0, 1)))
    assert (state.written_to("g"), state.offsets) == (3, 1)


def test_tombstones_of_missing_entries_are_applied() -> None:
    state = GroupsState()
    apply(state, OffsetForgotten(group_id="g", topic="t", partition=0), 4)
    apply(state, GroupForgotten(group_id="h"), 5)
    assert (state.groups, state.written_to("g"), state.written_to("h")) == ({}, 5, 6)


def test_step_that_answers_nobody_raises(
    model: CoordinatorModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plimsoll_core.coordination.outcome import CoordinatorOutcome
    from plimsoll_core.groups import step as module

    rules = {o.FetchAllOffsets: lambda turn, op, token: CoordinatorOutcome(key="g")}
    monkeypatch.setattr(module, "_RULES", rules)
    with pytest.raises(AssertionError, match="no reply to"):
        step(model.turn, o.FetchAllOffsets(group_id="g"), object())


# --- retention -----------------------------------------------------------------------------------


def test_offset_expires_a_week_after_its_commit(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    model.advance(DAY_MS)
    model.ask(a_commit(("orders", 1, 11)))
    for _ in range(6):
        model.advance(DAY_MS)
    assert fetched(model, ("orders", 0), ("orders", 1)) == [-1, 11]
    model.advance(DAY_MS)
    assert model.turn.state.groups == {}
    model.advance(DAY_MS)
    assert len(model.turn.soft.deadlines) == 0


def test_retention_of_a_commit_is_its_own(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), retention_ms=1_000))
    model.advance(600_000)
    assert fetched(model, ("orders", 0)) == [-1]


def test_offsets_of_group_with_members_do_not_expire(
    model: CoordinatorModel,
) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    store(model, "m1")
    model.advance(2 * WEEK_MS)
    assert fetched(model, ("orders", 0)) == [10]
    store(model, state_ms=WALL_MS + 2 * WEEK_MS)
    model.advance(WEEK_MS - 1)
    assert fetched(model, ("orders", 0)) == [10]
    model.advance(600_000)
    assert model.turn.state.groups == {}
    assert model.log[-1] == GroupForgotten(group_id="g")


def test_nothing_expires_while_the_clock_is_not_believed(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    store(model)
    model.change(believed_ms=None)
    model.advance(2 * WEEK_MS)
    assert fetched(model, ("orders", 0)) == [10]


def test_old_offsets_expire_in_portions(model: CoordinatorModel) -> None:
    for index in range(RECORDS_AT_ONCE + 1):
        record = OffsetCommitted(
            group_id="g", topic="t", partition=index, offset=1, commit_ms=WALL_MS - 2 * WEEK_MS
        )
        apply(model.turn.state, record, index)
        model.log.append(record)
    model.fail_over()
    model.advance(600_000)
    assert model.turn.state.offsets == 1
    model.advance(100)
    assert model.turn.state.groups == {}


def test_groups_are_looked_at_again_after_a_failover(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    model.advance(WEEK_MS - 1_000)
    model.fail_over()
    model.advance(600_000)
    assert model.turn.state.groups == {}


# --- settings ------------------------------------------------------------------------------------


def test_settings_are_read_from_kafkas_configs() -> None:
    assert GroupSettings.of({}) == GroupSettings()
    read = GroupSettings.of({"offsets.retention.minutes": "1", "offset.metadata.max.bytes": "9"})
    assert (read.retention_ms, read.metadata_bytes_max) == (60_000, 9)
