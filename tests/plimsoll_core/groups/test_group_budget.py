"""The memory of groups: who may hold how much, what is refused, and what goes through always."""

import gc
import tracemalloc
from typing import Any

import pytest
from tests.plimsoll_core.groups.classic_members import a_join
from tests.plimsoll_core.groups.coordinator_model import (
    CoordinatorModel,
    an_image,
    codes,
    fetched,
)

from plimsoll_core.errors import Code
from plimsoll_core.groups import membership as m
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.memory import GroupMemory
from plimsoll_core.groups.record_rate import BURST_BYTES, BYTES_PER_S, RecordRate
from plimsoll_core.groups.records import OffsetCommitted
from plimsoll_core.groups.state import GroupsState, apply
from plimsoll_core.groups.step import loaded_again

MALLORY, VICTIM = "User:mallory", "User:victim"
TEXT = "x" * 4_000
TOO_MUCH = Code.INVALID_COMMIT_OFFSET_SIZE


def a_model(budget: int) -> CoordinatorModel:
    model = CoordinatorModel(an_image(orders=50))
    model.change(state=GroupsState(GroupMemory(budget)))
    return model


def commit(
    model: CoordinatorModel, group: str, principal: str, *indexes: int, text: str = TEXT
) -> set[int]:
    rows = tuple(o.PartitionOffset("orders", index, 7, -1, text) for index in indexes)
    answer = model.ask(o.CommitOffsets(group_id=group, principal=principal, offsets=rows))
    return {int(answer)} if isinstance(answer, Code) else set(codes(answer))


def fill(model: CoordinatorModel, principal: str) -> int:
    """How many groups the principal begins until it is refused."""
    for number in range(1_000):
        if commit(model, f"{principal}.{number}", principal, *range(10)) != {0}:
            return number
    raise AssertionError("nothing bounds it")


def join(model: CoordinatorModel, group: str, principal: str, **more: Any) -> object:
    """What one hears that joins without an id."""
    token = model.asked(a_join(group_id=group, principal=principal, must_know_its_id=False, **more))
    return model.answer(token)


def test_principal_alone_holds_half_and_others_find_room() -> None:
    model = a_model(2**20)
    pool = model.turn.state.memory.of_broker.pool
    assert 5 <= fill(model, MALLORY) <= 20
    assert pool.held(MALLORY) <= pool.capacity // 2
    assert commit(model, "orders", VICTIM, *range(50), text="") == {0}
    assert join(model, "shop", VICTIM) is None, "it waits for others"
    assert pool.refused > 0
    assert pool.used <= pool.capacity


def test_commits_of_equal_size_continue_beyond_the_share() -> None:
    model = a_model(2**20)
    last = f"{MALLORY}.{fill(model, MALLORY) - 1}"
    assert commit(model, last, MALLORY, *range(10)) == {0}
    assert commit(model, last, MALLORY, *range(10), text="") == {0}
    assert commit(model, f"{MALLORY}.0", MALLORY, *range(50)) == {0, TOO_MUCH}


def test_deletions_succeed_beyond_the_share() -> None:
    model = a_model(2**20)
    groups = fill(model, MALLORY)
    rows = tuple(("orders", index) for index in range(10))
    answer = model.ask(o.DeleteOffsets(group_id=f"{MALLORY}.0", partitions=rows))
    assert set(codes(answer)) == {0}
    for number in range(1, groups):
        assert model.ask(o.DeleteGroup(group_id=f"{MALLORY}.{number}")) == o.GroupDeleted()
    refused = model.turn.state.groups
    for group_id in list(refused):  # the one of whose offsets a part was refused
        assert model.ask(o.DeleteGroup(group_id=group_id)) == o.GroupDeleted()
    pool = model.turn.state.memory.of_broker.pool
    assert (pool.used, pool.principals) == (0, 0)
    assert fill(model, MALLORY) == groups


def test_offsets_expire_beyond_the_share() -> None:
    model = a_model(2**20)
    fill(model, MALLORY)
    model.advance(8 * 24 * 3_600_000)
    assert model.turn.state.memory.of_broker.pool.used == 0


def test_group_counts_to_its_creator_after_failover() -> None:
    model = a_model(2**20)
    commit(model, "g", MALLORY, 0)
    commit(model, "g", VICTIM, 1)
    model.fail_over()
    pool = model.turn.state.memory.of_broker.pool
    assert (pool.held(MALLORY) > 0, pool.held(VICTIM)) == (True, 0)
    assert pool.held(MALLORY) == pool.used


def test_group_of_older_release_counts_to_its_writer() -> None:
    model = a_model(2**20)
    model.change(believed_ms=None)
    commit(model, "g", "", 0, 1)
    pool = model.turn.state.memory.of_broker.pool
    assert pool.held("") == pool.used > 0
    commit(model, "g", VICTIM, 0)
    assert pool.held(VICTIM) == pool.used > 0


def test_members_beyond_the_share_are_refused() -> None:
    model = a_model(2**20)
    heard: list[object] = []
    for number in range(40):
        big = (("range", b"t" * 60_000),)
        heard.append(join(model, "g", MALLORY, protocols=big, client_id=f"c{number}"))
    assert heard[0] is None
    assert heard[-1] is Code.GROUP_MAX_SIZE_REACHED
    pool = model.turn.state.memory.of_broker.pool
    assert pool.used <= pool.capacity // 2
    assert join(model, "h", VICTIM) is None


def test_ids_given_out_beyond_the_share_are_refused() -> None:
    """Each stands for a member that may come."""
    model = a_model(2**17)
    heard = [model.ask(a_join(group_id=f"g{n}", principal=MALLORY)) for n in range(40)]
    assert isinstance(heard[0], m.MemberIdGiven)
    assert heard[-1] is Code.GROUP_MAX_SIZE_REACHED
    assert isinstance(model.ask(a_join(group_id="h", principal=VICTIM)), m.MemberIdGiven)
    model.advance(60_000)
    assert model.turn.state.memory.of_broker.pool.used == 0, "nobody came"


def test_assignments_beyond_the_share_force_another_generation() -> None:
    model = a_model(2**18)
    token = model.asked(a_join(principal=MALLORY, must_know_its_id=False))
    model.advance(3_000)
    told = model.answer(token)
    assert isinstance(told, m.GroupJoined)
    sync = m.SyncGroup(
        group_id="g",
        member_id=told.member_id,
        generation=1,
        assignments=((told.member_id, b"a" * 2**18),),
    )
    assert model.ask(sync) is Code.GROUP_MAX_SIZE_REACHED
    small = m.SyncGroup(
        group_id="g",
        member_id=told.member_id,
        generation=1,
        assignments=((told.member_id, b"a"),),
    )
    assert isinstance(model.ask(small), m.GroupSynced)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", TEXT, "x" * 1_000 + "\N{FACE WITH TEARS OF JOY}"])
def test_account_covers_what_offsets_take(text: str) -> None:
    """One character beyond others makes each of a string take four bytes."""
    gc.collect()
    tracemalloc.start()
    state = GroupsState()
    for number in range(600):
        record = OffsetCommitted(
            group_id=f"group-{number // 3}",
            topic=f"topic-{number % 3}",
            partition=number,
            offset=10**9 + number,
            metadata=f"{text}{number}",
            commit_ms=1_700_000_000_000 + number,
            owner=MALLORY,
        )
        apply(state, record, number)
    del record
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used <= state.memory.used <= 3 * used


# --- groups for which there is no room ------------------------------------------------------------


def unloaded(model: CoordinatorModel) -> CoordinatorModel:
    """Group g is in the log and not in memory."""
    commit(model, "g", MALLORY, 0, 1, text="")
    commit(model, "h", VICTIM, 0, text="")
    model.turn.state.unload("g")
    model.looks_on = True
    return model


@pytest.mark.parametrize(
    "op",
    [
        o.FetchOffsets(group_id="g", partitions=(("orders", 0),)),
        o.FetchAllOffsets(group_id="g"),
        o.CommitOffsets(group_id="g", offsets=(o.PartitionOffset("orders", 0, 1, -1, ""),)),
        o.DeleteOffsets(group_id="g", partitions=(("orders", 0),)),
        o.DescribeGroup(group_id="g"),
        a_join(group_id="g"),
        m.MemberHeartbeat(group_id="g", member_id="m", generation=1),
        m.LeaveGroup(group_id="g", members=(m.Leaver("m"),)),
    ],
    ids=lambda op: type(op).__name__,
)
def test_unloaded_group_is_refused_until_loaded(op: Any) -> None:
    model = unloaded(a_model(2**20))
    before = model.turn.state.memory.used
    assert model.ask(op) is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert model.turn.state.memory.used == before
    assert fetched(model, ("orders", 0), group="h") == [7]


def test_group_that_is_not_loaded_is_listed() -> None:
    model = unloaded(a_model(2**20))
    answer = model.ask(o.ListGroups())
    assert isinstance(answer, o.GroupsListed)
    assert {(one.group_id, one.state) for one in answer.groups} == {
        ("h", "Empty"),
        ("g", "Unknown"),
    }


def test_names_that_are_forgotten_leave_no_group_unknown() -> None:
    model = unloaded(a_model(2**20))
    model.turn.state.forget_unloaded()
    assert model.ask(o.DescribeGroup(group_id="g")) is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(model, "new", VICTIM, 0) == {Code.COORDINATOR_LOAD_IN_PROGRESS}
    assert fetched(model, ("orders", 0), group="h") == [7]


def test_group_that_is_loaded_again_is_served() -> None:
    model = unloaded(a_model(2**20))
    for offset, record in enumerate(model.log):
        if getattr(record, "group_id", "") == "g":
            apply(model.turn.state, record, offset)
    assert model.ask(o.DescribeGroup(group_id="g")) is Code.COORDINATOR_LOAD_IN_PROGRESS
    loaded_again(model.turn, "g")
    assert fetched(model, ("orders", 1)) == [7]
    assert model.ask(o.DeleteGroup(group_id="g")) == o.GroupDeleted()
    assert model.ask(o.DeleteGroup(group_id="h")) == o.GroupDeleted()
    assert model.turn.state.memory.used == 0


def test_owner_over_its_rate_of_records_waits() -> None:
    """Commits of one tenant filled the brokers' disks, and it held nothing of them."""
    model = a_model(2**20)
    rate = model.turn.state.memory.of_broker.rate
    assert commit(model, "g", MALLORY, 0) == {0}
    rate.charge(MALLORY, BURST_BYTES + 1, model.turn.now_ms)
    loads = {int(Code.COORDINATOR_LOAD_IN_PROGRESS)}
    assert commit(model, "g", MALLORY, 0) == loads
    assert commit(model, "g", VICTIM, 0) == loads, "the group is charged to its owner"
    assert join(model, "g2", MALLORY) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(model, "v", VICTIM, 0) == {0}
    model.advance(1)
    assert commit(model, "g", MALLORY, 0) == {0}
    assert rate.refused == 3


def test_rate_remembers_recent_principals_only() -> None:
    rate = RecordRate()
    for number in range(5_000):
        rate.charge(f"User:{number}", 1, number)
    assert len(rate._level) <= 1_000
    rate.charge(MALLORY, BURST_BYTES + BYTES_PER_S, 10_000)
    assert not rate.admits(MALLORY, 10_999)
    assert rate.admits(MALLORY, 11_000)
