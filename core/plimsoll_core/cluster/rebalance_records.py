"""Applies the records of Rebalances to an image: a part of `image`, which lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage, RebalanceRest


def noted(image: ClusterImage, record: r.RebalanceNoted) -> ClusterImage:
    row = record.rebalance
    uid, rests = row.object.uid, image.rebalance_rests
    if row.phase == "Beginning":
        rests = rests.set(uid, RebalanceRest())
    elif row.phase != "Running" and uid in rests:
        rests = rests.delete(uid)
    return replace(image, rebalances=image.rebalances.set(uid, row), rebalance_rests=rests)


def moves_added(image: ClusterImage, record: r.RebalanceMovesAdded) -> ClusterImage:
    """Add moves to the plan of a Rebalance. If it is running, `total` grows by the new partitions;
    while it is beginning, `total` includes them already."""
    uid, row = record.uid, image.rebalances[record.uid]
    rest = image.rebalance_rests[uid]
    moves = rest.moves.mutate()
    total, replicas = row.total, row.replicas
    for move in record.moves:
        known = moves.get(move.number)
        assert known is None or known.key == move.key, "a number stays with its partition"
        moves[move.number] = move
        total += known is None
        replicas += len(move.adding) - (0 if known is None else len(known.adding))
    if row.phase == "Running":
        row = replace(row, total=total, replicas=replicas)
        image = replace(image, rebalances=image.rebalances.set(uid, row))
    return _with_rest(image, uid, replace(rest, moves=moves.finish()))


def advanced(image: ClusterImage, record: r.RebalanceAdvanced) -> ClusterImage:
    rest, row = image.rebalance_rests[record.uid], image.rebalances[record.uid]
    moves, active = rest.moves.mutate(), rest.active.mutate()
    for number in record.begun:
        active[moves[number].key] = number
    copied = 0
    for number in record.moved:
        move = moves.pop(number)
        active.pop(move.key, None)
        copied += len(move.adding)
    for number in record.dropped:
        active.pop(moves.pop(number).key, None)
    row = replace(
        row,
        moved=row.moved + len(record.moved),
        replicas_moved=row.replicas_moved + copied,
        dropped=row.dropped + len(record.dropped),
    )
    image = replace(image, rebalances=image.rebalances.set(record.uid, row))
    return _with_rest(
        image, record.uid, RebalanceRest(moves=moves.finish(), active=active.finish())
    )


def _with_rest(image: ClusterImage, uid: str, rest: RebalanceRest) -> ClusterImage:
    return replace(image, rebalance_rests=image.rebalance_rests.set(uid, rest))


def forgotten(image: ClusterImage, record: r.RebalanceForgotten) -> ClusterImage:
    rests = image.rebalance_rests
    return replace(
        image,
        rebalances=image.rebalances.delete(record.uid),
        rebalance_rests=rests.delete(record.uid) if record.uid in rests else rests,
    )


APPLIERS: dict[type, Callable[[ClusterImage, Any], ClusterImage]] = {
    r.RebalanceNoted: noted,
    r.RebalanceMovesAdded: moves_added,
    r.RebalanceAdvanced: advanced,
    r.RebalanceForgotten: forgotten,
}
"""A part of `image`'s table."""
