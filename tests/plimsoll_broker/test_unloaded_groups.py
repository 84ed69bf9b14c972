"""A coordinator that takes over more groups than it has room for: what it serves, refuses, deletes
and loads later."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from tests.plimsoll_broker.coordinating_brokers import (
    Member,
    Members,
    coordinator,
    others,
    replayed,
    successor,
)
from tests.plimsoll_broker.test_replication import until

from plimsoll_broker.coordinator import loader
from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.loader import make_room
from plimsoll_broker.coordinator.rereading import Rereading
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.membership import JoinGroup
from plimsoll_core.groups.memory import UNLOADED_BYTES, GroupMemory
from plimsoll_core.groups.records import OffsetCommitted

BUDGET = 2**17
TEXT = "x" * 4_000
GROUPS = 60
MALLORY, VICTIM = "User:mallory", "User:victim"
LOADS = Code.COORDINATOR_LOAD_IN_PROGRESS


async def commit(member: Member, group: str, principal: str, offset: int, text: str = "") -> object:
    rows = (o.PartitionOffset("t", 0, offset, -1, text),)
    op = o.CommitOffsets(group_id=group, principal=principal, offsets=rows)
    answer = await member.ask(op, group)
    return answer.partitions[0].code if isinstance(answer, o.OffsetsCommitted) else answer


async def taken_over(members: Members, budget: int = BUDGET, groups: int = GROUPS) -> Member:
    """Whoever takes over has less room than the one before, which had no bound that mattered."""
    leader = coordinator(members)
    for member in others(members):
        member.coordinators.memory = GroupMemory(budget)
    for number in range(groups):
        assert await commit(leader, f"m{number}", MALLORY, number, TEXT) is Code.NONE
        if number % 10 == 0:
            assert await commit(leader, f"v{number}", VICTIM, number) is Code.NONE
    return await successor(members, leader)


def used(member: Member) -> int:
    memory = member.coordinators.memory
    assert memory.pool.used == member.shard.state.memory.used
    assert memory.pool.used <= memory.budget
    return memory.pool.used


async def test_coordinator_loads_what_fits_and_forgets_nothing(
    members: Members,
) -> None:
    found = await taken_over(members)
    assert 0 < used(found) <= found.coordinators.memory.pool.capacity
    told = [await found.fetch(f"m{number}") for number in range(GROUPS)]
    assert {one for one in told if one is not LOADS} < set(range(GROUPS))
    assert told.count(LOADS) == len(found.shard.state.unloaded) > GROUPS // 2
    assert [told[n] for n in range(GROUPS) if told[n] is not LOADS] == [
        n for n in range(GROUPS) if told[n] is not LOADS
    ]
    for number in range(0, GROUPS, 10):
        assert await found.fetch(f"v{number}") == number, "who holds little is served"
    assert await commit(found, "v0", VICTIM, 100) is Code.NONE
    assert await commit(found, "new", VICTIM, 1) is Code.NONE
    assert await commit(found, "m.new", MALLORY, 1, TEXT) is Code.INVALID_COMMIT_OFFSET_SIZE


async def test_unloaded_groups_are_deleted_and_make_room(members: Members) -> None:
    found = await taken_over(members)
    unloaded = list(found.shard.state.unloaded)
    gone, left = unloaded[:-5], unloaded[-5:]
    answers = await asyncio.gather(*(found.ask(o.DeleteGroup(group_id=g), g) for g in gone))
    assert set(map(type, answers)) == {o.GroupDeleted}
    log = replayed(found.broker).groups
    assert not set(gone) & set(log)
    assert set(left) < set(log)
    loaded = [group for group in log if group not in left]
    for group in loaded:
        if group.startswith("m"):
            assert await found.ask(o.DeleteGroup(group_id=group), group) == o.GroupDeleted()
    found.coordinators.look_at_unloaded()
    await until(lambda: not found.shard.holds_back)
    for group in left:
        assert await found.fetch(group) == int(group[1:])
    assert await found.ask(o.DeleteGroup(group_id=gone[0]), gone[0]) is Code.GROUP_ID_NOT_FOUND
    used(found)


async def test_groups_with_unfitting_names_are_deletable(members: Members) -> None:
    """So little that not even the names fit: nothing is told of any group that is not loaded, and
    those that were loaded before that are served."""
    found = await taken_over(members, budget=30_000)
    assert found.shard.state.more_unloaded
    used(found)
    assert await found.fetch("never committed") is LOADS
    names = [f"m{number}" for number in range(GROUPS)]
    for name in names:
        answer = await found.ask(o.DeleteGroup(group_id=name), name)
        assert answer in (o.GroupDeleted(), Code.GROUP_ID_NOT_FOUND)
    assert set(replayed(found.broker).groups) == {f"v{n}" for n in range(0, GROUPS, 10)}
    assert await found.fetch("v0") == 0
    assert await found.fetch("m1") is LOADS
    used(found)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("traced")
async def test_oversized_load_takes_only_the_budget(members: Members) -> None:
    """A log of 8 MB, a budget of an eighth of a megabyte."""
    leader = coordinator(members)
    await asyncio.gather(*(commit(leader, f"m{n}", MALLORY, n, TEXT) for n in range(2_000)))
    for member in others(members):
        member.coordinators.memory = GroupMemory(BUDGET)
    await leader.stop()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    found = await successor(members, leader)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    assert used(found) <= BUDGET
    assert found.shard.phase is ShardPhase.ACTIVE
    assert after - before < 2**22


async def test_newcomer_has_room_made_by_whoever_holds_most(members: Members) -> None:
    """What was taken over fits, but for one group more."""
    leader = coordinator(members)
    for number in range(20):
        assert await commit(leader, f"m{number}", MALLORY, number, TEXT) is Code.NONE
    size = leader.coordinators.memory.pool.used
    for member in others(members):
        memory = member.coordinators.memory = GroupMemory(BUDGET)
        memory.pool.capacity = size + 100
        memory.budget = 2 * size
    found = await successor(members, leader)
    assert not found.shard.holds_back
    assert await commit(found, "new", VICTIM, 1) is Code.INVALID_COMMIT_OFFSET_SIZE
    await until(lambda: found.shard.holds_back)
    assert await commit(found, "new", VICTIM, 1) is Code.NONE
    assert found.shard.state.unloaded.keys() < {f"m{number}" for number in range(20)}
    used(found)


async def test_group_forgotten_during_reload_stays_refused(members: Members) -> None:
    """Its other records would make half a group, which answers that it has no offset."""
    shard = coordinator(members).shard
    records = [
        OffsetCommitted(
            group_id="g",
            topic="t",
            partition=index,
            offset=500,
            leader_epoch=-1,
            metadata="",
            commit_ms=1,
            expire_ms=None,
            topic_id=None,
            owner="",
        )
        for index in range(2)
    ]
    for at, record in enumerate(records):
        shard.apply(record, at)
    shard.unload("g")
    shard.rereading = rereading = Rereading(shard, ["g"], keys_alone=False)
    rereading.replay(records[0], 0)
    await make_room([shard], GroupMemory(1))
    rereading.replay(records[1], 1)
    assert not rereading.names
    assert shard.state.is_unloaded("g")
    assert "g" not in shard.state.groups


async def test_reload_reads_commits_of_its_own_turn(members: Members) -> None:
    """A group is unloaded, and at once loaded again, between the decision on a commit and the write
    of its record at the end of that turn."""
    leader = coordinator(members)
    memory, small, large = leader.coordinators.memory, "x" * 2_600, "x" * 4_000
    for group, text in (("large", large), ("small", small)):
        assert await commit(leader, group, MALLORY, 1, text) is Code.NONE
    # Without the small one they take too much; without the large one there is room for it again.
    memory.pool.capacity = (memory.pool.used - 4_400) * 4 // 3
    memory.wants_room = True
    leader.coordinators.look_at_unloaded()
    rows = (o.PartitionOffset("t", 0, 2, -1, small),)
    op = o.CommitOffsets(group_id="small", principal=MALLORY, offsets=rows)
    assert isinstance(await leader.coordinators.ask("small", op).future(), o.OffsetsCommitted)
    await until(lambda: list(leader.shard.state.unloaded) == ["large"])
    assert await leader.fetch("small") == 2


async def test_full_memory_is_searched_once_a_pass(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others hold cannot be unloaded. All groups of the broker were gone through for each
    record: a large log was never loaded."""
    leader = coordinator(members)
    for member in others(members):
        memory = member.coordinators.memory = GroupMemory(BUDGET)
        memory.pool.take("User:other", memory.pool.capacity)
    for number in range(GROUPS):
        assert await commit(leader, f"m{number}", MALLORY, number, TEXT) is Code.NONE
    searches = 0

    async def searched(shards: list[GroupShard], memory: GroupMemory) -> None:
        nonlocal searches
        searches += 1
        await make_room(shards, memory)

    monkeypatch.setattr(loader, "make_room", searched)
    found = await successor(members, leader)
    memory, names = found.coordinators.memory, found.shard.state.unloaded
    assert searches == 2, "at the first record, and at the end"
    assert not found.shard.state.groups
    assert memory.pool.used == memory.pool.capacity + len(names) * UNLOADED_BYTES
    assert [await found.fetch(f"m{number}") for number in (0, GROUPS - 1)] == [LOADS, LOADS]
    memory.pool.give_back("User:other", memory.pool.capacity)
    monkeypatch.undo()
    found.shard.reload_ms = 0
    found.coordinators.look_at_unloaded()
    await until(lambda: bool(found.shard.state.groups))


async def test_unreadable_log_answers_waiting_members(members: Members) -> None:
    """No deadline of a failed shard fires, and its replica may go on to lead."""
    leader = coordinator(members)
    joining = JoinGroup(
        group_id="g",
        new_member_id="m",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        must_know_its_id=False,
    )
    parked = leader.coordinators.ask("g", joining)
    assert not parked.answered
    leader.shard.fail()
    assert parked.answer_value == RefusedAsWhole(Code.NOT_COORDINATOR)
