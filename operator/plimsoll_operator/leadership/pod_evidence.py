"""Proof from a broker's pod that the broker's process has ended. The pod is read from the API
server at each call; watch events do not count.

A watch event may be a minute old and describe a container that has a successor. A process is
identified by its pod's uid. It is proven dead only if that very pod is deleted or replaced, or its
broker container has terminated and was not started again.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_operator.api.labels import broker_pod
from plimsoll_operator.controller.broker_sessions import Evidence
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import PODS
from plimsoll_operator.manifests.statefulset import CONTAINER

READ_SECONDS_MAX = 1.0


def evidence_of(kube: KubeApi, namespace: str, cluster: str) -> Evidence:
    """Return the function that the controller calls after a broker closed its last connection. It
    reads the broker's pod and returns a sentence that proves the process dead. It returns None if
    nothing proves it: the pod still runs or cannot be read, or the broker registered without a
    pod's uid."""

    async def look(broker: Broker) -> str | None:
        if broker.pod_uid is None:
            return None
        name = broker_pod(cluster, broker.id)
        try:
            pod = await kube.get(PODS, namespace, name, timeout_s=READ_SECONDS_MAX)
        except NotFound:
            return f"connection closed by the peer, pod {name} is gone"
        except ApiError:
            return None
        return judge(pod, broker.pod_uid)

    return look


def judge(pod: Object, pod_uid: str) -> str | None:
    """Return a sentence if `pod`, the pod that now has the name of the broker's pod, proves that
    the process in the pod with `pod_uid` has ended: another uid, an ended phase, or a terminated
    container. Return None otherwise."""
    name = pod["metadata"]["name"]
    if pod["metadata"]["uid"] != pod_uid:
        return f"connection closed by the peer, pod {name} was replaced"
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return f"connection closed by the peer, pod {name} has ended"
    for container in status.get("containerStatuses") or ():
        # `lastState` describes an earlier container; only the present state is evidence.
        if container["name"] == CONTAINER and "terminated" in (container.get("state") or {}):
            return f"connection closed by the peer, the container of pod {name} has ended"
    return None
