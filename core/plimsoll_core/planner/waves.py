"""Cuts a plan into waves: the moves that may run now, and those that wait.

Called repeatedly while a plan runs, with the present partitions; the moves of the first wave may
start. Order decides which move goes first, so equal plans give equal waves. Source: the protocol's
rule for the full rebalance (throttled waves, at most W partitions per broker, only partitions with
at least min ISR in sync)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.outcome import Move, Plan
from plimsoll_core.planner.request import PlanPartition


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one wave. `concurrent_moves_per_broker` counts a move at each broker that gets
    or loses a replica or is copied from. `max_bytes` limits the bytes copied in one wave, as far as
    sizes are known; None means no limit. `reorders` limits the reorders in one wave."""

    concurrent_moves_per_broker: int = 5
    max_bytes: int | None = None
    reorders: int = 1_000


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is in no wave. `reason`: the condition for which it waits; `Gone` if its
    partition was deleted, so that it is never made."""

    move: Move
    reason: Literal["UnderMinISR", "TooLarge", "Gone"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The moves of a plan that are not done, in waves; waves of reorders, which copy nothing, come
    last. `waiting` are the moves that are in no wave."""

    waves: tuple[tuple[Move, ...], ...]
    waiting: tuple[Waiting, ...] = ()


def waves(plan: Plan, partitions: Iterable[PlanPartition], limits: Limits) -> Schedule:
    assert limits.concurrent_moves_per_broker >= 1, "nothing could ever move"
    assert limits.reorders >= 1, "nothing could ever be reordered"
    now = {partition.key: partition for partition in partitions}
    packing = _Packing(limits)
    waiting = []
    for move in plan.moves:
        if _done(move, now):
            continue
        if held_back := _held_back(move, now.get(move.partition), limits):
            waiting.append(held_back)
        else:
            packing.add(move)
    reorders = [move for move in plan.reorders if move.partition in now and not _done(move, now)]
    batches = [
        tuple(reorders[at : at + limits.reorders])
        for at in range(0, len(reorders), limits.reorders)
    ]
    return Schedule(
        waves=(*(tuple(wave) for wave in packing.waves), *batches), waiting=tuple(waiting)
    )


def _done(move: Move, now: dict[PartitionKey, PlanPartition]) -> bool:
    return move.partition in now and now[move.partition].replicas == move.after


def _held_back(move: Move, partition: PlanPartition | None, limits: Limits) -> Waiting | None:
    if partition is None:
        return Waiting(move=move, reason="Gone")
    if partition.isr_margin < 0:
        return Waiting(move=move, reason="UnderMinISR")
    if limits.max_bytes is not None and move.copied_bytes > limits.max_bytes:
        return Waiting(move=move, reason="TooLarge")
    return None


class _Packing:
    """Distributes moves over waves by first fit: each move, in the plan's order, goes into the
    earliest wave in which its brokers and bytes fit the limits."""

    def __init__(self, limits: Limits) -> None:
        self.waves: list[list[Move]] = []
        self._limits = limits
        self._busy: list[dict[BrokerId, int]] = []
        self._bytes: list[int] = []
        self._first_free: dict[BrokerId, int] = {}

    def add(self, move: Move) -> None:
        brokers = sorted({move.before[0], *move.adding, *move.removing})
        at = max(self._first_free.get(broker, 0) for broker in brokers)
        while at < len(self.waves) and not self._fits(at, brokers, move.copied_bytes):
            at += 1
        if at == len(self.waves):
            self.waves.append([])
            self._busy.append({})
            self._bytes.append(0)
        self.waves[at].append(move)
        self._bytes[at] += move.copied_bytes
        for broker in brokers:
            self._busy[at][broker] = self._busy[at].get(broker, 0) + 1
            self._skip_full(broker)

    def _fits(self, at: int, brokers: list[BrokerId], copied_bytes: int) -> bool:
        most, busy = self._limits.max_bytes, self._busy[at]
        if most is not None and self._bytes[at] + copied_bytes > most:
            return False
        return all(
            busy.get(broker, 0) < self._limits.concurrent_moves_per_broker for broker in brokers
        )

    def _skip_full(self, broker: BrokerId) -> None:
        at, most = self._first_free.get(broker, 0), self._limits.concurrent_moves_per_broker
        while at < len(self.waves) and self._busy[at].get(broker, 0) >= most:
            at += 1
        self._first_free[broker] = at
