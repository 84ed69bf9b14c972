"""Shards of groups on three data paths: what is told, when, and by whom."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_broker.coordinating_brokers import (
    TOPIC,
    Members,
    coordinator,
    others,
    replayed,
    successor,
)
from tests.plimsoll_broker.test_lease import hear_controller, pass_time
from tests.plimsoll_broker.test_replication import kill, until
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import TopicRemoved
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups import record_rate
from plimsoll_wire.batches import iter_headers


def batches(broker: Broker) -> int:
    return len(list(iter_headers(bytes(broker.bytes_of(TOPIC)))))


def cut_off(members: Members) -> list[Callable[[], Any]]:
    """No follower fetches any more: the high watermark is frozen."""
    return [member.broker.path.fetchers.close for member in others(members)]


async def test_commit_is_answered_once_isr_has_it(members: Members) -> None:
    leader = coordinator(members)
    assert await leader.fetch() == -1
    assert await leader.commit(10) is Code.NONE
    for member in others(members):
        assert member.broker.hosted(TOPIC).log.log_end_offset == 1
    assert await leader.fetch() == 10
    assert leader.shard.state.groups == replayed(leader.broker).groups


async def test_owner_of_group_is_charged_for_its_records(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_rate, "BYTES_PER_S", 0)
    leader = coordinator(members)
    rows = (o.PartitionOffset("t", 0, 1, -1, "x" * 1_000),)
    op = o.CommitOffsets(group_id="g", principal="User:mallory", offsets=rows)
    assert isinstance(await leader.ask(op), o.OffsetsCommitted)
    broker = leader.broker.manager
    written = leader.shard.state.memory.of_broker.rate.charged("User:mallory", broker.now_ms())
    assert 1_000 < written < 2_000
    assert broker.disk_shares._recorded["User:mallory"] >= written


async def test_committed_offset_survives_coordinator_change(
    members: Members,
) -> None:
    leader = coordinator(members)
    for offset in (10, 11, 12):
        assert await leader.commit(offset) is Code.NONE
    found = await successor(members, leader)
    assert await found.fetch() == 12
    assert await leader.fetch() is Code.NOT_COORDINATOR
    assert await found.commit(13) is Code.NONE
    assert await found.fetch() == 13


async def test_broker_without_partition_is_not_the_coordinator(
    members: Members,
) -> None:
    for member in others(members):
        assert await member.fetch() is Code.NOT_COORDINATOR
        assert await member.commit(1) is Code.NOT_COORDINATOR


async def test_uncommitted_state_is_hidden_from_its_group(members: Members) -> None:
    leader = coordinator(members)
    assert await leader.commit(10, "still") is Code.NONE
    leader.shard._commit_timeout_ms = 300
    for close in cut_off(members):
        await close()
    committing = asyncio.ensure_future(leader.commit(10))
    await asyncio.sleep(0)
    assert await leader.fetch("still") == 10, "it has nothing that is not committed"
    assert await leader.fetch() is Code.COORDINATOR_NOT_AVAILABLE
    assert await committing is Code.COORDINATOR_NOT_AVAILABLE
    assert await leader.ask(o.ListGroups()) is Code.COORDINATOR_NOT_AVAILABLE


async def test_coordinator_that_lost_its_lease_refuses_offset_fetch(members: Members) -> None:
    """Another may coordinate the group by now; who commits needs no lease, but a quorum."""
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    for close in cut_off(members):
        await close()
    pass_time(leader.broker)
    assert await leader.fetch() is Code.NOT_COORDINATOR
    assert await leader.ask(o.DescribeGroup(group_id="g")) is Code.NOT_COORDINATOR
    hear_controller(leader.broker)
    assert await leader.fetch() == 10


async def test_commit_below_min_isr_is_refused(members: Members, controller: Controller) -> None:
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    for member in others(members):
        await member.stop()
        await kill(member.broker)
    replica = leader.broker.hosted(TOPIC).replica
    await until(lambda: replica.leader is not None and len(replica.leader.isr.committed) < 2)
    assert await leader.commit(11) is Code.COORDINATOR_NOT_AVAILABLE
    hear_controller(leader.broker)
    assert await leader.fetch() == 10
    assert leader.broker.hosted(TOPIC).log.log_end_offset == 1


async def test_operations_of_one_turn_are_one_batch(members: Members) -> None:
    leader = coordinator(members)
    answers = await asyncio.gather(*(leader.commit(n, f"g{n}") for n in range(50)))
    assert set(answers) == {Code.NONE}
    assert batches(leader.broker) == 1
    assert leader.shard.state.groups == replayed(leader.broker).groups


async def test_turn_too_large_for_a_batch_is_split(members: Members) -> None:
    leader = coordinator(members)
    leader.broker.hosted(TOPIC).max_message_bytes = 300
    answers = await asyncio.gather(*(leader.commit(n, f"g{n}") for n in range(10)))
    assert set(answers) == {Code.NONE}
    assert 2 <= batches(leader.broker) <= 5
    assert leader.shard.state.groups == replayed(leader.broker).groups


async def test_record_too_large_for_batch_changes_nothing(
    members: Members,
) -> None:
    leader = coordinator(members)
    leader.broker.hosted(TOPIC).max_message_bytes = 90
    assert await leader.commit(1) is Code.UNKNOWN_SERVER_ERROR
    assert leader.shard.state.groups == {}


async def test_epoch_ended_before_turn_writes_nothing(
    members: Members,
) -> None:
    leader = coordinator(members)
    hosted = leader.broker.hosted(TOPIC)
    committing = asyncio.ensure_future(leader.commit(1))
    asyncio.get_running_loop().call_soon(hosted.replica.close, Code.NOT_LEADER_OR_FOLLOWER)
    shard = leader.shard
    hosted_end = hosted.log.log_end_offset
    op = o.FetchOffsets(group_id="g", partitions=())
    await asyncio.sleep(0)
    assert not shard.leads
    assert (await shard.ask(op).future()) == RefusedAsWhole(Code.NOT_COORDINATOR)
    leader.broker.manager.touch(hosted)
    assert await committing is Code.NOT_COORDINATOR
    assert hosted.log.log_end_offset == hosted_end


async def test_offsets_of_deleted_topic_get_tombstones(
    members: Members, controller: Controller
) -> None:
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    topic_id = controller.image.topic_ids["t"]
    controller.image = apply(controller.image, TopicRemoved(cause="test", topic_id=topic_id))
    for broker in controller.brokers.values():
        broker.tell()
    await until(lambda: controller.image is leader.broker.manager.image)
    hear_controller(leader.broker)
    await until(lambda: leader.shard.state.groups == {})
    # What a turn decides is appended at its end.
    await until(lambda: replayed(leader.broker).groups == {})


async def test_deleted_group_is_gone_for_later_coordinators(
    members: Members,
) -> None:
    leader = coordinator(members)
    assert await leader.commit(10) is Code.NONE
    assert await leader.ask(o.DeleteGroup(group_id="g")) == o.GroupDeleted()
    found = await successor(members, leader)
    assert await found.fetch() == -1
    assert await found.ask(o.DescribeGroup(group_id="g")) is Code.GROUP_ID_NOT_FOUND


async def test_old_offsets_go_by_themselves(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = coordinator(members)
    shard = leader.shard
    shard._settings = replace(shard._settings, retention_ms=0, retention_check_ms=20)
    assert await leader.commit(10) is Code.NONE
    await until(lambda: shard.state.groups == {})
    # What a turn decides is appended at its end.
    await until(lambda: replayed(leader.broker).groups == {})


async def test_parked_request_hears_that_the_coordinator_is_gone(members: Members) -> None:
    leader = coordinator(members)
    asker = Asker()
    leader.shard._parked[asker] = None
    leader.coordinators.close()
    assert await asker.future() == RefusedAsWhole(Code.NOT_COORDINATOR)
