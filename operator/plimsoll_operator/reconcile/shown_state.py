"""State that the statuses of a cluster's objects show, in one term, besides the committed image.

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
from plimsoll_operator.api.verification_schedule import VerificationScheduleStatus
from plimsoll_operator.reconcile.stall_causes import StallCauses, stall_conditions
from plimsoll_operator.status.status_writer import Status, Target

Shown = TypeVar(
    "Shown",
    ReassignmentStatus,
    RebalanceStatus,
    VerificationStatus,
    VerificationScheduleStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailure:
    """A bug of the operator in the last pass over an object. `target` and `uid`: the object that
    shows the bug (the LogCluster if the object is deleted); `where`: the exception's class, file
    and line."""

    # The object that shows the bug, and its uid. It is the LogCluster if the object is deleted.
    target: Target
    uid: str
    # The exception's class, and the file and line in the operator's source.
    where: str


@dataclass(slots=True, kw_only=True)
class ShownState:
    """Last statuses, stall causes, bugs, and blocked actions that one term shows."""

    # Status of an object at the last pass of its reconciler, and the generation of its spec.
    statuses: dict[Target, tuple[int, Status]] = field(default_factory=dict)
    # Faults that only a person can fix, each by its source.
    stall_causes: StallCauses = field(default_factory=dict)
    # Bugs in handling objects, by the name of the pass or check that met them.
    failures: dict[str, ObjectFailure] = field(default_factory=dict)
    # The condition `ControllerAvailable`, if this term ended an outage.
    outage: Condition | None = None
    # The condition `MetadataRestored`, if the metadata log was restored within a week.
    restored: Condition | None = None
    # Actions that wait for a condition, by the key of the reconciler that found them.
    blocked: dict[str, tuple[BlockedAction, ...]] = field(default_factory=dict)

    @property
    def notes(self) -> dict[str, Condition]:
        """Return the conditions of the LogCluster that do not follow from the committed image, by
        type: the outage, the restored metadata and the stall causes."""
        known = [one for one in (self.outage, self.restored) if one is not None]
        return {one.type: one for one in known} | stall_conditions(self.stall_causes)

    def status_of(self, target: Target, kind: type[Shown]) -> Shown | None:
        """Return the status that the last pass of its reconciler set for `target`. Return None if
        no pass has set one, or if it is not of the class `kind`."""
        found = self.statuses.get(target)
        return found[1] if found is not None and isinstance(found[1], kind) else None
