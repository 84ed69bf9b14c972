"""Refuses moves for which brokers have no room: on their disks, or for more replicas.

Called before a move begins, for Reassignment and Topic objects and for clients, and while moves
run. Brokers report their disks, and for how many replicas they have memory, with heartbeats; the
reports are not logged, and old ones of disks are not used. The bytes that running copies will still
write are subtracted from the free room. A broker that has not reported is not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import Ids
from plimsoll_core.controller.kernel.replica_figures import most_replicas
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text
from plimsoll_core.planner.disk_room import GOES_ON, DiskRoom, no_room
from plimsoll_core.planner.replica_room import beyond_memory

DISK_FULL = "DiskFull"
FRESH_MS = 60_000
"""The greatest age of a broker's report on its disk that is used, in milliseconds. Each heartbeat
brings a new one."""


class MoveRoom:
    """The brokers' room during one turn, less what moves that this turn begins take of it. `then`
    says what a person does when there is room again."""

    def __init__(self, turn: DecisionContext, then: str = GOES_ON) -> None:
        self._turn, self._then = turn, then
        self._most = most_replicas(turn.image, turn.soft)
        self._rooms = disk_rooms(turn.image, turn.soft, turn.now_ms)
        self._bytes: Counter[BrokerId] = Counter()
        self._replicas: Counter[BrokerId] = Counter()

    def refusal(self, targets: Iterable[tuple[Partition, Ids]]) -> Refusal | None:
        """Refuse moves that together add more bytes to a broker than its disk has room for, or more
        replicas than it has memory for. Unknown sizes count as 0."""
        incoming, added = self._added(targets)
        for broker in sorted(self._most.keys() & added.keys()):
            hosted = len(self._turn.image.hosted.get(broker, ()))
            after = hosted + self._replicas[broker] + added[broker]
            if after > self._most[broker]:
                return beyond_memory(broker, after, self._most[broker])
        rooms = self._rooms
        all_ = {b: n + self._bytes[b] for b, n in incoming.items() if b in rooms}
        over = {b: n for b, n in all_.items() if n > rooms[b].room_bytes}
        return no_room(over, rooms, self._then) if over else None

    def take(self, p: Partition, target: Ids) -> None:
        """Count a move that begins. `refusal` has been called for it."""
        incoming, added = self._added([(p, target)])
        self._bytes.update(incoming)
        self._replicas.update(added)

    def _added(
        self, targets: Iterable[tuple[Partition, Ids]]
    ) -> tuple[Counter[BrokerId], Counter[BrokerId]]:
        """Return the bytes and the replicas that the moves add to each broker."""
        incoming: Counter[BrokerId] = Counter()
        added: Counter[BrokerId] = Counter()
        for p, target in targets:
            for broker in target:
                if broker not in p.replicas:
                    incoming[broker] += self._turn.soft.sizes.get(p.key, 0)
                    added[broker] += 1
        return incoming, added


def disk_rooms(image: ClusterImage, soft: VolatileState, now_ms: int) -> dict[BrokerId, DiskRoom]:
    """Return the free room on the disk of each broker that has reported it within `FRESH_MS`, less
    what running copies will still write there. Other brokers are left out."""
    pending: Counter[BrokerId] = Counter()
    for key in soft.moving:
        p = image.partitions.get(key)
        for broker in p.adding if p is not None else ():
            pending[broker] += _left(soft, key, broker)
    found = {}
    for broker, disk in _disks(soft, now_ms):
        found[broker] = DiskRoom(
            free_bytes=disk.free_bytes - pending[broker], all_bytes=disk.all_bytes
        )
    return found


def stuck_on_disk(turn: DecisionContext, p: Partition) -> str | None:
    """Return a sentence if a disk is too full for a copy of this moving partition to end, or
    None."""
    waiting = [b for b in p.adding if b not in p.isr and turn.acceptable(b)]
    if not waiting:
        return None
    disks = dict(_disks(turn.soft, turn.now_ms))
    for broker in waiting:
        disk = disks.get(broker)
        if disk is None:
            continue
        left = _left(turn.soft, p.key, broker)
        out = not turn.may_lead(broker, p)
        if disk.free_bytes < left or (out and disk.room_bytes < 0):
            return (
                f"The disk of broker {broker} is too full for the move: "
                f"{bytes_text(disk.free_bytes)} of {bytes_text(disk.all_bytes)} are free, and "
                f"{bytes_text(left)} of partition {turn.image.name_of(p)} "
                "are still to be copied. Enlarge storage.size, delete records, or cancel the "
                "move."
            )
    return None


def _disks(soft: VolatileState, now_ms: int) -> Iterable[tuple[BrokerId, DiskRoom]]:
    for broker, contact in soft.contacts.items():
        figures = contact.figures
        if figures is None or figures.disk_free_bytes is None or not figures.disk_bytes:
            continue
        if now_ms - contact.last_ms <= FRESH_MS:
            yield (
                broker,
                DiskRoom(free_bytes=figures.disk_free_bytes, all_bytes=figures.disk_bytes),
            )


def _left(soft: VolatileState, key: PartitionKey, broker: BrokerId) -> int:
    """Return the number of bytes that the broker still has to copy of the partition, as far as
    sizes are known."""
    copies = soft.copies.get(key, {})
    size = max([soft.sizes.get(key, 0), *copies.values()])
    return max(0, size - copies.get(broker, 0))
