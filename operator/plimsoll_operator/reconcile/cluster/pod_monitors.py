"""A LogCluster's PodMonitor: made, changed and removed as its spec says.

Called by the LogCluster reconciler, last: what cannot be scraped is served all the same.  Without
the right to make any, nothing is asked of the API server.
"""

from __future__ import annotations

from plimsoll_operator.kube.errors import ApiError, NotFound, Unavailable
from plimsoll_operator.kube.resources import POD_MONITORS
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.podmonitor import pod_monitor, pod_monitor_name
from plimsoll_operator.reconcile.cluster.child_repair import apply_child
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.status.occurrence import Occurrence

DISABLED = (
    "spec.podMonitor asks for a PodMonitor, but this operator creates none: set the chart's "
    "metrics.podMonitor.perLogCluster to true."
)


async def reconcile(term: Term, context: Context) -> None:
    """Raises Unavailable; a refusal is told by an Event."""
    wanted = pod_monitor(context)
    if not term.options.pod_monitors:
        if wanted is not None:
            _tell(term, DISABLED)
        return
    try:
        if wanted is not None:
            await apply_child(term, wanted)
        else:
            await _remove(term, context)
    except Unavailable:
        raise
    except ApiError as error:
        if wanted is not None:
            _tell(term, f"Cannot create the brokers' PodMonitor: {error.reply}.")


async def _remove(term: Term, context: Context) -> None:
    """Of this LogCluster; one of the same name that somebody else made stays."""
    name = pod_monitor_name(context)
    try:
        found = await term.kube.get(POD_MONITORS, context.namespace, name)
    except NotFound:
        return
    uid = context.cluster.metadata.uid
    if uid in [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]:
        await term.kube.delete(POD_MONITORS, context.namespace, name, uid=found["metadata"]["uid"])
        term.applied.pop((POD_MONITORS.kind, name), None)


def _tell(term: Term, message: str) -> None:
    key = "pod-monitor"
    term.tell(Occurrence(key=key, reason="PodMonitorRefused", message=message, warning=True))
