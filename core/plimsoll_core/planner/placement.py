"""Places the replicas of new partitions.  Called when a topic is created or grows; never moves.

The formula (the placement rule of docs/protocol.md): partition p belongs to one broker i as its
k-th; its first replica is i, and the others follow along the cycle of the *other* brokers, shifted
by k, so that a dead broker's leaderships spread evenly over all survivors.  With racks, the owners
take turns between racks, and followers are chosen so that a partition uses as many racks as it can.
`rack_need` says how many racks a partition keeps when its replicas move (§2.4).

Pure and deterministic: equal inputs give equal placements on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import Literal

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text, ids_text, replicas_text

Row = tuple[BrokerId, ...]
Assignment = tuple[Row, ...]
Located = tuple[BrokerId, str | None]
"""A broker and its rack, None if it has none."""
Placer = Callable[[list[Located]], Assignment | Refusal]
"""The type of a function that places a fixed number of partitions on the given brokers: it returns
their replicas, or a Refusal."""

RackPolicy = Literal["Required", "Preferred", "Ignored"]

ROUND_ROBIN = "RoundRobin"
BLOCKED = "Blocked"
EXPLICIT = "Explicit"


def place(
    brokers: Sequence[Located],
    partitions: int,
    replication_factor: int,
    strategy: str,
    *,
    first: int = 0,
    start: int = 0,
) -> Assignment | Refusal:
    """Return the replicas of partitions `first` … `first + partitions - 1` of one topic, each with
    its preferred leader first, or a Refusal if there are too few brokers or `strategy` is neither
    RoundRobin nor Blocked.

    `start` is the position in the ring of brokers of the first replica of partition 0. When a topic
    grows, it must be the same as at its creation (`start_at`).
    """
    assert partitions >= 1, "nothing to place"
    assert replication_factor >= 1, "a partition has at least one replica"
    if replication_factor > len(brokers):
        return not_enough(replication_factor, len(brokers))
    if strategy not in (ROUND_ROBIN, BLOCKED):
        return Refusal(
            reason=Reason.PlacementInvalid,
            message=f"There is no placement strategy {strategy}; use RoundRobin or Blocked.",
        )
    ring, by_racks = _ring(brokers)
    owners = _owners(len(ring), partitions, strategy, first, start)
    if by_racks:
        # The choice depends on all that was placed before: replay it, then hand out what is new.
        past = _owners(len(ring), first, strategy, 0, start) if first else iter(())
        chooser = _RackChooser(ring, dict(brokers))
        for owner, turn in past:
            chooser.row(owner, turn, replication_factor)
        return tuple(chooser.row(owner, turn, replication_factor) for owner, turn in owners)
    # Rows repeat after n - 1 turns of an owner: most partitions share the tuple of an earlier one.
    period, rows = max(len(ring) - 1, 1), dict[tuple[int, int], Row]()
    placed: list[Row] = []
    for owner, turn in owners:
        row = rows.get((owner, turn % period))
        if row is None:
            row = rows[owner, turn % period] = _row(ring, owner, turn, replication_factor)
        placed.append(row)
    return tuple(placed)


def _ring(brokers: Sequence[Located]) -> tuple[list[BrokerId], bool]:
    """Return the brokers in the order in which they become first replicas, and True if that order
    alternates between racks."""
    racks = {rack for _, rack in brokers}
    by_racks = None not in racks and len(racks) > 1
    return (
        interleave(brokers) if by_racks else [broker for broker, _ in sorted(brokers)]
    ), by_racks


def start_at(brokers: Sequence[Located], first: int) -> int:
    """Return the position in the ring of brokers at which a topic starts: that of the first replica
    of its partition 0 (`first`), or 0 if that broker is not among `brokers`."""
    ring, _ = _ring(brokers)
    return ring.index(BrokerId(first)) if first in ring else 0


def not_enough(replication_factor: int, brokers: int) -> Refusal:
    return Refusal(
        reason=Reason.NotEnoughBrokers,
        message=(
            f"Replication factor {replication_factor} needs {replication_factor} brokers, but only "
            f"{brokers} can hold replicas now. Add brokers or lower the replication factor."
        ),
    )


def start_of(brokers: Sequence[Located], partitions: int, preferred: Mapping[BrokerId, int]) -> int:
    """Return the position in the ring of brokers at which a new topic starts, so that the leaders
    of all topics together are even.

    If the partitions do not divide evenly, the brokers from the start on get one more. So the start
    is where these brokers lead the fewest partitions; among equals, the first at or after the
    position at which the partitions of the other topics together would end. `preferred` is the
    number of partitions of other topics of which each broker is the first replica.
    """
    ring, _ = _ring(brokers)
    n = len(ring)
    more = partitions % n if n else 0
    if not more:
        return 0
    counts = [preferred.get(broker, 0) for broker in ring] * 2
    next_in_turn = sum(counts[:n])

    def cost(start: int) -> tuple[int, int]:
        return sum(counts[start : start + more]), (start - next_in_turn) % n

    return min(range(n), key=cost)


def led_by_active(rows: Assignment, active: AbstractSet[BrokerId]) -> Assignment:
    """Return the rows with an active broker first in each, since only an active broker can lead a
    new partition. A row without active brokers loses its last one and gets an active one in front.
    `active` must not be empty."""
    spare = sorted(active)
    fixed: list[Row] = []
    for number, row in enumerate(rows):
        living = [broker for broker in row if broker in active]
        if living:
            fixed.append((living[0], *(broker for broker in row if broker != living[0])))
        else:
            fixed.append((spare[number % len(spare)], *row[:-1]))
    return tuple(fixed)


def interleave(brokers: Iterable[Located]) -> list[BrokerId]:
    """Return the brokers in an order that takes one of each rack in turn: racks {a: 0, 1, 2; b: 3,
    4, 5} give 0, 3, 1, 4, 2, 5."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker, rack in sorted(brokers):
        by_rack.setdefault(rack or "", []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in rounds for broker in turn if broker is not None]


def check_assignment(
    rows: Assignment, registered: AbstractSet[BrokerId], active: AbstractSet[BrokerId]
) -> Refusal | None:
    """Refuse an explicit assignment with rows that are empty, unequal in length, or name a broker
    twice, one that is not registered, or none that is active. Return None if it is valid."""
    for index, row in enumerate(rows):
        problem = _row_problem(row, len(rows[0]), registered, active)
        if problem:
            return Refusal(
                reason=Reason.InvalidReplicaAssignment,
                message=(
                    f"The assignment of partition {index}, replicas on brokers "
                    f"{replicas_text(row)}, {problem}."
                ),
            )
    return None


def _row_problem(
    row: Row, size: int, registered: AbstractSet[BrokerId], active: AbstractSet[BrokerId]
) -> str | None:
    unknown = sorted(set(row) - registered)
    if not row:
        return "names no broker"
    if len(set(row)) != len(row):
        return "names a broker twice"
    if unknown:
        return f"names brokers that are not registered: {ids_text(unknown)}"
    if len(row) != size:
        return f"has {len(row)} replicas where partition 0 has {size}; they must be equal"
    if not set(row) & active:
        return "has no broker that is running now, so none could lead it"
    return None


def _owners(
    n: int, partitions: int, strategy: str, first: int, start: int
) -> Iterator[tuple[int, int]]:
    """Yield, for each partition, two numbers: the position of its first replica in the ring of
    brokers, and the number of earlier partitions of the topic with the same first replica."""
    if strategy == ROUND_ROBIN:
        for p in range(first, first + partitions):
            yield (p + start) % n, p // n
        return
    share, extra = divmod(partitions, n)
    held, ahead = divmod(first, n)
    for position in range(n):
        # Growth begins behind the brokers that the last block left with one partition more.
        owner = (position + ahead) % n
        had = held + (1 if owner < ahead else 0)
        for k in range(share + (1 if position < extra else 0)):
            yield (owner + start) % n, had + k


def _row(ring: Sequence[BrokerId], owner: int, turn: int, replication_factor: int) -> Row:
    n = len(ring)
    followers = (
        ring[(owner + 1 + (turn + j - 1) % (n - 1)) % n] for j in range(1, replication_factor)
    )
    return (ring[owner], *followers)


class _RackChooser:
    """Chooses the followers of each partition: first brokers in racks that the partition does not
    use yet, among these the brokers used least for this first replica and position."""

    def __init__(self, ring: Sequence[BrokerId], racks: dict[BrokerId, str | None]) -> None:
        self._ring = ring
        self._racks = racks
        self._chosen: dict[tuple[int, int, BrokerId], int] = {}
        self._load = dict.fromkeys(ring, 0)

    def row(self, owner: int, turn: int, replication_factor: int) -> Row:
        row = [self._ring[owner]]
        for slot in range(1, replication_factor):
            follower = self._pick(owner, turn, slot, row)
            key = (owner, slot, follower)
            self._chosen[key] = self._chosen.get(key, 0) + 1
            row.append(follower)
        for broker in row:
            self._load[broker] += 1
        return tuple(row)

    def _pick(self, owner: int, turn: int, slot: int, row: list[BrokerId]) -> BrokerId:
        n = len(self._ring)
        used = {self._racks[broker] for broker in row}
        free = [position for position in range(n) if self._ring[position] not in row]
        fresh = [position for position in free if self._racks[self._ring[position]] not in used]

        def cost(position: int) -> tuple[int, int, int]:
            broker = self._ring[position]
            distance = (position - (owner + turn + slot)) % n
            return self._chosen.get((owner, slot, broker), 0), self._load[broker], distance

        return self._ring[min(fresh or free, key=cost)]


def rack_need(
    home: Sequence[BrokerId],
    row: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    candidates: Sequence[BrokerId],
) -> int:
    """Return the number of distinct racks that a partition has to keep: the racks of `home` or
    those of `row`, whichever are fewer, or, if a vacancy has to be filled, as many as `candidates`
    permit. `home` are its replicas now; `row` those in the plan so far, where a vacancy is an id
    below zero; `candidates` the brokers that may fill it."""
    vacancies = sum(broker < 0 for broker in row)
    kept = {racks[broker] for broker in row if broker in racks}
    if not vacancies:
        return min(racks_of(home, racks), len(kept))
    attainable = kept | {racks[broker] for broker in candidates if broker in racks}
    return min(len(row), len(kept) + vacancies, len(attainable))


def racks_missing(without: Iterable[BrokerId], named_at_most: int | None = None) -> Refusal:
    """Return the refusal of a placement that requires racks while the brokers `without` have none.
    `named_at_most`: the most brokers to name, None for all."""
    return Refusal(
        reason=Reason.InvalidRequest,
        message=(
            f"Racks are required, but {brokers_text(without, named_at_most)} registered without"
            " one. Label their nodes with a rack, then restart these brokers."
        ),
    )


def racks_of(row: Sequence[BrokerId], racks: Mapping[BrokerId, str]) -> int:
    """Return the number of distinct racks of the brokers in a row. A broker without a rack counts
    for none."""
    return len({racks[broker] for broker in row if broker in racks})
