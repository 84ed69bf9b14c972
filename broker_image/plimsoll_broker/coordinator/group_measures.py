"""GroupMeasures: metrics of the groups coordinated here: states, members, and lag by topic.

The metrics read the result of the last look, so a scrape costs nothing that grows with the groups.
A look visits all groups in slices, every few seconds. It decides nothing and tells clients nothing.
Source: docs/protocol.md §5.8.2.

`lag_text`: consumer lag in Prometheus' text format. Writing thousands of series takes longer than a
scrape may hold the event loop, so it is done beforehand, in time slices. The HTTP endpoint sends it
behind all other metrics.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll_broker.background import in_slices
from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_broker.coordinator.log_ends import LogEnds
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
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

_FAMILIES = (
    (
        "plimsoll_group_lag_records",
        "Lag: offsets from a group's committed ones to the log ends",
    ),
    (
        "plimsoll_group_lag_seconds",
        "Minimum age of the oldest unread record",
    ),
    (
        "plimsoll_group_committed_position",
        "Sum of a group's committed offsets",
    ),
    (
        "plimsoll_group_stuck_seconds",
        "Minimum time without progress of a partition with unread records, the longest per topic",
    ),
)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


async def lag_text(lags: Sequence[TopicLag]) -> bytes:
    """Return the lag of these pairs of group and topic in Prometheus' text format, with the headers
    of the metrics, even if there are no pairs. Other tasks run between time slices."""
    parts: tuple[list[bytes], ...] = tuple(
        [f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()] for name, text in _FAMILIES
    )
    async for lag in in_slices(lags):
        group, topic = lag.group_id.translate(_ESCAPES), lag.topic.translate(_ESCAPES)
        values = (lag.records, lag.behind_ms / 1000, lag.position, lag.stuck_ms / 1000)
        for (name, _), rows, value in zip(_FAMILIES, parts, values, strict=True):
            rows.append(f'{name}{{group="{group}",topic="{topic}"}} {value}\n'.encode())
    return b"".join(row for rows in parts for row in rows)


LOOK_EVERY_S = 10.0
PARTITIONS_MAX = 10_000
"""The most partitions with log ends that are looked up. Each takes about a thousand bytes."""

Shards = Callable[[], list[GroupShard]]


@dataclass(slots=True)
class GroupStats:
    """Counters of group coordination since the broker's start, for the metrics. They never
    decrease."""

    loads: int = 0
    load_ms: int = 0
    commits: int = 0
    """The number of offsets that were committed."""
    commit_failures: Counter[str] = field(default_factory=Counter)
    """The number of offsets that failed to commit, by Kafka's name of the error code."""
    rebalances_ended: int = 0
    """The number of rebalances in shards that this broker has since dropped."""

    def answered(self, op: Operation, answer: object) -> None:
        """Count the offsets of a commit by its answer: those committed, and those that failed."""
        match op, answer:
            case CommitOffsets(), OffsetsCommitted(partitions):
                failed = [one.code.name for one in partitions if one.code is not Code.NONE]
                self.commits += len(partitions) - len(failed)
                self.commit_failures.update(failed)
            case CommitOffsets(offsets=offsets), RefusedAsWhole(code=code):
                self.commit_failures[code.name] += len(offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSeen:
    """The result of the last look at all groups, for the metrics."""

    states: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    """The number of groups in each state; the states have Kafka's names."""
    lag_text: bytes = b""
    """The groups' lag in Prometheus' text format; empty if lag is not measured."""
    series_left_out: int = 0
    """The number of pairs of group and topic that are not shown, because other pairs lag
    more."""
    partitions_left_out: int = 0
    """The number of committed offsets of partitions without a known log end."""

    @property
    def groups(self) -> int:
        """The number of groups."""
        return sum(self.states.values())


class GroupMeasures:
    """Measures all groups of a broker every few seconds; `seen` has the last result. `series_max`:
    the number of pairs of group and topic for which lag is shown. With 0 lag is not measured and no
    log ends are requested."""

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
        """Measure all groups every LOOK_EVERY_S seconds, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Measure all groups once, and set `seen`."""
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
        """Return the distinct existing partitions with a committed offset of any group, at most
        PARTITIONS_MAX."""
        wanted: dict[PartitionKey, None] = {}
        async for _, topic, committed in in_slices(self._topics()):
            for index, offset in committed.items():
                key = self._key(topic, index, offset)
                if key is not None and len(wanted) < PARTITIONS_MAX:
                    wanted[key] = None
        return list(wanted)

    async def _lags(self) -> tuple[FurthestBehind, int]:
        """Return the lag of the pairs of group and topic that are furthest behind, and the number
        of committed offsets of partitions without a known log end."""
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
        """Return the partition of a committed offset: by the offset's topic id, or else by the
        topic's name. Return None if that topic does not exist."""
        image = self._manager.image
        if image is None:
            return None
        topic_id = offset.topic_id or image.topic_ids.get(topic)
        if topic_id is None or topic_id not in image.topics:
            return None
        return PartitionKey(topic_id, index)

    # --- what is there now, however long it takes to go through it ------------------------------

    def _groups(self) -> Iterator[tuple[GroupShard, str]]:
        """Yield each loaded group of the active shards, with its shard, while this broker leads the
        shard's partition."""
        for shard in self._shards():
            if shard.phase is ShardPhase.ACTIVE:
                for group_id in list(shard.state.groups):
                    if shard.leads:
                        yield shard, group_id

    def _topics(self) -> Iterator[tuple[str, str, Mapping[int, CommittedOffset]]]:
        """Yield group id, topic name and committed offsets by partition index, for each topic with
        committed offsets of each group."""
        for shard, group_id in self._groups():
            group = shard.state.groups.get(group_id)
            if group is not None:
                for topic, committed in list(group.offsets.items()):
                    yield group_id, topic, committed
