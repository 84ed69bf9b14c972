"""Bounds a plan by the free space of the brokers' disks, and leaves out moves that do not fit.

Called by `plan` with a plan that was made by counts. A tenth of each disk stays free, since clients
write while replicas are copied. Replicas that a broker loses do not count as room for those that it
gets, since it is unknown which move ends first. A broker without disk figures is planned by counts
alone, and the plan names it.
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
"""The divisor of a disk's size that gives its reserve: 1/RESERVE_SHARE of each disk stays free."""
GOES_ON = "the move then goes on by itself"


class DiskRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The room on the file system of a broker's logs, in bytes. `free_bytes`: the free space, less
    what running copies will still write; `all_bytes`: the size of the file system."""

    free_bytes: int
    all_bytes: int

    @property
    def reserve_bytes(self) -> int:
        return self.all_bytes // RESERVE_SHARE

    @property
    def room_bytes(self) -> int:
        """Return the bytes of replicas that may be added. It is negative if the reserve is in use
        already."""
        return self.free_bytes - self.reserve_bytes

    @property
    def sentence(self) -> str:
        return (
            f"{bytes_text(self.free_bytes)} of {bytes_text(self.all_bytes)} are free, of which"
            f" {bytes_text(self.reserve_bytes)} are kept for what clients write"
        )


Rooms = Mapping[BrokerId, DiskRoom]


def overfilled(plan: Plan, rooms: Rooms) -> dict[BrokerId, int]:
    """Return the bytes that the plan adds to each broker that has not enough room for them, by
    broker id. Brokers without figures are left out."""
    incoming = _incoming(plan.moves)
    return {
        broker: size
        for broker, size in sorted(incoming.items())
        if broker in rooms and size > rooms[broker].room_bytes
    }


def without_figures(plan: Plan, rooms: Rooms) -> tuple[BrokerId, ...]:
    """Return the brokers to which the plan adds replicas and of which no disk figures are known."""
    return tuple(sorted(broker for broker in _incoming(plan.moves) if broker not in rooms))


def bounded(plan: Plan, rooms: Rooms) -> Plan | Refusal:
    """Return the plan without the moves for which a disk has no room, or a refusal if no move
    remains. The plan must be overfilled (`overfilled`); earlier moves of the plan get the room
    first."""
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
            f"{counted(len(left), 'partition')} stay where they are, because a disk has no room: "
            f"on broker {broker} {rooms[broker].sentence}. To move these partitions too, enlarge "
            "storage.size."
        ),
    )
    return replace(
        plan,
        moves=tuple(kept),
        loads=_loads(plan, left),
        relaxations=(relaxed, *plan.relaxations),
    )


def no_room(over: Mapping[BrokerId, int], rooms: Rooms, then: str = GOES_ON) -> Refusal:
    """Return the refusal of a plan that adds the bytes `over` to brokers without room for them.
    `over` must not be empty; the message names the broker with the lowest id. `then` ends the
    message: what happens, or is to be done, once there is room."""
    broker = min(over)
    return Refusal(
        reason=Reason.DiskFull,
        message=(
            f"The move would copy {bytes_text(over[broker])} to broker {broker}, whose disk has "
            f"no room for that: {rooms[broker].sentence}. Enlarge storage.size, add brokers, or "
            f"delete records: {then}."
        ),
    )


def _incoming(moves: tuple[Move, ...]) -> Counter[BrokerId]:
    incoming: Counter[BrokerId] = Counter()
    for move in moves:
        for broker in move.adding:
            incoming[broker] += move.size_bytes or 0
    return incoming


def _loads(plan: Plan, left: list[Move]) -> tuple[BrokerLoad, ...]:
    """Return the plan's loads as they are if the moves in `left` are not done."""
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
