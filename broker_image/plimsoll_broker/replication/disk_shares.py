"""Which clients' records are taken while the disk has little room: the largest give way first.

Called by Produce before each append, told of the room by `full_disks`.  A tenth of the volume, at
most 8 GiB, is a reserve: there offsets of groups, followers' copies, checkpoints and metadata go
on, and clients are refused, whoever holds most at once and whoever holds less when less is left.
With half of the reserve gone no client's record is taken.

The bytes of a topic count for the principal that wrote to it last through this broker, or its
address where a listener has no login; before anybody wrote, for the one that made the topic.
Sizes are those of the last look; between two looks what was appended is counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.topic_names import is_internal

logger = logging.getLogger("plimsoll.room")

RESERVE_PART = 10
RESERVE_BYTES_MAX = 8 * 2**30
_NEVER = 2**63
REFUSED_TEXT = (
    "The broker's disk has little room left, and this client holds much of it: delete records or"
    " topics, shorten their retention, or give the broker a larger volume."
)


class Partitions(Protocol):
    """What is on the disk."""

    traffic: Traffic

    def __iter__(self) -> Iterator[Hosted]: ...


def reserve_of(all_bytes: int) -> int:
    return min(all_bytes // RESERVE_PART, RESERVE_BYTES_MAX)


class DiskShares:
    """Of one broker.  `short`: so little was free at the last look that clients are refused;
    `refused`: batches that were."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._traffic = partitions.traffic
        self.short = False
        self.refused = 0
        self.reserve = 0
        # What was free at the last look, and how much had been appended by then.
        self._free = 0
        self._appended = 0
        # Nobody is refused before so much has been appended.
        self._mark = _NEVER
        self._held: Counter[str] = Counter()
        self._largest = 0
        self._topics: dict[UUID, tuple[str, int]] = {}

    @property
    def appended(self) -> int:
        return self._traffic.bytes_in + self._traffic.replicated_in

    @property
    def look_again(self) -> bool:
        """Whether the room may be another than at the last look, as far as it matters here."""
        return self.short or (self.appended - self._appended) * 4 > self.reserve

    async def looked(self, free: int, all_bytes: int) -> None:
        """So much is free now."""
        self._free, self._appended = free, self.appended
        self.reserve = reserve_of(all_bytes)
        self._mark = self._appended + free - self.reserve
        if free < 2 * self.reserve:
            await self._measure()
        # What begins at the reserve ends a quarter above it: leaders do not go to and fro.
        short = free < self.reserve * (5 if self.short else 4) // 4
        if short != self.short:
            self.short = short
            self._tell(all_bytes)

    def _tell(self, all_bytes: int) -> None:
        if not self.short:
            logger.warning("the disk has room again: %d bytes, clients may write", self._free)
            return
        (most, held), *_ = [*self._held.most_common(1), ("nobody", 0)]
        logger.warning(
            "the disk has %d of %d bytes free, less than the reserve of %d: clients' records are"
            " refused, first of who holds most (%s: %d bytes). Delete records or topics, shorten"
            " retention, or enlarge the volume",
            self._free,
            all_bytes,
            self.reserve,
            most,
            held,
        )

    async def _measure(self) -> None:
        """Who holds how much."""
        writers: dict[UUID, str] = {}
        sizes: Counter[UUID] = Counter()
        async for hosted in in_slices(list(self._partitions)):
            topic, topic_id = hosted.topic, hosted.key.topic_id
            if is_internal(hosted.name):
                continue
            sizes[topic_id] += hosted.log.size
            writer = hosted.writer or writers.get(topic_id) or (topic.owner if topic else "")
            writers[topic_id] = writer or f"topic {hosted.name}"
        held: Counter[str] = Counter()
        for topic_id, size in sizes.items():
            held[writers[topic_id]] += size
        self._held, self._largest = held, max(held.values(), default=0)
        self._topics = {one: (writers[one], size) for one, size in sizes.items()}

    def refuses(self, hosted: Hosted, writer: str, size: int) -> bool:
        """Whether a client's batch of so many bytes is to be refused."""
        hosted.writer = writer
        traffic = self._traffic
        if traffic.bytes_in + traffic.replicated_in + size <= self._mark:
            return False
        refused = self._judge(hosted, writer, size)
        self.refused += refused
        return refused

    def _judge(self, hosted: Hosted, account: str, size: int) -> bool:
        half = self.reserve // 2
        room = self._free - (self.appended - self._appended) - size
        if room < half:
            return True
        self._count_for(hosted.key.topic_id, account)
        held, largest = self._held[account], self._largest
        # From what the largest holds, at the whole reserve, to nothing, at half of it.
        if held and held * half >= largest * (room - half):
            return True
        self._held[account] = held + size
        self._largest = max(largest, held + size)
        return False

    def _count_for(self, topic_id: UUID, account: str) -> None:
        """It writes to the topic now."""
        known = self._topics.get(topic_id)
        if known is not None and known[0] != account:
            self._held[known[0]] -= known[1]
            self._held[account] += known[1]
            self._largest = max(self._largest, self._held[account])
            self._topics[topic_id] = (account, known[1])
