"""Brokers with their coordinators, as `assembly` puts them together; what their logs say."""

import asyncio
from typing import Any

from tests.plimsoll_broker.test_lease import hear_controller
from tests.plimsoll_broker.test_replication import kill, until
from tests.plimsoll_broker.trio import WAIT_S, Broker

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, mark
from plimsoll_core.groups.state import apply as apply_group
from plimsoll_wire.batches import HEADER_SIZE, iter_headers
from plimsoll_wire.coordinator_records import decode_group_record, decode_marker, in_batch
from plimsoll_wire.record_sets import iter_records
from plimsoll_wire.versioned_fields import UnknownKeyedRecord

TOPIC = "__consumer_offsets"
Three = tuple[Broker, Broker, Broker]


class Member:
    """A broker with its coordinators, as `assembly` puts them together."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        settings = GroupSettings(commit_timeout_ms=WAIT_S * 1_000)
        topics = InternalTopics(broker.link.command)
        self.coordinators = Coordinators(broker.manager, settings, topics)
        self.tasks = [asyncio.ensure_future(work) for _, work in self.coordinators.tasks()]
        tell = broker.path.apply_image

        def apply_image(old: Any, new: Any) -> None:
            tell(old, new)
            self.coordinators.update(old, new)

        broker.path.apply_image = apply_image  # type: ignore[method-assign]
        for hosted in broker.manager.hosts():
            self.coordinators.stepped(hosted)

    @property
    def shard(self) -> GroupShard:
        (shard,) = self.coordinators.shards()
        return shard

    @property
    def active(self) -> bool:
        shards = self.coordinators.shards()
        return bool(shards) and shards[0].phase is ShardPhase.ACTIVE

    async def ask(self, op: Any, group: str = "g") -> object:
        """The answer; a refusal's code."""
        async with asyncio.timeout(WAIT_S):
            answer = await self.coordinators.ask(group, op).future()
        return answer.code if isinstance(answer, RefusedAsWhole) else answer

    async def commit(self, offset: int, group: str = "g") -> object:
        rows = (o.PartitionOffset("t", 0, offset, -1, ""),)
        answer = await self.ask(o.CommitOffsets(group_id=group, offsets=rows), group)
        return answer.partitions[0].code if isinstance(answer, o.OffsetsCommitted) else answer

    async def fetch(self, group: str = "g") -> object:
        op = o.FetchOffsets(group_id=group, partitions=(("t", 0),))
        answer = await self.ask(op, group)
        return answer.offsets[0].offset if isinstance(answer, o.OffsetsFetched) else answer

    async def stop(self) -> None:
        self.coordinators.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


Members = tuple[Member, Member, Member]


def coordinator(members: Members) -> Member:
    """Whoever is active; the others lead nothing."""
    (found,) = [member for member in members if member.active]
    return found


def others(members: Members) -> list[Member]:
    return [member for member in members if not member.active]


async def successor(members: Members, leader: Member) -> Member:
    """The leader is killed; who is active in its place, and has heard a controller."""
    await leader.stop()
    await kill(leader.broker)
    await until(lambda: any(member.active for member in members if member is not leader))
    (found,) = [member for member in members if member is not leader and member.active]
    hear_controller(found.broker)
    return found


def replayed(broker: Broker) -> GroupsState:
    """An independent replay of its log."""
    state, data = GroupsState(), bytes(broker.bytes_of(TOPIC))
    position = 0
    for header in iter_headers(data):
        body = data[position + HEADER_SIZE : position + header.length]
        position += header.length
        marker = decode_marker(header, body) if header.is_control else None
        if marker is not None:
            mark(state, marker, header.base_offset)
            continue
        for offset, key, value in iter_records(header, body):
            record = decode_group_record(key, value)
            assert not isinstance(record, UnknownKeyedRecord)
            apply_group(state, in_batch(header, record), offset)
    return state
