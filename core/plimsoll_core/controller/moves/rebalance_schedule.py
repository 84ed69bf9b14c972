"""Schedules a running Rebalance: which moves have ended, which may begin, which must wait.

Called by `rebalance_object` for each pass over the plan (`Look`). Moves begin in the plan's order,
each as soon as all brokers that it burdens have room and its partition can be moved; reorders,
which copy nothing, begin when no move waits for room any more. A partition that has changed since
the plan was made is left as it is. Source: the protocol's rule for the full rebalance (at most W
partitions per broker, only partitions with at least min ISR in sync).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, RebalanceMove, RebalanceRest
from plimsoll_core.cluster.move_owners import Mover, mover_of
from plimsoll_core.controller.kernel.availability_margin import away as absences
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.moves.move_room import DISK_FULL, disk_rooms, stuck_on_disk
from plimsoll_core.controller.moves.partition_move import check_absent, check_target, contradicts
from plimsoll_core.controller.moves.target_choice import (
    is_lost,
    waited_for,
)
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import MoveLimits
from plimsoll_core.planner.disk_room import no_room

TARGET_DOWN = "TargetDown"
NO_LEADER = "NoLeader"
UNDER_MIN_ISR = "UnderMinISR"
TOO_LARGE = "TooLarge"
OTHERS = "ReassignmentInProgress"

Row = tuple[RebalanceMove, Partition]


@dataclass(slots=True, kw_only=True)
class PendingMoves:
    """The waiting moves, for a Rebalance's status. `down` maps each inactive broker to the moves
    that wait for it. `others` maps any other reason, such as UnderMinISR, to a pair: the sentence
    about the first move that waits for that reason, and the number of moves that do."""

    down: dict[BrokerId, list[Row]] = field(default_factory=dict)
    others: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, reason: str, sentence: str) -> None:
        first, count = self.others.get(reason, (sentence, 0))
        self.others[reason] = (first, count + 1)


@dataclass(slots=True, kw_only=True)
class Look:
    """The moves of a Rebalance by their state, as one pass over the plan found them.

    `moving` are under way. `claimed` were recorded as begun, but their partition was not changed
    yet. `begin` may begin now. `moved` and `dropped` have the plan numbers of moves that ended.
    `lost` add a replica on a broker that is lost (`target_choice.is_lost`). `stuck` has the reasons
    why moves under way stall, `waits` the reasons why others have not begun. `more` is True if
    moves are left for the next turn.
    """

    moving: list[Row] = field(default_factory=list)
    claimed: list[RebalanceMove] = field(default_factory=list)
    begin: list[Row] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    lost: list[Row] = field(default_factory=list)
    stuck: PendingMoves = field(default_factory=PendingMoves)
    waits: PendingMoves = field(default_factory=PendingMoves)
    more: bool = False


def settle(turn: DecisionContext, rest: RebalanceRest, look: Look) -> None:
    """Add the moves that were begun (`rest.active`) to `look`: to `moving` if the partition is
    being moved, to `moved` if it has the new replicas, to `claimed` if it still has the former
    ones, else to `dropped`. Add the moving ones that stall to `stuck` and `lost` too."""
    for number in sorted(rest.active.values()):
        move = rest.moves[number]
        p = turn.image.partitions.get(move.key)
        if p is None:
            look.dropped.append(number)
        elif p.moving:
            look.moving.append((move, p))
            _watch(turn, (move, p), look)
        elif p.replicas == move.after:
            look.moved.append(number)
        elif set(p.replicas) == set(move.before):
            look.claimed.append(move)
        else:
            look.dropped.append(number)


def _watch(turn: DecisionContext, row: Row, look: Look) -> None:
    _, p = row
    if p.leader is None:
        look.stuck.add(
            NO_LEADER,
            f"Partition {name(turn, p)} has no leader, so its new replicas cannot be copied yet; "
            "the Rebalance moves it when it has a leader again.",
        )
    if (full := stuck_on_disk(turn, p)) is not None:
        look.stuck.add(DISK_FULL, full)
    missing = waited_for(turn, p)
    for broker in missing:
        look.stuck.down.setdefault(broker, []).append(row)
    if any(is_lost(turn, b) for b in missing):
        look.lost.append(row)


# --- what may begin -----------------------------------------------------------------------------


def choose_next(
    turn: DecisionContext,
    rest: RebalanceRest,
    look: Look,
    movers: list[Mover],
    limits: MoveLimits,
) -> None:
    """Add the moves that may begin now to `look.begin`, at most one slice. Add moves that turn out
    to be done or impossible, and the reasons of those that wait, to the other parts of `look`.
    `movers` are the other objects that are moving partitions. `limits` bounds the moves that run at
    the same time."""
    room = _Room(limits)
    space = _Space(turn)
    for move in (*(move for move, _ in look.moving), *look.claimed):
        room.take(move)
    claims = (_judge(turn, move, look, movers) for move in look.claimed)
    look.begin += [row for row in claims if row is not None]
    left = turn.settings.slice_partitions_max - len(look.begin)
    active = frozenset(rest.active.values())
    full = False
    for number, move in sorted(rest.moves.items()):
        if number in active:
            continue
        if not room.fits(move):
            full = True
            continue
        if full and not burdened(move):
            break  # reorders come when no move waits for room
        row = _judge(turn, move, look, movers)
        if row is None:
            continue
        if limits.max_bytes is not None and move.copied_bytes > limits.max_bytes:
            look.waits.add(TOO_LARGE, _too_large(turn, row, limits.max_bytes))
            continue
        if lacking := space.lacks(move):
            look.waits.add(DISK_FULL, lacking)
            continue
        if left <= 0:
            look.more = True
            break
        space.take(move)
        left -= 1
        room.take(move)
        look.begin.append(row)


def _judge(
    turn: DecisionContext, move: RebalanceMove, look: Look, movers: list[Mover]
) -> Row | None:
    """Return the move with its partition if it may begin. Otherwise record the reason in `look` and
    return None."""
    p = turn.image.partitions.get(move.key)
    if p is None:
        look.dropped.append(move.number)
        return None
    if not p.moving and p.replicas == move.after:
        look.moved.append(move.number)
        return None
    held = mover_of(movers, p.key)
    if p.moving or held is not None:
        look.waits.add(OTHERS, moved_by(turn, p, held))
        return None
    topic = turn.image.topics[p.topic_id]
    changed = set(p.replicas) != set(move.before) or contradicts(topic, p, move.after)
    if changed or _leaves(turn, move):
        look.dropped.append(move.number)
        return None
    row = (move, p)
    away = [b for b in move.adding if not turn.acceptable(b)]
    for broker in away:
        look.waits.down.setdefault(broker, []).append(row)
    if any(is_lost(turn, b) for b in away):
        look.lost.append(row)
    if away:
        return None
    refusal = check_target(turn, p, move.after)
    if refusal is None and burdened(move):
        refusal = check_absent(p, name(turn, p), p.isr, move.after, absences(turn.image))
    if refusal is not None:
        look.waits.add(refusal.reason.name, f"{topic.name}: {refusal.message}")
        return None
    return row if _may_move(turn, row, look) else None


def _leaves(turn: DecisionContext, move: RebalanceMove) -> bool:
    """Return True if a broker that the move adds takes no new replicas, because it is leaving or
    gone. Waiting does not help then."""
    return not all(turn.image.takes_replicas(b) for b in move.adding)


def _may_move(turn: DecisionContext, row: Row, look: Look) -> bool:
    move, p = row
    if not burdened(move):
        return True
    if p.leader is None:
        look.waits.add(
            NO_LEADER,
            f"Partition {name(turn, p)} has no leader, so its new replicas cannot be copied yet; "
            "the Rebalance moves it when it has a leader again.",
        )
    elif len(p.isr) < p.effective_min_isr:
        text = (
            f"Partition {name(turn, p)} has {len(p.isr)} replicas in sync, fewer than min ISR "
            f"{p.effective_min_isr}; the Rebalance moves it when enough replicas are in sync."
        )
        look.waits.add(UNDER_MIN_ISR, text)
    else:
        return True
    return False


def _too_large(turn: DecisionContext, row: Row, max_bytes: int) -> str:
    move, p = row
    return (
        f"The move of partition {name(turn, p)} copies {move.copied_bytes} bytes, more than "
        f"limits.maxBytes allows at the same time ({max_bytes}); raise limits.maxBytes to at "
        f"least {move.copied_bytes}."
    )


def burdened(move: RebalanceMove) -> tuple[BrokerId, ...]:
    """Return the brokers that the move burdens: those that get or lose a replica, and the first
    former replica, which is the source of the copy. Return none if the move only reorders
    replicas."""
    changed = (*move.adding, *move.removing)
    if not changed or move.before[0] in changed:
        return changed
    return (move.before[0], *changed)


class _Space:
    """The free bytes on the brokers' disks, less what running copies will still write."""

    def __init__(self, turn: DecisionContext) -> None:
        self._sizes = turn.soft.sizes
        self._disks = disk_rooms(turn.image, turn.soft, turn.now_ms)

    def lacks(self, move: RebalanceMove) -> str:
        """Return a sentence that names a broker without room for the move, or "" if there is
        room."""
        size, disks = self._size(move), self._disks
        over = {b: size for b in move.adding if b in disks and size > disks[b].room_bytes}
        return no_room(over, disks).message if over else ""

    def take(self, move: RebalanceMove) -> None:
        for b in move.adding:
            if (disk := self._disks.get(b)) is not None:
                self._disks[b] = replace(disk, free_bytes=disk.free_bytes - self._size(move))

    def _size(self, move: RebalanceMove) -> int:
        return self._sizes.get(move.key, move.size or 0)


class _Room:
    """The limits on moves that run at the same time, and their present use. `fits` is called for
    thousands of moves in each pass."""

    def __init__(self, limits: MoveLimits) -> None:
        self._limits = limits
        self._busy: dict[BrokerId, int] = {}
        self._full: set[BrokerId] = set()
        self._bytes = 0

    def fits(self, move: RebalanceMove) -> bool:
        full, before, after = self._full, move.before, move.after
        if full:
            for broker in after:
                if broker in full and broker not in before:
                    return False
            for broker in before:
                if broker in full and broker in burdened(move):
                    return False
        most = self._limits.max_bytes
        return most is None or not self._bytes or self._bytes + move.copied_bytes <= most

    def take(self, move: RebalanceMove) -> None:
        self._bytes += move.copied_bytes
        for broker in burdened(move):
            busy = self._busy[broker] = self._busy.get(broker, 0) + 1
            if busy >= self._limits.concurrent_moves_per_broker:
                self._full.add(broker)


def moved_by(turn: DecisionContext, p: Partition, held: Mover | None) -> str:
    """Return a sentence that says which mover the Rebalance waits for before it moves the
    partition. `held` is the object that holds the partition, until all moves of that object have
    ended. None means that a client is moving it, or that the mover is not known any more."""
    if held is not None and not p.moving:
        return (
            f"The Rebalance moves partition {name(turn, p)} when all moves of {held} have ended, "
            "because that object names the partition too."
        )
    mover = "Another request" if held is None else str(held)
    return (
        f"{mover} moves partition {name(turn, p)}; the Rebalance waits until that move has ended."
    )


def name(turn: DecisionContext, p: Partition) -> str:
    return turn.image.name_of(p)
