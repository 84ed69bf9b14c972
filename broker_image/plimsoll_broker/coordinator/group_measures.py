"""GroupMeasures: metrics of the groups coordinated here: states, members, and lag by topic.

The metrics read the result of the last look, so a scrape costs nothing that grows with the groups.
A look visits all groups in slices, every few seconds. It decides nothing and tells clients nothing.
Source: docs/protocol.md §5.8.2.

`lag_text`: consumer lag in Prometheus' text format. Writing thousands of series takes longer than a
scrape may hold the event loop, so it is done beforehand, in time slices. The HTTP endpoint sends it
behind all other metrics.

`LogEnds`: the log ends of partitions with committed offsets, looked up every few seconds. A broker
that may come to coordinate groups also notes the ends of its own logs, so that the age of unread
records does not start anew when a coordinator moves here. A partition in sync here is read from its
own log; the leaders of others are asked with ListOffsets on the replication port, some hundred
partitions a request and one leader after another. A leader that does not answer is skipped until
the next look; its last answer stays valid.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.group_shard import GroupShard, ShardPhase
from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost, open_to
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.admin import STATES, seen_state
from plimsoll_core.groups.lag import (
    EndHistory,
    FurthestBehind,
    GroupPartition,
    StandingPartitions,
    TopicLag,
    topic_lag,
)
from plimsoll_core.groups.operations import CommitOffsets, OffsetsCommitted, Operation
from plimsoll_core.groups.state import CommittedOffset
from plimsoll_core.ids import BrokerId
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.primitives import MalformedMessage

_FAMILIES = (
    (
        "plimsoll_group_lag_records",
        "Offsets between the committed ones of a group and the log ends",
    ),
    (
        "plimsoll_group_lag_seconds",
        "Minimum age of the oldest unread record",
    ),
    (
        "plimsoll_group_committed_position",
        "Sum of the committed offsets",
    ),
    (
        "plimsoll_group_stuck_seconds",
        "Minimum time without progress of a partition with unread records, the longest per topic",
    ),
)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


async def lag_text(lags: Sequence[TopicLag]) -> bytes:
    """Return all series of these topics of groups."""
    parts: tuple[list[bytes], ...] = tuple(
        [f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()] for name, text in _FAMILIES
    )
    async for lag in in_slices(lags):
        group, topic = lag.group_id.translate(_ESCAPES), lag.topic.translate(_ESCAPES)
        values = (lag.records, lag.behind_ms / 1000, lag.position, lag.stuck_ms / 1000)
        for (name, _), rows, value in zip(_FAMILIES, parts, values, strict=True):
            rows.append(f'{name}{{group="{group}",topic="{topic}"}} {value}\n'.encode())
    return b"".join(row for rows in parts for row in rows)


ASKED_AT_ONCE = 500
"""Partitions in one request; its reply is parsed within a few milliseconds."""
CONNECT_S = 2.0
SILENCE_S = 5.0
_VERSION, _LATEST = 5, -1
_CORRELATION_BYTES = 4


class LogEnds:
    """`manager` knows the metadata. `most`: partitions at a time."""

    def __init__(self, manager: ReplicaManager, most: int) -> None:
        self._manager = manager
        self._most = most
        # For every partition of the last look, and those that are in sync here.
        self._histories: dict[PartitionKey, EndHistory] = {}
        self._numbers = count(1)

    def history(self, key: PartitionKey) -> EndHistory | None:
        """Return the known ends of a partition's log, or None if there are none."""
        return self._histories.get(key)

    async def look(self, wanted: Sequence[PartitionKey]) -> None:
        """Note the present ends of these partitions and of the logs here; forget the others."""
        kept = dict.fromkeys(wanted)
        async for key in in_slices(self._own_partitions()):
            if len(kept) < self._most:
                kept[key] = None
        self._histories = {k: self._histories[k] for k in kept if k in self._histories}
        elsewhere: dict[BrokerId, list[Partition]] = {}
        asked = set(wanted)
        async for key in in_slices(kept):
            image = self._manager.image
            partition = None if image is None else image.partitions.get(key)
            if partition is None or self._here(partition) or partition.leader is None:
                continue
            if key not in asked:
                continue
            elsewhere.setdefault(partition.leader, []).append(partition)
        for leader, partitions in sorted(elsewhere.items()):
            try:
                await self._ask(leader, partitions)
            except (PeerLost, MalformedMessage):
                continue

    def _own_partitions(self) -> list[PartitionKey]:
        """Return the partitions hosted here, if this broker may coordinate groups."""
        manager = self._manager
        if not any(hosted.name == GROUP_OFFSETS for hosted in manager):
            return []
        return [hosted.key for hosted in manager if hosted.name != GROUP_OFFSETS]

    def _note(self, key: PartitionKey, end: int) -> None:
        self._histories.setdefault(key, EndHistory()).note(end, self._manager.now_ms())

    def _here(self, partition: Partition) -> bool:
        """Return True if this broker's log is in sync; its end is noted."""
        manager, hosted = self._manager, self._manager.hosted(partition.key)
        if hosted is None or hosted.replica.failed or not manager.is_here(hosted):
            return False
        if manager.settings.broker_id not in partition.isr:
            return False
        self._note(partition.key, hosted.log.log_end_offset)
        return True

    # --- leaders elsewhere ----------------------------------------------------------------------

    async def _ask(self, leader: BrokerId, partitions: Sequence[Partition]) -> None:
        manager = self._manager
        if leader == manager.settings.broker_id:
            return
        connection = await open_to(leader, manager.image, manager.peers, CONNECT_S)
        try:
            for first in range(0, len(partitions), ASKED_AT_ONCE):
                await self._ask_some(connection, partitions[first : first + ASKED_AT_ONCE])
        finally:
            connection.close()

    async def _ask_some(self, connection: PeerConnection, asked: Sequence[Partition]) -> None:
        named = self._by_name(asked)
        body = encode_request(ApiKey.LIST_OFFSETS, _VERSION, self._request(named))
        number = next(self._numbers) & 0x7FFFFFFF
        frame = request_frame(ApiKey.LIST_OFFSETS, _VERSION, number, "plimsoll-lag", body)
        reply = bytes(await connection.request(frame, SILENCE_S))
        if int.from_bytes(reply[:_CORRELATION_BYTES]) != number:
            raise PeerLost("a reply to another request")
        told = decode_response(ApiKey.LIST_OFFSETS, _VERSION, reply[_CORRELATION_BYTES:])
        for topic in told.topics:
            partitions = named.get(topic.name, {})
            for one in topic.partitions:
                partition = partitions.get(one.partition_index)
                if partition is not None and one.error_code == Code.NONE and one.offset >= 0:
                    self._note(partition.key, one.offset)

    def _by_name(self, asked: Iterable[Partition]) -> dict[str, dict[int, Partition]]:
        """Group by topic name, without deleted topics."""
        found: dict[str, dict[int, Partition]] = {}
        image = self._manager.image
        for partition in asked:
            topic = None if image is None else image.topics.get(partition.topic_id)
            if topic is not None:
                found.setdefault(topic.name, {})[partition.index] = partition
        return found

    def _request(self, named: dict[str, dict[int, Partition]]) -> dict[str, object]:
        topics = [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "current_leader_epoch": partition.leader_epoch,
                        "timestamp": _LATEST,
                    }
                    for index, partition in partitions.items()
                ],
            }
            for name, partitions in named.items()
        ]
        broker_id = self._manager.settings.broker_id
        return {"replica_id": broker_id, "isolation_level": 0, "topics": topics}


LOOK_EVERY_S = 10.0
PARTITIONS_MAX = 10_000
"""The number of partitions with a known log end. Each takes a thousand bytes."""

Shards = Callable[[], list[GroupShard]]


@dataclass(slots=True)
class GroupStats:
    """Counters since the start; they only grow."""

    loads: int = 0
    load_ms: int = 0
    commits: int = 0
    """Offsets that were committed."""
    commit_failures: Counter[str] = field(default_factory=Counter)
    """Offsets that failed to commit, by Kafka's name of the error code."""
    rebalances_ended: int = 0
    """Rebalances of shards that are no longer here."""

    def answered(self, op: Operation, answer: object) -> None:
        """Count the commits of an answer."""
        match op, answer:
            case CommitOffsets(), OffsetsCommitted(partitions):
                failed = [one.code.name for one in partitions if one.code is not Code.NONE]
                self.commits += len(partitions) - len(failed)
                self.commit_failures.update(failed)
            case CommitOffsets(offsets=offsets), RefusedAsWhole(code=code):
                self.commit_failures[code.name] += len(offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSeen:
    """The result of one look."""

    states: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    """Groups by state, in Kafka's words."""
    lag_text: bytes = b""
    """In Prometheus' text format; empty if no lag is measured."""
    series_left_out: int = 0
    """Topics of groups that are not shown, because others lag more."""
    partitions_left_out: int = 0
    """Committed offsets without a known log end."""

    @property
    def groups(self) -> int:
        return sum(self.states.values())


class GroupMeasures:
    """`series_max` is the number of topics of groups for which lag is shown. With 0, lag is not
    measured and log ends are not requested."""

    def __init__(self, manager: ReplicaManager, shards: Shards, series_max: int) -> None:
        # The result of the last look.
        self.seen = GroupsSeen()
        self._manager = manager
        self._shards = shards
        self._series_max = series_max
        self._ends = LogEnds(manager, PARTITIONS_MAX)
        self._standing = StandingPartitions(PARTITIONS_MAX)

    @property
    def measures_lag(self) -> bool:
        return self._series_max > 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        states = Counter(dict.fromkeys(STATES, 0))
        async for shard, group_id in in_slices(self._groups()):
            group = shard.state.groups.get(group_id)
            if group is not None:
                states[seen_state(group, shard.soft)] += 1
        if not self.measures_lag:
            self.seen = GroupsSeen(states=states)
            return
        await self._ends.look(await self._wanted())
        lags, left_out = await self._lags()
        self.seen = GroupsSeen(
            states=states,
            lag_text=await lag_text(lags.shown()),
            series_left_out=lags.left_out,
            partitions_left_out=left_out,
        )

    # --- lag ------------------------------------------------------------------------------------

    async def _wanted(self) -> list[PartitionKey]:
        wanted: dict[PartitionKey, None] = {}
        async for _, topic, committed in in_slices(self._topics()):
            for index, offset in committed.items():
                key = self._key(topic, index, offset)
                if key is not None and len(wanted) < PARTITIONS_MAX:
                    wanted[key] = None
        return list(wanted)

    async def _lags(self) -> tuple[FurthestBehind, int]:
        lags, now_ms, unknown = FurthestBehind(self._series_max), self._manager.now_ms(), 0
        wall_ms = time.time_ns() // 1_000_000

        def history(index: int, offset: CommittedOffset) -> EndHistory | None:
            nonlocal unknown
            key = self._key(topic, index, offset)
            found = None if key is None else self._ends.history(key)
            unknown += found is None
            return found

        def stood(index: int, offset: CommittedOffset) -> int | None:
            key = GroupPartition(group_id, topic, index)
            committed_ms = now_ms - max(wall_ms - offset.commit_ms, 0)
            return self._standing.since_ms(key, offset.offset, committed_ms)

        async for group_id, topic, committed in in_slices(self._topics()):
            lag = topic_lag(group_id, topic, committed, history, stood, now_ms)
            if lag is not None:
                lags.add(lag)
        self._standing.looked()
        return lags, unknown

    def _key(self, topic: str, index: int, offset: CommittedOffset) -> PartitionKey | None:
        """Return the partition, or None if the topic of the commit is gone."""
        image = self._manager.image
        if image is None:
            return None
        topic_id = offset.topic_id or image.topic_ids.get(topic)
        if topic_id is None or topic_id not in image.topics:
            return None
        return PartitionKey(topic_id, index)

    # --- what is there now, however long it takes to go through it ------------------------------

    def _groups(self) -> Iterator[tuple[GroupShard, str]]:
        for shard in self._shards():
            if shard.phase is ShardPhase.ACTIVE:
                for group_id in list(shard.state.groups):
                    if shard.leads:
                        yield shard, group_id

    def _topics(self) -> Iterator[tuple[str, str, Mapping[int, CommittedOffset]]]:
        for shard, group_id in self._groups():
            group = shard.state.groups.get(group_id)
            if group is not None:
                for topic, committed in list(group.offsets.items()):
                    yield group_id, topic, committed
