"""Decides whether a broker may leave a partition: one answer for restarts, drains, moves and
cancels.

Called inside decisions, with the image that includes everything queued, and for statuses that show
why an action waits. A partition holds a broker back if too few replicas would stay in sync without
it and without the brokers that are already away. A broker with a restart grant counts as away from
the grant on, not from the moment its process stops. A partition that moves is judged twice, as it
is now and as it is when the move ends, because the move may end while the broker is away.

A broker that is not in sync but catching up may not leave a partition below its min ISR either. A
replica is not catching up, and delays no restart, if its broker is not active, if its log is
offline, or if it may join no ISR before a granted restart (`ClusterImage.restart_granted`).
Partitions that have no more replicas than their min ISR can never spare a broker: they are
*exposed*. A policy decides whether these are interrupted (while all their replicas are in sync) or
hold every restart back. Nothing here knows why a broker is to leave.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nsmallest
from typing import Literal

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text, is_or_are

ExposedTopics = Literal["Interrupt", "Block"]
"""The policy for partitions with no more replicas than their min ISR. Interrupt: a restart may make
them unavailable for a moment. Block: they hold back every restart."""

HOLDS_MAX = 20
"""The most partitions that one answer names."""

NOBODY: frozenset[BrokerId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A partition that a broker may not leave now. `spare`: the number of in-sync replicas without
    the broker, less the required number; it is negative. `until`: the condition that ends the hold,
    as the end of a sentence after "until"."""

    broker_id: BrokerId
    topic: str
    index: int
    spare: int
    reason: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The partitions that hold a broker back: their number, and the worst of them (at most
    `HOLDS_MAX`). The object is false if there are none."""

    total: int = 0
    worst: tuple[Hold, ...] = ()

    def __bool__(self) -> bool:
        return self.total > 0


def away(image: ClusterImage) -> frozenset[BrokerId]:
    """Return the brokers with a restart grant. They count as away even while they are in sync."""
    return frozenset(image.grants)


def exposed(p: Partition) -> bool:
    """Return True if the partition has no more replicas than its min ISR, so that any broker that
    leaves takes it below min ISR."""
    return len(p.settled) <= p.effective_min_isr


def holds(
    image: ClusterImage,
    broker_id: BrokerId,
    absent: AbstractSet[BrokerId],
    policy: ExposedTopics = "Interrupt",
    failed: Container[PartitionKey] = (),
) -> Holds:
    """Return the partitions that hold back a broker's restart, those with the least `spare` first.
    `absent`: the other brokers that are away. `failed`: the partitions for which this broker's log
    is offline."""
    broker = image.brokers.get(broker_id)
    active = broker is not None and broker.active and not image.restart_granted(broker_id)
    found = []
    for key in image.hosted.get(broker_id, ()):
        p = image.partitions[key]
        spare = _held(p, broker_id, absent, policy, joins=active and key not in failed)
        if spare is not None:
            found.append((spare, image.topics[p.topic_id].name, p.index, p))
    worst = nsmallest(HOLDS_MAX, found, key=lambda row: row[:3])
    return Holds(
        total=len(found),
        worst=tuple(_explain(p, topic, broker_id, absent, spare) for spare, topic, _, p in worst),
    )


def may_leave(
    p: Partition,
    broker_id: BrokerId,
    absent: AbstractSet[BrokerId],
    policy: ExposedTopics = "Interrupt",
    *,
    joins: bool = True,
) -> bool:
    """Return True if the broker may leave the partition while all brokers in `absent` are away.
    `joins` is True if its replica is in the ISR or may join it soon. A replica that is outside the
    ISR and does not join may always leave."""
    return _held(p, broker_id, absent, policy, joins=joins) is None


def may_become(
    p: Partition, isr: Sequence[BrokerId], target: Sequence[BrokerId], absent: AbstractSet[BrokerId]
) -> bool:
    """Return True if the partition keeps its margin while all brokers in `absent` are away, both
    with this ISR now and with the replicas `target` at the end of its move. `target` is empty if
    the move is rolled back.

    True is returned too for a partition without a replica in `absent`: the rules for moves suffice
    there.
    """
    shrinks = not set(p.isr) <= set(isr)
    if shrinks and not absent.isdisjoint(isr) and _left(isr, absent) < p.effective_min_isr:
        return False
    return absent.isdisjoint(target) or _left(target, absent) >= _needed(p, target)


def _held(
    p: Partition,
    broker_id: BrokerId,
    absent: AbstractSet[BrokerId],
    policy: ExposedTopics,
    *,
    joins: bool,
) -> int | None:
    """Return the partition's in-sync replicas without the broker, less the required number (below
    0). Return None if the broker may leave."""
    if not joins and broker_id not in p.isr:
        return None  # it is away already; its move waits for it, and it may need the restart
    gone = {*absent, broker_id}
    spares: list[int] = []
    if broker_id in p.isr or broker_id in p.settled:
        spares.append(_left(p.isr, gone) - p.effective_min_isr)
    if p.moving and broker_id in p.target:
        spares.append(_left(p.target, gone) - _needed(p, p.target))
    if not spares or min(spares) >= 0:
        return None
    return None if _may_interrupt(p, absent, policy) else min(spares)


def _may_interrupt(p: Partition, absent: AbstractSet[BrokerId], policy: ExposedTopics) -> bool:
    """Return True if the policy permits to interrupt the partition: it is exposed, now or at the
    end of its move, all its settled replicas are in sync, and none of its replicas is in
    `absent`."""
    if policy != "Interrupt" or not absent.isdisjoint(p.replicas):
        return False
    if not set(p.settled) <= set(p.isr):
        return False
    return exposed(p) or (p.moving and len(p.target) <= p.min_isr)


def _left(members: Sequence[BrokerId], gone: AbstractSet[BrokerId]) -> int:
    return sum(member not in gone for member in members)


def _needed(p: Partition, target: Sequence[BrokerId]) -> int:
    """Return the effective min ISR that the partition would have with exactly the replicas
    `target`."""
    return max(1, min(p.min_isr, len(target)))


# --- words -------------------------------------------------------------------------------------


def _explain(
    p: Partition, topic: str, broker_id: BrokerId, absent: AbstractSet[BrokerId], spare: int
) -> Hold:
    reason, until = _why(p, f"{topic}-{p.index}", broker_id, absent)
    return Hold(
        broker_id=broker_id, topic=topic, index=p.index, spare=spare, reason=reason, until=until
    )


def _why(
    p: Partition, where: str, broker_id: BrokerId, absent: AbstractSet[BrokerId]
) -> tuple[str, str]:
    missing = [r for r in p.settled if r not in p.isr]
    returning = [r for r in p.replicas if r in absent and r != broker_id]
    if missing:
        one = f"{brokers_text(missing)} {'rejoins' if len(missing) == 1 else 'rejoin'}"
        return "WouldDropBelowMinISR", f"{one} the ISR of {where}"
    if returning:
        one = f"{brokers_text(returning)} {is_or_are(len(returning))}"
        return "AnotherBrokerIsAway", f"{one} back from a restart and in the ISR of {where}"
    if exposed(p):
        return (
            "ExposedTopic",
            f"{where} has more replicas than its min ISR of {p.effective_min_isr}, or"
            " spec.maintenance.exposedTopics is Interrupt",
        )
    return "PartitionMoves", f"the move of {where} has ended"
