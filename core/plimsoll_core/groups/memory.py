"""The memory of groups on a broker, and the principals to which it is charged.

A group belongs to the principal that began it, for as long as it exists: all its offsets, metadata,
members and assignments are charged to that principal, whichever principal commits or joins later.
Each of its records names the principal, so that a load charges the same one; a group from records
without one (of an older release) has no owner until a principal writes to it.

`GroupMemory` is the budget of all shards of a broker. Clients' writes are admitted before they are
made (`admits`). The contents of a log are only counted (`ShardMemory.change`), and unloaded again
if they are too much. Bytes are estimates from above, measured with CPython 3.11. Source:
docs/security.md, "What one principal may hold".
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from plimsoll_core.groups.classic_group import ClassicGroup, protocol_bytes
from plimsoll_core.groups.record_rate import RecordRate
from plimsoll_core.groups.records import GroupStored
from plimsoll_core.groups.settings import GROUPS_MAX, SEATS_MAX
from plimsoll_core.quotas.fair_pool import FairPool

GROUP_BYTES = 1_024
"""Bytes charged for a group: its name, state and deadlines."""
TOPIC_BYTES = 320
"""Bytes charged for each topic of a group, with its table of partitions."""
OFFSET_BYTES = 208
"""Bytes charged for each committed offset, besides its metadata."""
PENDING_BYTES = 768
"""Bytes charged for each offset in an open transaction, besides its metadata: in its group, and
among those of its producer."""
GENERATION_BYTES = 512
MEMBER_BYTES = 1_536
"""Bytes charged for each member of a stored generation, besides its own data."""
SEAT_BYTES = 3_072
"""Bytes charged for each member, or reserved member id, in the coordinator's memory."""
UNLOADED_BYTES = 320
"""Bytes charged for a group of which only the name is kept."""
PRINCIPAL_MAX = 255
"""The number of characters of a principal's name that are kept. Longer names with the same
beginning share an account."""
BYTES_ASSUMED = 2**30 // 8
"""The budget in bytes of a broker without a stated memory: an eighth of a gibibyte."""
_RESERVE_PART = 8
"""The divisor of the budget: 1/_RESERVE_PART of it is reserved for deletions of groups that are not
loaded, so that groups can be deleted however full the budget is."""


class GroupMemory:
    """Bounds the memory of all groups that one broker coordinates, and shares it fairly among the
    principals that own them. `budget`: in bytes. `rate`: the rate of these principals' records."""

    __slots__ = ("budget", "pool", "rate", "wants_room")

    def __init__(self, budget: int = BYTES_ASSUMED) -> None:
        self.budget = budget
        self.pool = FairPool(budget - budget // _RESERVE_PART)
        self.rate = RecordRate()
        # True if a principal with less than an equal share was refused.  After a failover others
        # may hold nearly all of the pool; groups of theirs are then unloaded.
        self.wants_room = False

    @property
    def is_over(self) -> bool:
        """True if loads have taken more than the pool's capacity, so that groups have to be
        unloaded."""
        return self.pool.used > self.pool.capacity

    @property
    def reserve(self) -> int:
        return self.budget - self.pool.capacity

    def admits(self, principal: str, size: int) -> bool:
        """Return True if the principal may hold `size` bytes more, always for a size of zero or
        less; nothing is reserved. Otherwise count a refusal and return False, and set `wants_room`
        if the principal would not exceed an equal share."""
        if size <= 0 or self.pool.admits(principal, size):
            return True
        self.pool.refused += 1
        newcomer = not self.pool.held(principal)
        equal = self.pool.capacity // (self.pool.principals + newcomer + 1)
        if self.pool.held(principal) + size <= equal:
            self.wants_room = True
        return False


class ShardMemory:
    """The part of a broker's group memory that one shard uses, with the shard's numbers of groups
    and members by principal. `of_broker`: the memory of all shards; None for one of this shard
    alone. Only `groups.state.apply` and `groups.step` write it."""

    __slots__ = ("_closed", "_held", "groups", "of_broker", "seats")

    def __init__(self, of_broker: GroupMemory | None = None) -> None:
        self.of_broker = GroupMemory() if of_broker is None else of_broker
        # Groups, and members with assigned ids, by principal.
        self.groups = FairPool(GROUPS_MAX)
        self.seats = FairPool(SEATS_MAX)
        self._held: Counter[str] = Counter()
        self._closed = False

    @property
    def used(self) -> int:
        return sum(self._held.values())

    def change(self, principal: str, by: int) -> None:
        """Add `by` bytes, which may be negative, to the bytes that the principal holds."""
        if self._closed or not by:
            return
        if by > 0:
            self.of_broker.pool.take(principal, by)
        else:
            self.of_broker.pool.give_back(principal, -by)
        held = self._held[principal] + by
        if held:
            self._held[principal] = held
        else:
            del self._held[principal]

    def close(self) -> None:
        """Release all memory that the shard holds. Later changes are ignored."""
        self._closed = True
        for principal, size in self._held.items():
            self.of_broker.pool.give_back(principal, size)
        self._held.clear()


class SeatsCharged(NamedTuple):
    """The amount that a principal is charged for a group's members in memory, besides the stored
    generation. `seats`: the number of members and reserved member ids."""

    principal: str
    size_bytes: int
    seats: int


def text_bytes(text: str) -> int:
    """Return an upper bound of the bytes that a string's characters take in memory: CPython stores
    all of them with the width of the widest."""
    return len(text) if text.isascii() else 4 * len(text)


def offset_bytes(metadata: str) -> int:
    return OFFSET_BYTES + text_bytes(metadata)


def pending_bytes(metadata: str) -> int:
    return PENDING_BYTES + text_bytes(metadata)


def stored_bytes(stored: GroupStored | None) -> int:
    """Return the bytes charged for a stored generation and for the members built from it; 0 for
    None."""
    if stored is None:
        return 0
    members = sum(
        MEMBER_BYTES
        + text_bytes(one.member_id)
        + text_bytes(one.group_instance_id or "")
        + text_bytes(one.client_id)
        + text_bytes(one.client_host)
        + len(one.subscription)
        + len(one.assignment)
        for one in stored.members
    )
    return GENERATION_BYTES + text_bytes(stored.protocol_type) + members + made_bytes(stored)


def made_bytes(stored: GroupStored | None) -> int:
    """Return the bytes of the members that `ClassicGroup.of_stored` builds from a stored
    generation; 0 for None. A part of `stored_bytes`."""
    if stored is None:
        return 0
    name = stored.protocol or ""
    return sum(
        SEAT_BYTES
        + protocol_bytes(((name, one.subscription),))
        + len(one.client_id)
        + len(one.client_host)
        for one in stored.members
    )


def seated_bytes(group: ClassicGroup | None) -> int:
    """Return the bytes of a group's members and reserved member ids in memory; 0 for None."""
    return 0 if group is None else SEAT_BYTES * group.size + group.size_bytes
