"""Shards that load: what is held, what is refused, what is stepped over."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.plimsoll_broker.coordinating_brokers import (
    TOPIC,
    Member,
    Members,
    coordinator,
    others,
    successor,
)
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import kill, until
from tests.plimsoll_broker.trio import WAIT_S
from tests.plimsoll_core.groups.classic_members import a_join

from plimsoll_broker.coordinator.coordinator_shard import QueuedRecord
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import CloseRequest
from plimsoll_wire.record_sets import KeyValue
from plimsoll_wire.versioned_fields import UnknownKeyedRecord


async def read_slowly(
    members: Members, monkeypatch: pytest.MonkeyPatch, groups: int
) -> list[Member]:
    """The coordinator is killed; who takes over has each record's turn of the event loop."""
    leader = coordinator(members)
    await asyncio.gather(*(leader.commit(n, f"g{n}") for n in range(groups)))
    monkeypatch.setattr("plimsoll_broker.coordinator.shard_log.SLICE_S", 0.0)
    survivors = others(members)
    await leader.stop()
    await kill(leader.broker)
    return survivors


async def loading(survivors: list[Member]) -> Member:
    """Who has read a part of it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for member in survivors:
                if member.coordinators.shards() and member.shard.state.groups:
                    assert not member.active
                    return member
            await asyncio.sleep(0)


async def test_loading_shard_holds_operations_and_reveals_nothing(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = await loading(await read_slowly(members, monkeypatch, 200))
    hear_controller(loads.broker)
    told: list[str] = []

    async def tell(name: str, asked: Any) -> object:
        answer = await asked
        assert loads.active
        told.append(name)
        return answer

    asked = [
        asyncio.ensure_future(work)
        for work in (
            tell("commit", loads.commit(500, "g199")),
            tell("fetch", loads.fetch("g199")),
            tell("another group's", loads.fetch("g0")),
        )
    ]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(one.done() for one in asked)
    assert await asyncio.gather(*asked) == [Code.NONE, 500, 0]
    assert sorted(told) == ["another group's", "commit", "fetch"]


@pytest.fixture
async def stalled(members: Members) -> AsyncIterator[tuple[Member, asyncio.Event]]:
    """A coordinator that took over, and what its load waits for."""
    may_load, survivors = asyncio.Event(), others(members)
    leader = coordinator(members)
    assert await leader.commit(7) is Code.NONE
    for member in survivors:
        member.broker.manager.flusher.make_durable = lambda *_: may_load.wait()  # type: ignore
    await leader.stop()
    await kill(leader.broker)
    await until(lambda: any(member.coordinators.shards() for member in survivors))
    (found,) = [member for member in survivors if member.coordinators.shards()]
    hear_controller(found.broker)
    yield found, may_load
    may_load.set()


Stalled = tuple[Member, asyncio.Event]


async def test_operations_held_long_by_load_are_refused(
    stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, may_load = stalled
    monkeypatch.setattr("plimsoll_broker.coordinator.coordinator_shard.HELD_MS_MAX", 50)
    assert await member.commit(8) is Code.COORDINATOR_LOAD_IN_PROGRESS
    may_load.set()
    await until(lambda: member.active)
    assert await member.fetch() == 7


async def test_operations_beyond_load_capacity_are_refused(
    stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, may_load = stalled
    monkeypatch.setattr("plimsoll_broker.coordinator.coordinator_shard.HELD_MAX", 2)
    held = [asyncio.ensure_future(member.fetch()) for _ in range(2)]
    await asyncio.sleep(0)
    assert await member.fetch() is Code.COORDINATOR_LOAD_IN_PROGRESS
    may_load.set()
    assert await asyncio.gather(*held) == [7, 7]


async def test_held_operations_are_refused_when_shard_leaves(
    stalled: Stalled,
) -> None:
    member, _ = stalled
    held = asyncio.ensure_future(member.commit(8))
    await asyncio.sleep(0)
    member.coordinators.close()
    assert await held is Code.NOT_COORDINATOR


async def test_held_join_is_withdrawn_with_its_client(
    stalled: Stalled,
) -> None:
    member, may_load = stalled
    asker = member.coordinators.ask("g", a_join(must_know_its_id=False))
    member.coordinators.order("g", CloseRequest(group_id="g", token=asker))
    may_load.set()
    await until(lambda: member.active and asker.answered)
    await until(lambda: member.shard.soft.seats == 0)


@pytest.mark.parametrize("record", [KeyValue(b"\0\1\0\5g", b"x"), KeyValue(b"\0", None)])
async def test_unreadable_shard_fails_and_reveals_no_part(
    members: Members, record: KeyValue
) -> None:
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    shard = leader.shard
    shard._appends.add([QueuedRecord(record, None)])
    shard.state.end += 1
    end = shard.state.end
    await until(lambda: all(m.broker.hosted(TOPIC).log.log_end_offset == end for m in members))
    await leader.stop()
    await kill(leader.broker)

    survivors = [member for member in members if member is not leader]
    await until(lambda: any(m.broker.hosted(TOPIC).replica.failed for m in survivors))
    for member in survivors:
        assert await member.fetch() is Code.NOT_COORDINATOR


async def test_records_of_newer_release_are_skipped_at_load(members: Members) -> None:
    leader = coordinator(members)
    leader.shard._appends.add([QueuedRecord(KeyValue(b"\0\x63new", b"x"), None)])
    leader.shard.skip(0)
    assert await leader.commit(10) is Code.NONE
    found = await successor(members, leader)
    assert await found.fetch() == 10
    assert found.shard.unknown == {UnknownKeyedRecord(0x63, None)}
