"""Progress of a Rebalance: what is left to move and copy, and the time for it. Pure.

Called by `rebalance_status`. Shown to people; no decision depends on it.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, Rebalance, RebalanceRest
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.rebalance import Progress
from plimsoll_operator.status.copy_meter import Copies, Meter


def progress_of(
    row: Rebalance, image: ClusterImage, meter: Meter, copies: Copies, now_ms: int, wall_ms: int
) -> Progress:
    """Return the progress. `copies`: copy sizes that brokers reported, as of `now_ms`
    (monotonic)."""
    rest = image.rebalance_rests.get(row.object.uid)
    if rest is None:
        return Progress(
            replicas_moved=row.replicas_moved,
            wave=row.waves if row.phase == "Completed" else 0,
            lowest_isr_margin=row.lowest_isr_margin,
        )
    moving = [image.partitions[key] for key in rest.active if key in image.partitions]
    measured = meter.read([p for p in moving if p.moving], copies, now_ms)
    left = measured.left + _waiting_bytes(rest)
    rate = measured.rate
    return Progress(
        replicas_moved=row.replicas_moved,
        partitions_left=len(rest.moves),
        bytes_left=binary(left),
        eta_seconds=None if row.paused else eta_seconds(row, wall_ms, left, rate),
        wave=min((move.wave for move in rest.moves.values()), default=row.waves),
        lowest_isr_margin=row.lowest_isr_margin,
    )


def eta_seconds(row: Rebalance, wall_ms: int, left: int, rate: int | None) -> int | None:
    """Estimate by bytes and by partitions and return the longer: many small partitions cost rounds,
    not bytes.

    `left`: bytes; `rate`: bytes a second, None if unknown.
    """
    found = [-(-left // rate)] if rate else []
    elapsed_ms = wall_ms - row.started_ms
    if row.moved and elapsed_ms > 0:
        partitions = max(0, row.total - row.moved - row.dropped)
        found.append(-(-partitions * elapsed_ms // (row.moved * 1000)))
    return max(found, default=None)


def _waiting_bytes(rest: RebalanceRest) -> int:
    active = frozenset(rest.active.values())
    return sum(move.copied_bytes for move in rest.moves.values() if move.number not in active)
