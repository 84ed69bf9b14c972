"""Offsets in transactions: pending until a marker, then committed or dropped; what they hold up."""

from typing import Any

import pytest
from tests.plimsoll_core.groups.coordinator_model import (
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
from plimsoll_core.groups.memory import UNLOADED_BYTES, GroupMemory
from plimsoll_core.groups.offsets import commit
from plimsoll_core.groups.records import OffsetForgotten, OffsetPending
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState
from plimsoll_core.ids import ProducerLife

A, B = ProducerLife(7, 0), ProducerLife(8, 3)
WEEK_MS = 7 * 24 * 3_600_000


def pend(
    model: CoordinatorModel, *offsets: tuple[str, int, int], by: ProducerLife = A, **more: Any
) -> object:
    return model.ask(a_commit(*offsets, producer=by, **more))


def stable(model: CoordinatorModel, *asked: tuple[str, int]) -> list[tuple[int, bool]]:
    answer = model.ask(o.FetchOffsets(group_id="g", partitions=asked, stable=True))
    assert isinstance(answer, o.OffsetsFetched)
    return [(one.offset, one.is_stable) for one in answer.offsets]


@pytest.mark.parametrize(("commits", "left"), [(True, 20), (False, 10)])
def test_marker_decides_pending_offset(model: CoordinatorModel, commits: bool, left: int) -> None:
    model.ask(a_commit(("orders", 0, 10)))
    assert codes(pend(model, ("orders", 0, 20))) == [0]
    for _ in range(2):
        assert fetched(model, ("orders", 0)) == [10]
        assert stable(model, ("orders", 0), ("orders", 1)) == [(-1, False), (-1, True)]
        model.fail_over()
    model.end(A.producer_id, commits=commits)
    for _ in range(2):
        assert stable(model, ("orders", 0)) == [(left, True)]
        model.fail_over()


def test_whole_group_is_fetched_without_unstable_offsets(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("orders", 1, 11)))
    pend(model, ("orders", 0, 20))
    answer = model.ask(o.FetchAllOffsets(group_id="g", stable=True))
    assert isinstance(answer, o.AllOffsetsFetched)
    assert [(one.offset, one.is_stable) for one in answer.offsets()] == [(-1, False), (11, True)]
    plain = model.ask(o.FetchAllOffsets(group_id="g"))
    assert isinstance(plain, o.AllOffsetsFetched)
    assert [one.offset for one in plain.offsets()] == [10, 11]


def test_marker_of_other_producer_decides_nothing(model: CoordinatorModel) -> None:
    pend(model, ("orders", 0, 20))
    pend(model, ("orders", 1, 30), by=B)
    model.end(B.producer_id, commits=True)
    assert stable(model, ("orders", 0), ("orders", 1)) == [(-1, False), (30, True)]
    model.end(99, commits=True)
    assert stable(model, ("orders", 0)) == [(-1, False)]


def test_later_record_of_partition_replaces_pending_one(model: CoordinatorModel) -> None:
    pend(model, ("orders", 0, 20), ("orders", 1, 21))
    model.ask(a_commit(("orders", 0, 30)))
    assert stable(model, ("orders", 0), ("orders", 1)) == [(30, True), (-1, False)]
    model.end(A.producer_id, commits=True)
    assert stable(model, ("orders", 0), ("orders", 1)) == [(30, True), (21, True)]


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_last_record_wins_between_two_transactions(
    model: CoordinatorModel, order: tuple[ProducerLife, ProducerLife]
) -> None:
    pend(model, ("orders", 0, 20), by=A)
    pend(model, ("orders", 0, 30), by=B)
    for one in order:
        model.end(one.producer_id, commits=True)
    assert stable(model, ("orders", 0)) == [(30, True)]


def test_last_record_of_one_transaction_wins(model: CoordinatorModel) -> None:
    pend(model, ("orders", 0, 20))
    pend(model, ("orders", 0, 21))
    assert model.turn.state.pending == {A.producer_id: {"g": 1}}
    model.end(A.producer_id, commits=True)
    assert fetched(model, ("orders", 0)) == [21]


def test_group_of_aborted_offsets_alone_is_gone(model: CoordinatorModel) -> None:
    pend(model, ("orders", 0, 20))
    assert list(model.turn.state.groups) == ["g"]
    model.end(A.producer_id, commits=False)
    state = model.turn.state
    assert (dict(state.groups), state.pending, state.memory.used) == ({}, {}, 0)
    assert state.written_to("g") == len(model.log), "answers wait for the marker"


# --- who may commit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "member", "instance", "code"),
    [
        (3, "m1", None, 0),
        (-1, "", None, 0),
        (2, "m1", None, 22),
        (4, "m1", None, 22),
        (-1, "m1", None, 22),
        (3, "m9", None, 25),
        (3, "s1", "S1", 0),
        (3, "s0", "S1", 82),
    ],
)
def test_transactional_commit_is_fenced_by_generation_and_ids(
    model: CoordinatorModel, generation: int, member: str, instance: str | None, code: int
) -> None:
    store(model, "m1", "s1")
    answer = pend(
        model,
        ("orders", 0, 1),
        generation=generation,
        member_id=member,
        group_instance_id=instance,
    )
    assert (codes(answer) == [0]) if not code else answer == Code(code)


def test_generation_of_missing_group_is_refused(model: CoordinatorModel) -> None:
    assert pend(model, ("orders", 0, 1), generation=1, member_id="m") == Code.ILLEGAL_GENERATION
    pend(model, ("orders", 0, 1))
    assert pend(model, ("orders", 0, 1), generation=1, member_id="m") == Code.UNKNOWN_MEMBER_ID


def test_unknown_partition_is_refused_alone(model: CoordinatorModel) -> None:
    assert codes(pend(model, ("orders", 9, 1), ("orders", 0, 1))) == [3, 0]
    assert len(model.log) == 1
    assert isinstance(model.log[0], OffsetPending)


# --- what pending offsets hold up -----------------------------------------------------------------


def test_pending_offsets_are_not_deleted(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("orders", 1, 11)))
    pend(model, ("orders", 0, 20))
    asked = (("orders", 0), ("orders", 1))
    assert codes(model.ask(o.DeleteOffsets(group_id="g", partitions=asked))) == [88, 0]
    assert model.ask(o.DeleteGroup(group_id="g")) == Code.NON_EMPTY_GROUP
    model.end(A.producer_id, commits=True)
    assert model.ask(o.DeleteGroup(group_id="g")) == o.GroupDeleted()


def test_pending_offsets_do_not_expire() -> None:
    model = CoordinatorModel(an_image(orders=3), GroupSettings(retention_check_ms=WEEK_MS // 7))
    store(model)
    model.ask(a_commit(("orders", 0, 10), ("orders", 1, 11)))
    pend(model, ("orders", 0, 20))
    model.advance(2 * WEEK_MS)
    assert fetched(model, ("orders", 0), ("orders", 1)) == [10, -1]
    assert model.turn.state.groups["g"].stored is not None
    model.end(A.producer_id, commits=False)
    model.advance(WEEK_MS)
    assert model.turn.state.groups == {}


def test_offset_of_deleted_topic_waits_for_transaction(model: CoordinatorModel) -> None:
    model.ask(a_commit(("orders", 0, 10), ("orders", 1, 11)))
    pend(model, ("orders", 0, 20))
    gone = o.ForgetTopics(group_id="g", topic_ids=frozenset({topic_id("orders")}))
    model.submit(gone, None)
    assert model.log[-1] == OffsetForgotten(group_id="g", topic="orders", partition=1)
    model.end(A.producer_id, commits=True)
    model.submit(gone, None)
    assert model.turn.state.groups == {}


# --- bounds --------------------------------------------------------------------------------------


def test_pending_offsets_count_for_group_owner() -> None:
    model = CoordinatorModel(an_image(orders=3))
    assert codes(pend(model, ("orders", 0, 1), principal="User:a")) == [0]
    held = model.turn.state.memory.used
    assert model.turn.state.memory.of_broker.pool.held("User:a") == held
    pend(model, ("orders", 0, 2), principal="User:b")
    assert model.turn.state.memory.used == held
    model.end(A.producer_id, commits=True)
    assert model.turn.state.memory.used < held


def test_full_memory_makes_producers_try_again() -> None:
    model = CoordinatorModel(an_image(orders=3))
    model.change(state=GroupsState(GroupMemory(8_000)))
    assert codes(pend(model, ("orders", 0, 1), ("orders", 1, 1), ("orders", 2, 1))) == [0, 0, 0]
    again = pend(model, ("orders", 0, 2), ("orders", 1, 2), ("orders", 2, 2), by=B)
    assert codes(again)[-1] == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert codes(pend(model, ("orders", 0, 3))) == [0], "it takes no more"


def test_transaction_with_too_many_offsets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "PENDING_MAX", 10)
    model = CoordinatorModel(an_image(orders=11))
    rows = [("orders", index, 1) for index in range(10)]
    assert set(codes(pend(model, *rows))) == {0}
    assert pend(model, ("orders", 0, 2)) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert codes(pend(model, ("orders", 0, 2), by=B)) == [0]
    model.end(A.producer_id, commits=True)
    assert codes(pend(model, ("orders", 0, 3))) == [0]


def test_unloaded_group_leaves_no_pending_offset_behind(model: CoordinatorModel) -> None:
    pend(model, ("orders", 0, 20))
    model.turn.state.unload("g")
    assert model.turn.state.pending == {}
    assert model.turn.state.memory.used == UNLOADED_BYTES
