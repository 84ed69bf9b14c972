"""Bounds a plan by the free space of the brokers' disks, and leaves out moves that do not fit.

Called by the planner's switch with a plan that was made by counts.  A tenth of each disk stays
free: clients go on writing while replicas are copied.  What a broker gives away is not counted as
room for what it gets, since it is unknown which ends first.  A broker of which no figure is known
is planned by counts alone, and the plan names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text, counted
from plimsoll_core.planner.outcome import BrokerLoad, Level, Move, Plan, Relaxation

RESERVE_SHARE = 10
"""The reserve: one part in so many of each disk stays free."""


class DiskRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The room on the file system of a broker's logs, in bytes: free bytes less those that running
    copies will take, and the total."""

    free_bytes: int
    all_bytes: int

    @property
    def reserve_bytes(self) -> int:
        return self.all_bytes // RESERVE_SHARE

    @property
    def room_bytes(self) -> int:
        """Return the room for added replicas, in bytes; negative if the reserve is already in
        use."""
        return self.free_bytes - self.reserve_bytes

    @property
    def sentence(self) -> str:
        return (
            f"{bytes_text(self.free_bytes)} of {bytes_text(self.all_bytes)} are free, of which"
            f" {bytes_text(self.reserve_bytes)} are kept for what clients write"
        )


Rooms = Mapping[BrokerId, DiskRoom]


def overfilled(plan: Plan, rooms: Rooms) -> dict[BrokerId, int]:
    """Return the brokers with a reserve that the plan would use, and the bytes that it adds to
    each."""
    incoming = _incoming(plan.moves)
    return {
        broker: size
        for broker, size in sorted(incoming.items())
        if broker in rooms and size > rooms[broker].room_bytes
    }


def without_figures(plan: Plan, rooms: Rooms) -> tuple[BrokerId, ...]:
    """Return the brokers that get data, and report nothing of their disks."""
    return tuple(sorted(broker for broker in _incoming(plan.moves) if broker not in rooms))


def bounded(plan: Plan, rooms: Rooms) -> Plan | Refusal:
    """Return the plan without moves that a disk has no room for; a refusal if none remain."""
    over = overfilled(plan, rooms)
    taken: Counter[BrokerId] = Counter()
    kept: list[Move] = []
    left: list[Move] = []
    for move in plan.moves:
        size = move.size_bytes or 0
        if all(b not in rooms or taken[b] + size <= rooms[b].room_bytes for b in move.adding):
            taken.update(dict.fromkeys(move.adding, size))
            kept.append(move)
        else:
            left.append(move)
    if not kept:
        return no_room(over, rooms)
    broker = min(over)
    relaxed = Relaxation(
        rule="DiskSpace",
        message=(
            f"{counted(len(left), 'partition')} stay where they are, because a disk has no room:"
            f" on broker {broker} {rooms[broker].sentence}. With a larger volume they move too."
        ),
    )
    return replace(
        plan,
        moves=tuple(kept),
        loads=_loads(plan, left),
        relaxations=(relaxed, *plan.relaxations),
    )


def no_room(over: Mapping[BrokerId, int], rooms: Rooms) -> Refusal:
    """Refuse a plan: none keeps the reserve."""
    broker = min(over)
    return Refusal(
        reason=Reason.DiskFull,
        message=(
            f"Broker {broker} would get {bytes_text(over[broker])}, and its disk has no room for"
            f" that: {rooms[broker].sentence}. Enlarge storage.size, add brokers, or delete"
            " records; it goes on by itself."
        ),
    )


def _incoming(moves: tuple[Move, ...]) -> Counter[BrokerId]:
    incoming: Counter[BrokerId] = Counter()
    for move in moves:
        for broker in move.adding:
            incoming[broker] += move.size_bytes or 0
    return incoming


def _loads(plan: Plan, left: list[Move]) -> tuple[BrokerLoad, ...]:
    """Return the loads without these moves."""
    replicas: Counter[BrokerId] = Counter()
    leaders: Counter[BrokerId] = Counter()
    sizes: Counter[BrokerId] = Counter()
    for move in left:
        leaders[move.before[0]] += 1
        leaders[move.after[0]] -= 1
        for brokers, sign in ((move.removing, 1), (move.adding, -1)):
            for broker in brokers:
                replicas[broker] += sign
                sizes[broker] += sign * (move.size_bytes or 0)
    return tuple(
        replace(
            load,
            replicas=_changed(load.replicas, replicas[load.broker]),
            leaders=_changed(load.leaders, leaders[load.broker]),
            size_bytes=_changed(load.size_bytes, sizes[load.broker]),
        )
        for load in plan.loads
    )


def _changed(level: Level, by: int) -> Level:
    return replace(level, after=level.after + by)
