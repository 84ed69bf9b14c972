"""How many distinct racks a partition keeps when its replicas move.

Called when a plan begins (`survey`), and by the goals that choose rows (`draft`, `topic_changes`,
`full_rebalance`).  Source: §2.4 of the protocol; a plan falls short of it only as `fewest_moves`
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll_core.ids import BrokerId


def rack_need(
    home: Sequence[BrokerId],
    row: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    candidates: Sequence[BrokerId],
) -> int:
    """Distinct racks to be kept: as many as today; with a copy to be placed, all that can be."""
    vacancies = sum(broker < 0 for broker in row)
    kept = {racks[broker] for broker in row if broker in racks}
    if not vacancies:
        return min(racks_of(home, racks), len(kept))
    attainable = kept | {racks[broker] for broker in candidates if broker in racks}
    return min(len(row), len(kept) + vacancies, len(attainable))


def racks_of(row: Sequence[BrokerId], racks: Mapping[BrokerId, str]) -> int:
    """Distinct racks of a row."""
    return len({racks[broker] for broker in row if broker in racks})
