"""DiskShares: decides which clients' records are refused while the disk is nearly full; those of
the principals that hold most are refused first.

Called by Produce before each append; `full_disks` reports the free space. A tenth of the volume, at
most 8 GiB, is a reserve: within it group offsets, followers' copies, checkpoints and metadata are
still written, and clients are refused: the largest holders at once, smaller ones as less space is
left. With half of the reserve used no client's records are accepted.

A topic's bytes count for the principal that last wrote to it through this broker, or for the
client's address if the listener has no login; before the first write, for the owner of the topic.
Internal topics' bytes count for the owners of groups, by what each has had coordinators here write.
Sizes are those of the last measurement, plus what was appended since.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

from plimsoll_broker.background import in_slices
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.topic_names import is_internal

logger = logging.getLogger("plimsoll.disk_shares")

RESERVE_PART = 10
RESERVE_BYTES_MAX = 8 * 2**30
OWNERS_MAX = 1_000
"""The number of owners of groups with the most bytes of records that are remembered."""
_NEVER = 2**63
REFUSED_TEXT = (
    "The records are refused, because the broker's disk is nearly full and topics of this user "
    "take much of it: delete records or topics, shorten their retention, or give the broker a "
    "larger volume."
)


class Partitions(Protocol):
    """The part of the replica manager that `DiskShares` needs: the hosted partitions and the
    counters."""

    traffic: Traffic

    def __iter__(self) -> Iterator[Hosted]: ...


def reserve_of(all_bytes: int) -> int:
    """Return the size of the reserve, in bytes, on a volume of `all_bytes`."""
    return min(all_bytes // RESERVE_PART, RESERVE_BYTES_MAX)


class DiskShares:
    """Decides which clients' batches one broker refuses while its volume is nearly full. `short`:
    True if the last measurement found so little free space that clients are refused. `refused`: the
    number of batches refused since the start. `reserve`: bytes."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._traffic = partitions.traffic
        self.short = False
        self.refused = 0
        self.reserve = 0
        # Free bytes at the last look, and the bytes appended by then.
        self._free = 0
        self._appended = 0
        # No batch is refused before this many bytes have been appended.
        self._mark = _NEVER
        self._held: Counter[str] = Counter()
        self._largest = 0
        self._topics: dict[UUID, tuple[str, int]] = {}
        # Bytes of group records since the start, by owner.
        self._recorded: Counter[str] = Counter()

    @property
    def appended(self) -> int:
        """The number of bytes that clients and leaders have had this broker append since its
        start."""
        return self._traffic.bytes_in + self._traffic.replicated_in

    @property
    def look_again(self) -> bool:
        """True if the free space should be measured again: clients are being refused, or more than
        a quarter of the reserve was appended since the last measurement."""
        return self.short or (self.appended - self._appended) * 4 > self.reserve

    async def looked(self, free: int, all_bytes: int) -> None:
        """Record a measurement of the volume: its free bytes and its size in bytes. If the free
        bytes are below twice the reserve, also measure the bytes that each principal holds. Set
        `short`, and log its changes: True below the reserve, False again from five quarters of it
        on."""
        self._free, self._appended = free, self.appended
        self.reserve = reserve_of(all_bytes)
        self._mark = self._appended + free - self.reserve
        if free < 2 * self.reserve:
            await self._measure()
        # Hysteresis: refusals begin at the reserve and end a quarter above it.
        short = free < self.reserve * (5 if self.short else 4) // 4
        if short != self.short:
            self.short = short
            self._tell(all_bytes)

    def _tell(self, all_bytes: int) -> None:
        """Log that clients' records are refused from now on, or that they are accepted again."""
        if not self.short:
            logger.warning(
                "this broker's disk has space again (%d bytes free), so the broker accepts "
                "clients' records again; nothing needs to be done",
                self._free,
            )
            return
        (most, held), *_ = [*self._held.most_common(1), ("no client", 0)]
        logger.warning(
            "this broker's disk has %d of %d bytes free, less than the %d that it keeps free, so "
            "it refuses records, beginning with topics of the user with the most data (%s: %d "
            "bytes). Delete records or topics, shorten retention, or enlarge the volume",
            self._free,
            all_bytes,
            self.reserve,
            most,
            held,
        )

    async def _measure(self) -> None:
        """Add up the bytes that each principal holds in topics on this volume. Those of internal
        topics are shared out by the records of each principal's groups, but never more than
        these."""
        internal = 0
        writers: dict[UUID, str] = {}
        sizes: Counter[UUID] = Counter()
        async for hosted in in_slices(list(self._partitions)):
            topic, topic_id = hosted.topic, hosted.key.topic_id
            if is_internal(hosted.name):
                internal += hosted.log.size
                continue
            sizes[topic_id] += hosted.log.size
            writer = hosted.writer or writers.get(topic_id) or (topic.owner if topic else "")
            writers[topic_id] = writer or f"topic {hosted.name}"
        held: Counter[str] = Counter()
        for topic_id, size in sizes.items():
            held[writers[topic_id]] += size
        recorded, every = self._recorded, sum(self._recorded.values())
        for owner, size in recorded.items():
            held[owner] += min(size, internal * size // every)
        self._recorded = Counter(dict(recorded.most_common(OWNERS_MAX)))
        self._held, self._largest = held, max(held.values(), default=0)
        self._topics = {one: (writers[one], size) for one, size in sizes.items()}

    def recorded(self, owner: str, size: int) -> None:
        """Account `size` bytes of records about a group to the group's owner."""
        self._recorded[owner] += size

    def refuses(self, hosted: Hosted, writer: str, size: int) -> bool:
        """Account the topic's bytes to `writer`, the client's principal or, without a login, its
        address, from now on. Return True if the client's batch of `size` bytes must be refused, and
        count the refusal; False if it may be appended."""
        hosted.writer = writer
        traffic = self._traffic
        if traffic.bytes_in + traffic.replicated_in + size <= self._mark:
            return False
        refused = self._judge(hosted, writer, size)
        self.refused += refused
        return refused

    def _judge(self, hosted: Hosted, account: str, size: int) -> bool:
        """Return True if the batch must be refused: less than half of the reserve would be left, or
        the account holds too much for the free space. Otherwise add `size` to the bytes of the
        account and return False. The topic's bytes are moved to the account, unless half of the
        reserve is used."""
        half = self.reserve // 2
        room = self._free - (self.appended - self._appended) - size
        if room < half:
            return True
        self._count_for(hosted.key.topic_id, account)
        held, largest = self._held[account], self._largest
        # The threshold falls from the largest holding, at the whole reserve, to zero, at half of
        # it.
        if held and held * half >= largest * (room - half):
            return True
        self._held[account] = held + size
        self._largest = max(largest, held + size)
        return False

    def _count_for(self, topic_id: UUID, account: str) -> None:
        """Move the topic's measured bytes to this account, if another account had them."""
        known = self._topics.get(topic_id)
        if known is not None and known[0] != account:
            self._held[known[0]] -= known[1]
            self._held[account] += known[1]
            self._largest = max(self._largest, self._held[account])
            self._topics[topic_id] = (account, known[1])
