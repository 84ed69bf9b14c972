"""A coordinator loads its log while the cleaner swaps the segments that are read."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.plimsoll_broker.coordinating_brokers import TOPIC, Member
from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_log_cleaner import a_cleaner
from tests.plimsoll_broker.test_replication import Three, until
from tests.plimsoll_broker.trio import Controller

from plimsoll_broker.coordinator import shard_log
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.messages.topics import EnsureInternalTopic

GROUPS = ("a", "b", "c", "d")
ROUNDS = 12


@pytest.fixture
async def member(controller: Controller, three: Three) -> AsyncIterator[Member]:
    """The only replica of the topic of offsets."""
    controller.image = apply(
        controller.image, MetadataVersionFinalized(cause="test", metadata_version=2)
    )
    stated = InternalTopic(partitions=1, replication_factor=1)
    controller.settings = replace(controller.settings, offsets_topic=stated)
    controller.request(EnsureInternalTopic(name=TOPIC))
    leader = controller.partition(TOPIC).leader
    assert leader is not None
    controller.create("t", (leader,))
    found = Member(three[leader])
    hear_controller(three[leader])
    await until(lambda: found.active)
    log = three[leader].hosted(TOPIC).log
    log.config = replace(
        log.config,
        segment_bytes=400,
        limits=replace(log.config.limits, dirty_ratio_min=0.0),
    )
    yield found
    await found.stop()


async def forget(member: Member, group: str) -> None:
    answer = await member.ask(o.DeleteGroup(group_id=group), group)
    assert answer == o.GroupDeleted()


@pytest.mark.parametrize("at", [1, 2, 13, 30, 49, 50])
async def test_load_is_unaffected_by_segment_swaps(
    member: Member, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """After so many records of the load, on every segment that is sealed."""
    for offset in range(ROUNDS):
        for group in GROUPS:
            assert await member.commit(offset, group) is Code.NONE
    await forget(member, "d")
    assert await member.commit(99, "c") is Code.NONE
    one = member.broker
    before = [segment.size for segment in one.hosted(TOPIC).log.segments]
    seen = 0

    async def look(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            await a_cleaner(one).run()

    monkeypatch.setattr(shard_log, "READ_BYTES", 1)
    monkeypatch.setattr(shard_log.LoadSlices, "look", look)
    await member.stop()
    again = Member(one)
    try:
        await until(lambda: again.active)
        assert seen >= at
        assert sum(s.size for s in one.hosted(TOPIC).log.segments) < sum(before) / 2
        assert [await again.fetch(group) for group in GROUPS] == [ROUNDS - 1, ROUNDS - 1, 99, -1]
    finally:
        await again.stop()
