"""Reports the hours of voluntary work: the conditions Paused and MaintenanceWindow, and windows
that never open.

The core decides which work waits (`voluntary_work`), `api.maintenance_windows` evaluates schedules.
What waited begins with the first pass within the window, at most half a minute after its opening.
"""

from __future__ import annotations

from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.maintenance import Maintenance
from plimsoll_operator.api.maintenance_windows import bad_window, hours_at
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

PAUSED = "Paused"
WINDOW = "MaintenanceWindow"
NEVER_OPENS = "InvalidMaintenanceWindow"


def review(term: Term, result: PassResult, cluster: LogCluster) -> None:
    """Set or clear the stall cause about a window that never opens."""
    if text := bad_window(cluster, term.now_ms()):
        result.stall(StallSource.WINDOWS, Cause(reason=NEVER_OPENS, message=text))
    else:
        result.unstall(StallSource.WINDOWS)


def hours_conditions(term: Term) -> list[Condition]:
    """Return the condition Paused if the cluster is paused, and the condition MaintenanceWindow if
    it declares windows."""
    cluster = term.cluster
    if cluster is None:
        return []
    found = []
    if cluster.spec.paused:
        text = (
            "spec.paused is true: no broker is restarted, added or removed, no replica is moved, "
            "and no topic's data is deleted. Elections, fencing and rights continue."
        )
        found.append(condition(PAUSED, True, "SpecPaused", text))
    if (cluster.spec.maintenance or Maintenance()).windows:
        found.append(_window(cluster, term.now_ms()))
    return found


def _window(cluster: LogCluster, now_ms: int) -> Condition:
    span = hours_at(cluster, now_ms)
    if span.closes_ms is not None:
        text = f"A maintenance window is open until {timestamp(span.closes_ms)}."
        return condition(WINDOW, True, "Open", text)
    text = (
        "No maintenance window is open: restarts, moves and other voluntary work wait until "
        f"{span.hours.opens}."
    )
    return condition(WINDOW, False, "Closed", text)
