"""Result of one pass of a reconciler: all that leaves it, beside requests to the controller and
writes of other objects.

A reconciler fills it and returns it, also after an error: what was found before still holds.
`TermEffects` carries it out; nothing else does. A reconciler never changes what another one shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.reconcile.reconcile_term import Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Status, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStatus:
    """Status of the reconciled object, for the spec of `generation`; None if it is deleted."""

    target: Target
    generation: int = 0
    status: Status | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """State of one source of stall causes. `event` is written if the source had no cause before."""

    cause: Cause | None
    event: Occurrence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Work to queue, now or after `after_ms`."""

    work: Work
    after_ms: int = 0


@dataclass(slots=True)
class PassResult:
    """What one pass found."""

    status: ObjectStatus | None = None
    events: list[Occurrence] = field(default_factory=list)
    # Waits of voluntary actions, by their reconciler's key; no rows if nothing waits.
    blocked: dict[str, tuple[BlockedAction, ...]] = field(default_factory=dict)
    stalls: dict[StallSource, Stall] = field(default_factory=dict)
    requeues: list[Requeue] = field(default_factory=list)
    # Objects with a status that may have changed by what the reconciler remembers.
    marked: list[Target] = field(default_factory=list)
    # True if the LogCluster's status may have changed.
    cluster_marked: bool = False
    # The error that ended the pass: `Retry`, or a bug.
    error: Exception | None = None

    def __enter__(self) -> PassResult:
        """Begin the pass; it goes on to its first error, which is kept."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True

    def show(self, target: Target, generation: int, status: Status) -> None:
        """Show the object's status."""
        self.status = ObjectStatus(target=target, generation=generation, status=status)

    def show_no_more(self, target: Target) -> None:
        """Drop the status of a deleted object."""
        self.status = ObjectStatus(target=target, status=None)

    def tell(self, event: Occurrence) -> None:
        self.events.append(event)

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        self.blocked[action] = tuple(rows)

    def stall(self, source: StallSource, cause: Cause, event: Occurrence | None = None) -> None:
        """Set a cause that only a person can fix; other sources' causes stay."""
        self.stalls[source] = Stall(cause=cause, event=event)

    def unstall(self, source: StallSource) -> None:
        self.stalls[source] = Stall(cause=None)

    def add(self, work: Work) -> None:
        self.requeues.append(Requeue(work=work))

    def add_later(self, work: Work, after_ms: int) -> None:
        self.requeues.append(Requeue(work=work, after_ms=after_ms))

    def mark(self, target: Target) -> None:
        self.marked.append(target)

    def mark_cluster(self) -> None:
        self.cluster_marked = True
