"""Finds a broker's rack when the broker registers: the value of a label of the node that its pod
runs on.

Brokers never call the Kubernetes API, so the controller's server looks the rack up here. Each
look-up reads the pod and the node afresh, with a short timeout. A rack in the broker's own config
wins. After a failed look-up the broker registers without a rack. With the rack policy Required it
is refused instead; the refusal and the LogCluster's status state the remedy.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Refused, RegisterBroker
from plimsoll_operator.api.labels import broker_pod
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.controller.refusals import refused
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import NODES, PODS
from plimsoll_operator.reconcile.effects import TermEffects
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

logger = logging.getLogger("plimsoll.racks")

READ_SECONDS_MAX = 1.0
REFUSED_SECONDS = 3.0
"""Seconds for which further registrations of a refused broker's pod get the same refusal without
another look-up, since a refused broker retries at once and often."""
RACK_UNKNOWN = "RackUnknown"


class RackNotFound(Exception):
    """Raised if a broker's rack cannot be determined; its text is a sentence that states the
    cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    pod_uid: str | None
    sentence: str
    until_s: float


class RackFinder:
    """Looks up racks for one term. The controller's server calls `fill_in` for each
    registration."""

    def __init__(self, effects: TermEffects) -> None:
        self._effects = effects
        self._term = effects.term
        self._missing: dict[BrokerId, _Missing] = {}

    async def fill_in(self, request: RegisterBroker) -> RegisterBroker | Refused:
        """Return the registration with the broker's rack filled in. Return it unchanged if it
        states a rack, racks are ignored, none was found and none is required, or this controller is
        not active. If a required rack was not found, return a refusal, and show it in the
        LogCluster's status."""
        cluster = self._term.cluster
        if (
            cluster is None
            or request.rack is not None
            or cluster.rack_policy == "Ignored"
            or not self._term.controller.active
        ):
            self._found(request.broker_id)
            return request
        if cluster.rack_policy == "Required" and (known := self._refused_lately(request)):
            return known
        try:
            rack = await self._look(cluster, request)
        except RackNotFound as error:
            return self._without(cluster, request, str(error))
        self._found(request.broker_id)
        return msgspec.structs.replace(request, rack=rack)

    def review(self) -> None:
        """Forget refused brokers that are no longer members of the cluster, since they do not
        register again, and remove them from the LogCluster's status."""
        for broker_id in set(self._missing) - set(self._term.image.members):
            self._found(broker_id)

    async def _look(self, cluster: LogCluster, request: RegisterBroker) -> str:
        namespace, name = cluster.key
        kube, pod_name = self._term.kube, broker_pod(name, request.broker_id)
        try:
            pod = await kube.get(PODS, namespace, pod_name, timeout_s=READ_SECONDS_MAX)
            node_name = node_of(pod, request.pod_uid)
            node = await kube.get(NODES, None, node_name, timeout_s=READ_SECONDS_MAX)
        except ApiError as error:
            known = self._term.image.brokers.get(request.broker_id)
            if known and known.rack and known.pod_uid and known.pod_uid == request.pod_uid:
                return known.rack  # a pod stays on its node
            raise RackNotFound(f"cannot look up the node of the broker's pod: {error}") from error
        return rack_of(node, cluster.topology_key)

    def _refused_lately(self, request: RegisterBroker) -> Refused | None:
        known = self._missing.get(request.broker_id)
        now_s = asyncio.get_running_loop().time()
        if known is None or known.pod_uid != request.pod_uid or known.until_s < now_s:
            return None
        return refused(Reason.InvalidRegistration, known.sentence)

    def _without(
        self, cluster: LogCluster, request: RegisterBroker, why: str
    ) -> RegisterBroker | Refused:
        if cluster.rack_policy != "Required":
            self._found(request.broker_id)
            # Without `spec.racks` a missing rack is no cause for a warning.
            level = logging.INFO if cluster.spec.racks is None else logging.WARNING
            logger.log(
                level,
                "broker %d is registered without a rack, so the operator does not know which "
                "racks its replicas are in; to state the rack, label the broker's node and "
                "restart the broker: %s",
                request.broker_id,
                why,
            )
            return request
        sentence = (
            f"Broker {request.broker_id} has no rack, and spec.racks requires one: {why}. Label"
            " the node, or set spec.racks.policy to Preferred."
        )
        until_s = asyncio.get_running_loop().time() + REFUSED_SECONDS
        self._missing[request.broker_id] = _Missing(
            pod_uid=request.pod_uid, sentence=sentence, until_s=until_s
        )
        self._tell()
        return refused(Reason.InvalidRegistration, sentence)

    def _found(self, broker_id: BrokerId) -> None:
        if self._missing.pop(broker_id, None) is not None:
            self._tell()

    def _tell(self) -> None:
        """Show the remedy for the first refused broker in the LogCluster's status (as a stall), or
        remove it from there if no broker is refused."""
        if self._missing:
            first = self._missing[min(self._missing)]
            cause = Cause(reason=RACK_UNKNOWN, message=first.sentence)
            self._effects.stall(StallSource.RACKS, cause)
        else:
            self._effects.unstall(StallSource.RACKS)


def node_of(pod: Object, pod_uid: str | None) -> str:
    """Return the name of the node that `pod` runs on. Raise `RackNotFound` if its uid is not
    `pod_uid`, or if it is not scheduled yet."""
    name = pod["metadata"]["name"]
    if pod_uid is None or pod["metadata"]["uid"] != pod_uid:
        raise RackNotFound(
            f"the operator cannot tell the broker's node, because pod {name} has another uid "
            "than the broker states"
        )
    node_name: str | None = (pod.get("spec") or {}).get("nodeName")
    if not node_name:
        raise RackNotFound(f"the broker's pod {name} is not scheduled to a node yet")
    return node_name


def rack_of(node: Object, topology_key: str) -> str:
    value: str | None = (node["metadata"].get("labels") or {}).get(topology_key)
    if not value:
        raise RackNotFound(f"node {node['metadata']['name']} has no label {topology_key}")
    return value
