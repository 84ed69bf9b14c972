"""TermEffects of one term: carries out the results of passes.

Statuses, Events, blocked actions, stall causes and the queue change here and nowhere else. Tasks of
a term beside the queue (racks, bugs, outages) report through it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.meta import Conditions
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.reconcile.blocked_actions import row_of, with_pod_causes
from plimsoll_operator.reconcile.pass_result import ObjectStatus, PassResult, Stall
from plimsoll_operator.reconcile.reconcile_term import Term, Work
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Target


@dataclass(slots=True, kw_only=True)
class TermEffects:
    """The only writer of a term's `ShownState`."""

    term: Term
    # Queue work, now or after so many milliseconds.
    add: Callable[[Work], None]
    add_later: Callable[[Work, int], None]
    # Render and write the status of an object, which may have changed.
    mark: Callable[[Target], None]
    # Write an Event at the LogCluster.
    tell: Callable[[Occurrence], None] = lambda _: None
    # Waits under the previous operator, of all kinds; used until this term has its own.
    _blocked_before: tuple[BlockedAction, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._blocked_before = _shown_blocked(self.term)

    def carry_out(self, result: PassResult) -> None:
        """Carry out what a pass found. Raises the error that ended it."""
        for event in result.events:
            self.tell(event)
        for source, stall in result.stalls.items():
            self._stall(source, stall)
        for action, rows in result.blocked.items():
            self.block(action, rows)
        if result.status is not None:
            self._show(result.status)
        for target in result.marked:
            self.mark(target)
        if result.cluster_marked:
            self.mark_cluster()
        for requeue in result.requeues:
            if requeue.after_ms:
                self.add_later(requeue.work, requeue.after_ms)
            else:
                self.add(requeue.work)
        if result.error is not None:
            raise result.error

    def _stall(self, source: StallSource, stall: Stall) -> None:
        if stall.cause is None:
            self.unstall(source)
            return
        if stall.event is not None and source not in self.term.shown.stall_causes:
            self.tell(stall.event)
        self.stall(source, stall.cause)

    def stall(self, source: StallSource, cause: Cause) -> None:
        """Set a cause that only a person can fix, in place of the last one of the same source."""
        causes = self.term.shown.stall_causes
        if causes.get(source) != cause:
            causes[source] = cause
            self.mark_cluster()

    def unstall(self, source: StallSource) -> None:
        """Clear the cause of `source`; other causes stay."""
        if self.term.shown.stall_causes.pop(source, None) is not None:
            self.mark_cluster()

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        """Set the waits of one kind of voluntary actions. Each keeps its start time, also from the
        previous operator."""
        blocked = self.term.shown.blocked
        known = blocked.get(action, self._blocked_before)
        before = {_waits_for(row): row for row in known}
        now = [_since(before.get(_waits_for(row)), row) for row in rows]
        if tuple(now) == blocked.get(action, ()):
            return
        for row in now:
            if _waits_for(row) not in before:
                self.tell(_blocked(row))
        blocked[action] = tuple(now)
        self.mark_cluster()

    def mark_cluster(self) -> None:
        self.mark(Target(LOG_CLUSTERS, *self.term.key))

    def _show(self, found: ObjectStatus) -> None:
        """Set an object's status. A True condition Blocked is shown in the LogCluster too."""
        target, status, state = found.target, found.status, self.term.shown
        if status is None:
            if state.statuses.pop(target, None) is not None:
                self._follow_blocked(target, ())
                state.blocked.pop(_source(target), None)
            return
        shown = with_pod_causes(status.conditions, rolls_of(self.term).troubles)
        state.statuses[target] = (found.generation, replace(status, conditions=shown))
        self._follow_blocked(target, shown)
        self.mark(target)

    def _follow_blocked(self, target: Target, shown: Conditions) -> None:
        kind, name = target.kind.kind, f"{target.namespace}/{target.name}"
        source, rows = _source(target), row_of(kind, name, shown, timestamp(self.term.now_ms()))
        if rows or source in self.term.shown.blocked:
            self.block(source, rows)


def _shown_blocked(term: Term) -> tuple[BlockedAction, ...]:
    """Return the waits that the LogCluster shows."""
    shown = term.objects.clusters.choices(term.key).get("blocked") or ()
    try:
        return msgspec.convert(shown, tuple[BlockedAction, ...])
    except msgspec.ValidationError:
        return ()


def _source(target: Target) -> str:
    """Return the key of an object's waits."""
    return f"{target.kind.kind} {target.namespace}/{target.name}"


def _waits_for(row: BlockedAction) -> tuple[object, ...]:
    """Return what identifies a wait. An object's sentence may count down; the wait stays the same
    while its reason does."""
    until = row.until if row.object is None else ""
    return (row.action, row.object, row.broker, row.topic, row.partition, row.reason, until)


def _since(before: BlockedAction | None, row: BlockedAction) -> BlockedAction:
    return row if before is None else replace(row, since=before.since)


def _blocked(row: BlockedAction) -> Occurrence:
    return Occurrence(
        key=f"blocked-{row.action}-{row.object or row.broker}-{row.reason}",
        reason=f"{row.action}Blocked",
        message=row.sentence,
        warning=True,
    )
