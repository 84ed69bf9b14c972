"""Result of one pass of a reconciler: all its effects except its requests to the controller and its
writes of other objects.

A reconciler fills a `PassResult` and returns it, after an error too, since its findings before the
error still hold. Only `TermEffects` carries the result out. A reconciler never changes what another
one shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import msgspec

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.reconcile.reconcile_term import Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Status, Target


class ObjectStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status to show for the reconciled object `target`, computed from the spec of `generation`.
    `status` is None if the object is deleted."""

    target: Target
    generation: int = 0
    status: Status | None


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """New state of one `StallSource`: its cause, or None if it has none any more. `event` is
    written if the source had no cause before."""

    cause: Cause | None
    event: Occurrence | None = None


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """Work to put into the reconcile queue: at once, or after `after_ms` if that is not 0."""

    work: Work
    after_ms: int = 0


class PassResult(msgspec.Struct):
    """Effects of one pass of a reconciler, to be carried out later by `TermEffects`: statuses,
    Events, blocked actions and stall causes to show, work to queue, and targets to render again
    (`marked`). The reconciler fills it within a `with` block, and returns it."""

    status: ObjectStatus | None = None
    events: list[Occurrence] = []
    # Blocked actions, by the reconciler's key for them. An empty tuple removes the rows shown under
    # that key.
    blocked: dict[str, tuple[BlockedAction, ...]] = {}
    stalls: dict[StallSource, Stall] = {}
    requeues: list[Requeue] = []
    # Other objects to render again, because their status shows what this pass changed in memory.
    marked: list[Target] = []
    # True if the LogCluster's status may have changed.
    cluster_marked: bool = False
    # The error that ended the pass: `Retry`, or a bug.
    error: Exception | None = None

    def __enter__(self) -> PassResult:
        """Begin the pass. The first Exception within the `with` block ends the block; it is stored
        in `error` and not raised. A cancellation is raised."""
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True

    def show(self, target: Target, generation: int, status: Status) -> None:
        """Set the status to show for the reconciled object `target`, in place of one set before in
        this pass. `generation`: that of the spec from which it was computed."""
        self.status = ObjectStatus(target=target, generation=generation, status=status)

    def show_no_more(self, target: Target) -> None:
        """Request that the status shown for `target` is dropped, since the object is deleted."""
        self.status = ObjectStatus(target=target, status=None)

    def tell(self, event: Occurrence) -> None:
        self.events.append(event)

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        self.blocked[action] = tuple(rows)

    def stall(self, source: StallSource, cause: Cause, event: Occurrence | None = None) -> None:
        """Set the stall cause of `source`, a fault that only a person can fix. The causes of other
        sources stay. `event` is written if `source` had no cause before."""
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
