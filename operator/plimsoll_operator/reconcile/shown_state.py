"""What the statuses of one cluster's objects show beside its image, as one term knows it.

`TermEffects` alone writes it, except for `failures`, which `ObjectFailures` writes. Statuses are
rendered from it, and reconcilers may read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.reconcile.stall_causes import StallCauses, stall_conditions
from plimsoll_operator.status.status_writer import Status, Target

Shown = TypeVar("Shown", ReassignmentStatus, RebalanceStatus, VerificationStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailure:
    """A bug in the last pass over an object."""

    # The object that shows it, and its uid; the LogCluster if the object is deleted.
    target: Target
    uid: str
    # The exception's class and its place in our source.
    where: str


@dataclass(slots=True, kw_only=True)
class ShownState:
    """State of one term."""

    # Status of a Reassignment, Rebalance, Verification or User at its last pass, and the generation
    # of its spec.
    statuses: dict[Target, tuple[int, Status]] = field(default_factory=dict)
    # Faults that only a person can fix, each by its source.
    stall_causes: StallCauses = field(default_factory=dict)
    # Bugs in handling objects, by activity.
    failures: dict[str, ObjectFailure] = field(default_factory=dict)
    # The condition `ControllerAvailable`, if this term ended an outage.
    outage: Condition | None = None
    # Waits of voluntary actions, by the key of the reconciler that found them.
    blocked: dict[str, tuple[BlockedAction, ...]] = field(default_factory=dict)

    @property
    def notes(self) -> dict[str, Condition]:
        """Return the LogCluster's conditions that do not follow from the image, by type."""
        outage = {} if self.outage is None else {self.outage.type: self.outage}
        return outage | stall_conditions(self.stall_causes)

    def status_of(self, target: Target, kind: type[Shown]) -> Shown | None:
        """Return the status at the last pass."""
        found = self.statuses.get(target)
        return found[1] if found is not None and isinstance(found[1], kind) else None
