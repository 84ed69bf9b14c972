"""Offsets in transactions on real data paths: in batches of their transaction, decided by markers
that go through the shard, and found again by a successor and by a later pass."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_broker.coordinating_brokers import (
    TOPIC,
    Member,
    Members,
    coordinator,
    replayed,
    successor,
)

from plimsoll_broker.coordinator.rereading import Rereading
from plimsoll_broker.replication.transactional_appends import MarkerWriter, PartitionMarker
from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.records import OffsetCommitted, OffsetPending, TransactionMarked
from plimsoll_core.groups.state import GroupsState, apply, mark
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_wire.batches import iter_headers
from plimsoll_wire.control_records import EndMarker

A = ProducerLife(7, 0)


def verify(member: Member, producer: ProducerLife) -> None:
    """As the transaction's coordinator would confirm it."""
    verified = member.shard.leader.verified
    verified.end(producer.producer_id, verified.begin(producer), confirmed=True)


async def pend(member: Member, offset: int, producer: ProducerLife = A) -> object:
    rows = (o.PartitionOffset("t", 0, offset, -1, ""),)
    op = o.CommitOffsets(group_id="g", offsets=rows, producer=producer)
    answer = await member.ask(op)
    return answer.partitions[0].code if isinstance(answer, o.OffsetsCommitted) else answer


async def end(member: Member, *, commits: bool, producer: ProducerLife = A) -> Code:
    marker = PartitionMarker(TopicPartition(TOPIC, 0), producer, EndMarker(commits, 0))
    ((_, code),) = await MarkerWriter(member.broker.manager).write([marker])
    return code


async def test_unverified_offsets_are_refused(members: Members) -> None:
    leader = coordinator(members)
    assert await pend(leader, 10) is Code.COORDINATOR_NOT_AVAILABLE
    assert leader.shard.state.groups == {}


async def test_pending_offsets_stand_in_batches_of_transaction(members: Members) -> None:
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    verify(leader, A)
    assert await pend(leader, 20) is Code.NONE
    assert await leader.fetch() == 10
    headers = list(iter_headers(bytes(leader.broker.bytes_of(TOPIC))))
    assert [one.producer_id for one in headers if one.is_transactional] == [A.producer_id]
    assert leader.shard.state.groups == replayed(leader.broker).groups


@pytest.mark.parametrize(("commits", "left"), [(True, 20), (False, 10)])
async def test_marker_decides_here_and_at_successor(
    members: Members, commits: bool, left: int
) -> None:
    leader = coordinator(members)
    await leader.commit(10)
    verify(leader, A)
    await pend(leader, 20)
    assert await end(leader, commits=commits) is Code.NONE
    assert await leader.fetch() == left
    assert leader.shard.state.groups == replayed(leader.broker).groups
    found = await successor(members, leader)
    assert await found.fetch() == left


async def test_successor_finds_open_transaction(members: Members) -> None:
    leader = coordinator(members)
    await leader.commit(10)
    verify(leader, A)
    await pend(leader, 20)
    found = await successor(members, leader)
    assert await found.fetch() == 10
    assert await pend(found, 21) is Code.NONE, "it is part of the transaction"
    assert await end(found, commits=True) is Code.NONE
    assert await found.fetch() == 21


async def test_marker_withdraws_verification_of_late_offsets(members: Members) -> None:
    leader = coordinator(members)
    verify(leader, A)
    await pend(leader, 20)
    await end(leader, commits=True)
    assert await pend(leader, 21) is Code.COORDINATOR_NOT_AVAILABLE
    await end(leader, commits=False, producer=ProducerLife(7, 1))
    assert await pend(leader, 21) is Code.INVALID_PRODUCER_EPOCH
    assert await leader.fetch() == 20


# --- passes that read unloaded groups again ------------------------------------------------------


def pending(index: int, offset: int) -> OffsetPending:
    commit = OffsetCommitted(
        group_id="g", topic="t", partition=index, offset=offset, commit_ms=0, owner="User:a"
    )
    return OffsetPending(producer=A, commit=commit)


def test_marker_during_pass_decides_what_pass_reads_later() -> None:
    state, whole = GroupsState(), GroupsState()
    shard: Any = SimpleNamespace(
        state=state, apply=lambda record, offset: apply(state, record, offset)
    )
    commit = TransactionMarked(producer_id=A.producer_id, commits=True)
    for offset, record in enumerate([pending(0, 20), pending(1, 21)]):
        apply(whole, record, offset)
    mark(whole, commit, 9)
    apply(state, pending(0, 20), 0)
    state.unload("g")
    rereading = Rereading(shard, ["g"], keys_alone=False)
    rereading.replay(pending(0, 20), 0)
    rereading.mark_later(commit, 9)
    assert mark(state, commit, 9, lambda one: not rereading.reads(one)) == []
    rereading.replay(pending(1, 21), 1)
    rereading.end()
    state.loaded_again("g")
    assert state.groups == whole.groups
    assert state.pending == {}
    assert not rereading.reads("g"), "later markers are applied at once"
