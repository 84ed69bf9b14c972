"""Replacement of a pod on an unreachable node, once its Node is deleted or tainted out-of-service.

Called by the restart reconciler. A forced deletion lets another pod start. So this one must
certainly no longer run, and its broker must be fenced.
"""

from __future__ import annotations

import logging
from typing import Final

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.kube.errors import NotFound, Rejected
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import NODES, PODS
from plimsoll_operator.reconcile.reconcile_term import Term

logger = logging.getLogger("plimsoll.restarts")

REPLACE: Final = "ReplacePod"
STUCK_MS = 30_000
"""Time after its grace from which a terminating pod has an unresponsive kubelet, in
milliseconds."""


def is_stuck(pod: Object, now_ms: int) -> bool:
    """Return True if the pod has been terminating for longer than a responsive kubelet would
    take."""
    stamp = pod["metadata"].get("deletionTimestamp")
    return stamp is not None and now_ms - milliseconds(stamp) > STUCK_MS


def is_out_of_service(node: Object) -> bool:
    """Return True if an administrator vouches that nothing runs on the node any more."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == labels.OUT_OF_SERVICE for taint in taints)


async def replace_pod(term: Term, broker_id: BrokerId, pod: Object) -> BlockedAction | None:
    """Delete a certainly dead pod and return None, or return what that waits for.

    Its volume stays attached until an administrator declares the node dead.
    """
    node_name = str((pod.get("spec") or {}).get("nodeName") or "")
    vouched = await _is_gone(term, node_name)
    broker = term.image.brokers.get(broker_id)
    if not vouched:
        until = f"node {node_name} is back, is deleted, or has the taint {labels.OUT_OF_SERVICE}"
        return _stays(term, broker_id, "NodeUnreachable", until)
    if broker is not None and not broker.fenced:
        return _stays(term, broker_id, "BrokerNotFenced", f"broker {broker_id} is fenced")
    meta = pod["metadata"]
    logger.warning("force-deleting pod %s: its node %s is gone", meta["name"], node_name)
    await term.kube.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_seconds=0)
    return None


def _stays(term: Term, broker_id: BrokerId, reason: str, until: str) -> BlockedAction:
    since = timestamp(term.now_ms())
    return BlockedAction(action=REPLACE, broker=broker_id, reason=reason, until=until, since=since)


async def _is_gone(term: Term, node_name: str) -> bool:
    if not node_name:
        return False
    try:
        node = await term.kube.get(NODES, None, node_name)
    except NotFound:
        return True
    except Rejected:
        return False
    return is_out_of_service(node)
