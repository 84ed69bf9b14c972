"""What a coordinator measures of its groups: lag over logs here and elsewhere, states, counters."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.coordinating_brokers import TOPIC, Member
from tests.plimsoll_broker.metric_values import a_node, told
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import Three, kill, until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.coordinator import group_measures, log_ends
from plimsoll_broker.coordinator.group_measures import GroupMeasures, lag_text
from plimsoll_broker.node.metrics_server import MetricsServer
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import MetadataVersionFinalized, TopicRemoved
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.lag import TopicLag
from plimsoll_core.messages.topics import EnsureInternalTopic


@pytest.fixture
async def member(controller: Controller, three: Three) -> AsyncIterator[Member]:
    """The broker that coordinates every group; it leads `here`, does not host `there`, and is in
    sync with `copied`, which another one leads."""
    controller.image = apply(
        controller.image, MetadataVersionFinalized(cause="test", metadata_version=2)
    )
    stated = InternalTopic(partitions=1, replication_factor=1)
    controller.settings = replace(controller.settings, offsets_topic=stated)
    controller.request(EnsureInternalTopic(name=TOPIC))
    leader = controller.partition(TOPIC).leader
    assert leader is not None
    first, second = (b.id for b in three if b.id != leader)
    controller.create("here", (leader, first))
    controller.create("there", (first, second), (second, first))
    controller.create("copied", (first, leader))
    found = Member(three[leader])
    hear_controller(three[leader])
    await until(lambda: found.active)
    yield found
    await found.stop()


async def grow(three: Three, topic: str, records: int, index: int = 0, acks: int = -1) -> None:
    client = await leader_of(three, topic, index).client()
    try:
        assert (await client.produce(topic, a_batch(records), index=index, acks=acks))[0] == 0
    finally:
        client.connection.close()


def leader_of(three: Three, topic: str, index: int = 0) -> Broker:
    leader = three[0].controller.partition(topic, index).leader
    assert leader is not None
    return three[leader]


async def commit(member: Member, group: str, *offsets: tuple[str, int, int]) -> None:
    rows = tuple(o.PartitionOffset(topic, index, at, -1, "") for topic, index, at in offsets)
    answer = await member.ask(o.CommitOffsets(group_id=group, offsets=rows), group)
    assert isinstance(answer, o.OffsetsCommitted)
    assert not any(one.code for one in answer.partitions)


async def lags(member: Member) -> dict[str, str]:
    """Series with their values, after a look."""
    await member.coordinators.measures.look()
    lines = member.coordinators.measures.seen.lag_text.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def records(group: str, topic: str) -> str:
    return f'plimsoll_group_lag_records{{group="{group}",topic="{topic}"}}'


async def test_lag_covers_local_and_remote_logs(member: Member, three: Three) -> None:
    for topic in ("here", "there", "copied"):
        await grow(three, topic, 5)
    await grow(three, "there", 4, index=1)
    await commit(member, "g", ("here", 0, 2), ("copied", 0, 5), ("there", 0, 1), ("there", 1, 1))
    found = await lags(member)
    assert found[records("g", "here")] == "3"
    assert found[records("g", "copied")] == "0"
    assert found[records("g", "there")] == "7"
    assert found['plimsoll_group_committed_position{group="g",topic="there"}'] == "2"
    assert member.coordinators.measures.seen.partitions_left_out == 0


async def test_lag_seconds_count_since_end_passed_position(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = 'plimsoll_group_lag_seconds{group="g",topic="there"}'
    manager, began_ms = member.broker.manager, member.broker.manager.now_ms()
    # A busy machine takes its time between two looks.
    monkeypatch.setattr(manager, "now_ms", lambda: began_ms)
    await grow(three, "there", 5)
    await commit(member, "g", ("there", 0, 5))
    assert (await lags(member))[series] == "0.0"
    await grow(three, "there", 5)
    assert (await lags(member))[series] == "0.0"
    monkeypatch.setattr(manager, "now_ms", lambda: began_ms + 60_000)
    assert 59 <= float((await lags(member))[series]) <= 61
    await commit(member, "g", ("there", 0, 10))
    assert (await lags(member))[series] == "0.0"


async def test_coordinator_knows_age_of_earlier_records(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It noted where the logs ended that are in sync on its broker."""
    measures = member.coordinators.measures
    await grow(three, "copied", 5)
    await measures.look()
    manager, began_ms = member.broker.manager, member.broker.manager.now_ms()
    monkeypatch.setattr(manager, "now_ms", lambda: began_ms + 60_000)
    await commit(member, "g", ("copied", 0, 2))
    found = await lags(member)
    assert 59 <= float(found['plimsoll_group_lag_seconds{group="g",topic="copied"}']) <= 61


async def test_broker_without_coordination_records_no_ends(member: Member, three: Three) -> None:
    other = next(b for b in three if b.id != member.broker.id)
    ends = log_ends.LogEnds(other.manager, 10)
    await ends.look([])
    assert not ends._histories


async def test_stuck_partition_is_reported_beside_moving_one(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = 'plimsoll_group_stuck_seconds{group="g",topic="there"}'
    manager, began_ms = member.broker.manager, member.broker.manager.now_ms()
    for index in (0, 1):
        await grow(three, "there", 9, index=index)
    for minutes in range(4):
        monkeypatch.setattr(manager, "now_ms", lambda at=minutes: began_ms + at * 60_000)
        await commit(member, "g", ("there", 0, 3), ("there", 1, minutes))
        found = float((await lags(member))[stuck])
        assert minutes * 60 - 1 <= found <= minutes * 60 + 1
    await commit(member, "g", ("there", 0, 9), ("there", 1, 8))
    assert float((await lags(member))[stuck]) <= 1


async def test_silent_leader_leaves_its_last_answer(member: Member, three: Three) -> None:
    await grow(three, "there", 5)
    await commit(member, "g", ("there", 0, 1))
    assert (await lags(member))[records("g", "there")] == "4"
    leader = leader_of(three, "there")
    await leader.stop()
    assert (await lags(member))[records("g", "there")] == "4"
    await leader.start()


async def test_another_leader_is_asked_after_a_failover(member: Member, three: Three) -> None:
    await grow(three, "there", 5)
    await commit(member, "g", ("there", 0, 1))
    assert (await lags(member))[records("g", "there")] == "4"
    old = leader_of(three, "there")
    await kill(old)
    await until(lambda: leader_of(three, "there") is not old)
    await grow(three, "there", 2, acks=1)
    assert (await lags(member))[records("g", "there")] == "6"


async def test_leaders_are_asked_in_several_requests(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ends, "ASKED_AT_ONCE", 1)
    there = member.broker.controller.partition("there").replicas
    member.broker.controller.create("wide", *(there,) * 3)
    await until(lambda: all(leader_of(three, "wide").manager.by_name("wide", n) for n in range(3)))
    for index in range(3):
        await grow(three, "wide", 2, index)
    await commit(member, "g", *(("wide", index, 0) for index in range(3)))
    assert (await lags(member))[records("g", "wide")] == "6"


async def test_partitions_beyond_bound_are_counted_only(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_measures, "PARTITIONS_MAX", 1)
    await commit(member, "g", ("here", 0, 0), ("there", 0, 0), ("copied", 0, 0))
    measures = GroupMeasures(member.broker.manager, member.coordinators.shards, 10)
    await measures.look()
    assert records("g", "here").encode() in measures.seen.lag_text
    assert measures.seen.partitions_left_out == 2


async def test_offsets_of_deleted_topic_have_no_lag(
    member: Member, controller: Controller, three: Three
) -> None:
    await commit(member, "g", ("there", 0, 0), ("here", 0, 0))
    assert records("g", "there") in await lags(member)
    topic_id = controller.image.topic_ids["there"]
    controller.image = apply(controller.image, TopicRemoved(cause="test", topic_id=topic_id))
    member.broker.tell()
    await until(lambda: member.broker.manager.topic_id("there") is None)
    assert records("g", "there") not in await lags(member)


async def test_series_that_are_left_out_are_counted(member: Member, three: Three) -> None:
    await grow(three, "here", 9)
    for number in range(4):
        await commit(member, f"g{number}", ("here", 0, number))
    measures = GroupMeasures(member.broker.manager, member.coordinators.shards, 2)
    await measures.look()
    assert b'records{group="g0",topic="here"} 9' in measures.seen.lag_text
    assert b'records{group="g1",topic="here"} 8' in measures.seen.lag_text
    assert b"g2" not in measures.seen.lag_text
    assert measures.seen.series_left_out == 2


async def test_cluster_without_lag_metrics_asks_no_broker(
    member: Member, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ends, "open_to", None)
    await commit(member, "g", ("there", 0, 0))
    measures = GroupMeasures(member.broker.manager, member.coordinators.shards, 0)
    await measures.look()
    assert measures.seen.lag_text == b""
    assert measures.seen.groups == 1


async def test_group_names_are_escaped_for_prometheus() -> None:
    text = await lag_text([TopicLag(1, 'a"b\\c\nd', "t", 1_500, 7)])
    assert b'plimsoll_group_lag_seconds{group="a\\"b\\\\c\\nd",topic="t"} 1.5\n' in text


async def test_ten_thousand_series_do_not_hold_loop() -> None:
    many = [TopicLag(n, f"group-{n}", "orders", n, n) for n in range(10_000)]
    with nothing_holds_the_loop():
        text = await asyncio.create_task(lag_text(many))
    assert text.count(b"\n") == 40_000 + 8


async def test_metrics_tell_groups_members_offsets_commits_and_rebalances(member: Member) -> None:
    await commit(member, "a", ("here", 0, 1), ("there", 0, 1))
    await commit(member, "b", ("here", 0, 1))
    coordinators = member.coordinators
    await coordinators.measures.look()
    found = told(coordinators=coordinators)
    assert found["groupsEmpty"] == 2
    assert found["groupsStable"] == found["groupsPreparingRebalance"] == 0
    assert found["group_members"] == 0
    assert found["committed_offsets"] == 3
    assert found["group_loads_total"] == 1
    assert found["group_loading_seconds"] == 0
    assert found["group_rebalances_total"] == 0
    assert found["offset_commit_failures_totalNOT_COORDINATOR"] == 0


async def test_rebalances_of_former_shard_still_count(member: Member) -> None:
    member.shard.soft.rebalances = 3
    assert told(coordinators=member.coordinators)["group_rebalances_total"] == 3
    member.coordinators.close()
    assert told(coordinators=member.coordinators)["group_rebalances_total"] == 3


async def test_lag_follows_other_broker_metrics(member: Member) -> None:
    await commit(member, "g", ("here", 0, 0))
    await member.coordinators.measures.look()
    server = MetricsServer(a_node(coordinators=member.coordinators))
    answer = await server._answer(b"GET /metrics HTTP/1.1\r\n\r\n", frozenset({b"/metrics"}))
    assert b"plimsoll_broker_ready" in answer
    assert answer.endswith(b'plimsoll_group_stuck_seconds{group="g",topic="here"} 0.0\n')
