"""The brokers' reports of their disks, as plans and moves use them.

They come with heartbeats and are not logged. A broker of an earlier release sends none, and old
ones are not used. What running copies will still write is subtracted from the free room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text
from plimsoll_core.planner.disk_room import DiskRoom, no_room
from plimsoll_core.planner.placement import Row

DISK_FULL = "DiskFull"
FRESH_MS = 60_000
"""The greatest age of a report that is used, in milliseconds. Each heartbeat brings a new one."""


def disk_rooms(image: ClusterImage, soft: VolatileState, now_ms: int) -> dict[BrokerId, DiskRoom]:
    """Return the free room on the disk of each broker that has reported it lately, less what
    running copies will still write there."""
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


def check_room(turn: DecisionContext, targets: Iterable[tuple[Partition, Row]]) -> Refusal | None:
    """Refuse moves that together add more bytes to a broker than its disk has room for. Unknown
    sizes count as 0, and brokers without a report have room for all."""
    incoming: Counter[BrokerId] = Counter()
    for p, target in targets:
        for broker in target:
            if broker not in p.replicas:
                incoming[broker] += turn.soft.sizes.get(p.key, 0)
    if not incoming:
        return None
    rooms = disk_rooms(turn.image, turn.soft, turn.now_ms)
    over = {b: n for b, n in incoming.items() if b in rooms and n > rooms[b].room_bytes}
    return no_room(over, rooms) if over else None


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
                f"The disk of broker {broker} is full: {bytes_text(disk.free_bytes)} of"
                f" {bytes_text(disk.all_bytes)} are free, and {bytes_text(left)} of"
                f" {turn.image.topics[p.topic_id].name}-{p.index} are missing. Enlarge"
                " storage.size, delete records, or cancel the move."
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
    """Return the number of bytes that the broker has still to copy of the partition, as far as
    sizes are known."""
    copies = soft.copies.get(key, {})
    size = max([soft.sizes.get(key, 0), *copies.values()])
    return max(0, size - copies.get(broker, 0))
