"""LogEnds: the log ends of partitions with committed offsets, looked up every few seconds.

A broker that may come to coordinate groups also notes the ends of its own logs, so that the age of
unread records does not start anew when a coordinator moves here. Owned by `group_measures`, which
names the partitions. A partition in sync here is read from its own log; the leaders of others are
asked with ListOffsets on the replication port, some hundred partitions a request and one leader
after another. A leader that does not answer is skipped until the next look; its last answer stays
valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll_broker.background import in_slices
from plimsoll_broker.replication.peer_calls import PeerCalls
from plimsoll_broker.replication.peer_connection import PeerLost, open_to
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.errors import Code
from plimsoll_core.groups.lag import EndHistory
from plimsoll_core.ids import BrokerId
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.primitives import MalformedMessage

ASKED_AT_ONCE = 500
"""The most partitions in one ListOffsets request, so that its reply is parsed within a few
milliseconds."""
CONNECT_S = 2.0
SILENCE_S = 5.0
_VERSION, _LATEST = 5, -1


class LogEnds:
    """Looks up the log ends of partitions with committed offsets, and remembers them with the times
    at which they were seen. `manager`: has the metadata and this broker's own logs. `most`: the
    most partitions with remembered log ends."""

    def __init__(self, manager: ReplicaManager, most: int) -> None:
        self._manager = manager
        self._most = most
        # For every partition of the last look, and those that are in sync here.
        self._histories: dict[PartitionKey, EndHistory] = {}

    def history(self, key: PartitionKey) -> EndHistory | None:
        """Return the known log ends of a partition with the times at which they were seen. Return
        None if none is known."""
        return self._histories.get(key)

    async def look(self, wanted: Sequence[PartitionKey]) -> None:
        """Record the present log ends of `wanted`, the partitions with committed offsets here, and,
        within `most`, of this broker's in-sync replicas if it hosts `__consumer_offsets`. Forget
        all other partitions. A partition that is leaderless, deleted or led by a broker that does
        not answer keeps its earlier log ends."""
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
        """Return the partitions hosted here if this broker hosts `__consumer_offsets`, so that it
        may come to coordinate groups. Otherwise return an empty list."""
        manager = self._manager
        if not any(hosted.name == GROUP_OFFSETS for hosted in manager):
            return []
        return [hosted.key for hosted in manager if hosted.name != GROUP_OFFSETS]

    def _note(self, key: PartitionKey, end: int) -> None:
        self._histories.setdefault(key, EndHistory()).note(end, self._manager.now_ms())

    def _here(self, partition: Partition) -> bool:
        """If this broker has an online replica of the partition that is in sync, record its log end
        and return True. Otherwise return False."""
        manager, hosted = self._manager, self._manager.hosted(partition.key)
        if hosted is None or hosted.replica.failed or not manager.is_here(hosted):
            return False
        if manager.settings.broker_id not in partition.isr:
            return False
        self._note(partition.key, hosted.log.log_end_offset)
        return True

    # --- leaders elsewhere ----------------------------------------------------------------------

    async def _ask(self, leader: BrokerId, partitions: Sequence[Partition]) -> None:
        """Request the log ends of these partitions from `leader` and record them. Do nothing if the
        leader is this broker. Raise PeerLost or MalformedMessage."""
        manager = self._manager
        if leader == manager.settings.broker_id:
            return
        connection = await open_to(leader, manager.image, manager.peers, CONNECT_S)
        calls = PeerCalls(connection, "plimsoll-lag", SILENCE_S)
        try:
            for first in range(0, len(partitions), ASKED_AT_ONCE):
                await self._ask_some(calls, partitions[first : first + ASKED_AT_ONCE])
        finally:
            calls.close()

    async def _ask_some(self, calls: PeerCalls, asked: Sequence[Partition]) -> None:
        """Send one ListOffsets request for these partitions, and record the log ends in the reply;
        a partition with an error is left out. Raise PeerLost or MalformedMessage."""
        named = self._by_name(asked)
        told = await calls.ask(ApiKey.LIST_OFFSETS, _VERSION, self._request(named))
        for topic in told.topics:
            partitions = named.get(topic.name, {})
            for one in topic.partitions:
                partition = partitions.get(one.partition_index)
                if partition is not None and one.error_code == Code.NONE and one.offset >= 0:
                    self._note(partition.key, one.offset)

    def _by_name(self, asked: Iterable[Partition]) -> dict[str, dict[int, Partition]]:
        """Return the partitions by topic name and index, without those of deleted topics."""
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
