"""Rolls a partition's move back, unless that would drop a replica that may be needed.

Called for cancels, for objects that are gone, and where another target replaces a running one. A
rollback drops the replicas that the move was adding. It is refused while one of these may be the
last that holds an acknowledged record. Source: the protocol's rule for reassignments; KAFKA-13972.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from plimsoll_core.cluster.model import Partition
from plimsoll_core.controller.kernel.availability_margin import may_become
from plimsoll_core.controller.kernel.partition_change import Ids, PartitionUpdate
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text

CANCELLED = "reassignment cancelled"


def rolled_back(
    p: Partition, absent: AbstractSet[BrokerId] = frozenset(), *, forced: bool = False
) -> PartitionUpdate | Refusal:
    """Return the change that gives the partition the replicas it had before its move. Return a
    refusal if it is not being moved, or if that would drop a replica that may be needed. `absent`
    are the brokers with a restart grant. `forced` permits fewer than min ISR replicas in sync."""
    if not p.moving:
        return Refusal(
            reason=Reason.NoReassignmentInProgress,
            message=f"Partition {p.index} is not being moved.",
        )
    unwanted = frozenset(p.adding)
    isr = [r for r in p.isr if r not in unwanted]
    refusal = check_drop(p, unwanted, forced=forced)
    if refusal is None and not forced:
        refusal = check_absent(p, isr, (), absent)
    if refusal:
        return refusal
    return PartitionUpdate(isr=isr, replicas=p.settled, adding=(), removing=())


def check_drop(
    p: Partition, unwanted: AbstractSet[BrokerId], *, forced: bool = False
) -> Refusal | None:
    """Refuse to drop the replicas in `unwanted` if no other one is in sync. Refuse it also if fewer
    than min ISR others are in sync, unless `forced`."""
    left = [r for r in p.isr if r not in unwanted]
    if p.isr and not left:
        return _refuse_drop(p, unwanted, "no other replica is in sync")
    trusted = {*p.isr, *p.elr, *p.last_known_elr} & unwanted
    if trusted and len(left) < p.effective_min_isr and not forced:
        return _refuse_drop(
            p,
            trusted,
            f"only {len(left)} others are in sync, which is below min ISR {p.effective_min_isr},"
            " so records that were acknowledged could depend on it",
        )
    return None


def check_absent(
    p: Partition, isr: Sequence[BrokerId], target: Ids, absent: AbstractSet[BrokerId]
) -> Refusal | None:
    """Refuse if, without the brokers in `absent`, too few replicas are in sync: either with this
    ISR now, or with the replicas `target` at the end of the move."""
    if may_become(p, isr, target, absent):
        return None
    return Refusal(
        reason=Reason.BrokerRestarts,
        message=(
            f"Partition {p.index} waits for {brokers_text(absent & {*isr, *target})} to return from"
            " a restart: until then fewer than min ISR would be in sync."
        ),
    )


def _refuse_drop(p: Partition, dropped: Iterable[BrokerId], why: str) -> Refusal:
    return Refusal(
        reason=Reason.InvalidReplicaAssignment,
        message=(
            f"Partition {p.index} cannot do without {brokers_text(dropped)} now: {why}. Wait for"
            " more replicas to be in sync, or let the move go on."
        ),
    )
