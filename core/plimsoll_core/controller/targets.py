"""Which replicas partitions get when only their number, or whom to leave, is said.

Called when a topic's replication factor changes, and for a Reassignment that leaves the choice
open.  What can stay stays, in its order; new replicas go to racks that the partition does not use
yet, then to the brokers that hold least; what has to go is what nobody needs most.
Source: the protocol's rules for placement with racks and for moving with the fewest copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from plimsoll_core.controller.racks import brokers_have_racks, located
from plimsoll_core.controller.turn import Turn
from plimsoll_core.ids import BrokerId
from plimsoll_core.model import Partition
from plimsoll_core.placement import Row, not_enough
from plimsoll_core.reasons import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A partition that should have `size` replicas, none of them on the brokers in `off`."""

    partition: Partition
    size: int
    off: AbstractSet[BrokerId] = frozenset()


def choose(turn: Turn, wants: Iterable[Want]) -> list[tuple[Partition, Row]] | Refusal:
    """Targets in the order of the wants; earlier choices count as load for later ones."""
    chooser = _Chooser(turn)
    if refusal := brokers_have_racks(turn, chooser.usable):
        return refusal
    found: list[tuple[Partition, Row]] = []
    for want in wants:
        row = chooser.row(want)
        if isinstance(row, Refusal):
            return row
        found.append((want.partition, row))
    return found


class _Chooser:
    """`load`: how many replicas each broker holds, with those that were chosen for it."""

    def __init__(self, turn: Turn) -> None:
        image = turn.image
        self._turn = turn
        self.usable = [image.brokers[broker_id] for broker_id in sorted(turn.active())]
        racks = dict(located(turn, {broker.id for broker in self.usable}))
        counts = bool(racks) and None not in racks.values()
        self._racks = {
            broker.id: broker.rack if counts else None for broker in image.brokers.values()
        }
        self._load = {broker.id: len(image.hosted.get(broker.id, ())) for broker in self.usable}

    def row(self, want: Want) -> Row | Refusal:
        kept = [broker for broker in want.partition.target if broker not in want.off]
        while len(kept) > want.size:
            gone = self._spare(want.partition, kept)
            kept.remove(gone)
            if gone in self._load:
                self._load[gone] -= 1
        while len(kept) < want.size:
            free = [b for b in self._load if b not in kept and b not in want.off]
            if not free:
                return not_enough(want.size, len(kept))
            chosen = min(free, key=lambda broker: self._cost(broker, kept))
            self._load[chosen] += 1
            kept.append(chosen)
        return tuple(kept)

    def _cost(self, broker: BrokerId, kept: list[BrokerId]) -> tuple[bool, int, BrokerId]:
        rack = self._racks[broker]
        used = rack is not None and rack in {self._racks.get(other) for other in kept}
        return used, self._load[broker], broker

    def _spare(self, p: Partition, kept: list[BrokerId]) -> BrokerId:
        """Who goes first: the unfinished, the absent, the second in a rack, the fullest.

        The preferred leader goes last of all who are equal in the first three.
        """
        racks = [self._racks.get(broker) for broker in kept]

        def need(broker: BrokerId) -> tuple[bool, bool, bool, bool, int, int]:
            rack = self._racks.get(broker)
            alone = rack is None or racks.count(rack) == 1
            unfinished = broker in p.adding and broker not in p.isr
            present = self._turn.acceptable(broker)
            load = self._load.get(broker, 0)
            return not unfinished, present, alone, broker == kept[0], -load, -kept.index(broker)

        return min(kept, key=need)
