"""Carries out the results of the reconcile passes of one term (`TermEffects`).

Only this module changes the statuses, Events, blocked actions, stall causes and the queue of a
term. Tasks of a term outside the queue (racks, bugs, outages) report through it too.
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
    """Carries out each `PassResult` of a term. It is the only writer of the term's `ShownState`,
    but for the failures that `ObjectFailures` writes."""

    term: Term
    # Queue work, now or after so many milliseconds.
    add: Callable[[Work], None]
    add_later: Callable[[Work, int], None]
    # Render and write the status of an object, which may have changed.
    mark: Callable[[Target], None]
    # Write an Event at the LogCluster.
    tell: Callable[[Occurrence], None] = lambda _: None
    # Rows of `status.blocked` as the previous operator wrote them. They provide start times for a
    # key until this term has rows of its own under it.
    _blocked_before: tuple[BlockedAction, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._blocked_before = _shown_blocked(self.term)

    def carry_out(self, result: PassResult) -> None:
        """Carry out the result of one pass: queue its Events, set its stall causes, blocked actions
        and status, mark statuses to be written, and queue its work. If an error ended the pass,
        raise it afterwards."""
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
        """Set the stall cause of `source`, in place of its last one. A stall cause is a fault that
        only a person can fix. The LogCluster's status is rendered again if the cause changed."""
        causes = self.term.shown.stall_causes
        if causes.get(source) != cause:
            causes[source] = cause
            self.mark_cluster()

    def unstall(self, source: StallSource) -> None:
        """Clear the stall cause of `source`, if it has one. The causes of other sources stay."""
        if self.term.shown.stall_causes.pop(source, None) is not None:
            self.mark_cluster()

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        """Replace the blocked actions stored under the key `action` by `rows`. A row that was shown
        before, by this operator or the previous one, keeps its start time (`since`). A row that was
        not shown before is also reported in an Event."""
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
        """Set or drop the status of an object in `ShownState`. A True condition Blocked also
        becomes a row of the LogCluster's blocked actions."""
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
    """Return the rows of `status.blocked` that the LogCluster shows now, empty if it shows none or
    they cannot be parsed."""
    shown = term.objects.clusters.choices(term.key).get("blocked") or ()
    try:
        return msgspec.convert(shown, tuple[BlockedAction, ...])
    except msgspec.ValidationError:
        return ()


def _source(target: Target) -> str:
    """Return the key under which the blocked actions of one object are stored."""
    return f"{target.kind.kind} {target.namespace}/{target.name}"


def _waits_for(row: BlockedAction) -> tuple[object, ...]:
    """Return a key that is equal for two rows about the same wait. The text `until` of an object's
    row is left out, since it may count down while the wait stays the same."""
    until = row.until if row.object is None else ""
    return (row.action, row.object, row.broker, row.topic, row.partition, row.reason, until)


def _since(before: BlockedAction | None, row: BlockedAction) -> BlockedAction:
    return row if before is None else replace(row, since=before.since)


def _blocked(row: BlockedAction) -> Occurrence:
    target = row.object or row.broker
    return Occurrence(
        key=f"blocked-{row.action}-{target}-{row.reason}",
        reason=f"{row.action}Blocked",
        message=row.sentence,
        warning=True,
    )
