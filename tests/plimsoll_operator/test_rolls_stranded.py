"""Pods on nodes that do not answer are replaced only when they are dead for certain."""

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.rolling import Cluster, a_cluster

from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.resources import NODES, PODS


@pytest.fixture
async def three() -> Cluster:
    return await a_cluster((0, 1, 2))


@pytest.fixture
async def stranded(three: Cluster) -> Cluster:
    """Broker 2's node does not answer; its pod is Terminating since long."""
    three.stop(2)
    pod = three.pod(2)
    three.kube.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "far"}})
    going_since(three, three.kube.server_ms - 60_000)
    three.kube.put(NODES, {"metadata": {"name": "far"}, "spec": {}})
    return three


def going_since(found: Cluster, when_ms: int) -> None:
    deleted = {"deletionTimestamp": timestamp(when_ms)}
    found.kube.set_metadata(PODS, "kafka", "main-broker-2-0", **deleted)


async def test_stranded_pod_is_kept_and_explained(stranded: Cluster):
    await stranded.look()
    assert ("force", "pods", "main-broker-2-0") not in stranded.kube.calls
    (row,) = stranded.scene.term.shown.blocked["ReplacePod"]
    assert (row.broker, row.reason) == (2, "NodeUnreachable")
    assert row.until == (
        "node far is back, is deleted, or has the taint node.kubernetes.io/out-of-service"
    )


@pytest.mark.parametrize("how", ["node deleted", "node out of service"])
async def test_stranded_pod_is_replaced_when_certainly_dead(stranded: Cluster, how: str):
    if how == "node deleted":
        stranded.kube.drop(NODES, None, "far")
    else:
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        stranded.kube.put(NODES, {"metadata": {"name": "far"}, "spec": {"taints": [taint]}})
    await stranded.look()
    assert ("force", "pods", "main-broker-2-0") in stranded.kube.calls
    assert stranded.start_pods() == [2]


async def test_stranded_pod_of_active_broker_is_kept(stranded: Cluster):
    stranded.kube.drop(NODES, None, "far")
    broker = replace(stranded.image.brokers[2], fenced=False)
    stranded.deciding.image = replace(stranded.image, brokers=stranded.image.brokers.set(2, broker))
    await stranded.look()
    assert ("force", "pods", "main-broker-2-0") not in stranded.kube.calls
    assert stranded.scene.term.shown.blocked["ReplacePod"][0].reason == "BrokerNotFenced"


async def test_pod_that_merely_ends_is_waited_for(stranded: Cluster):
    going_since(stranded, stranded.kube.server_ms)
    stranded.kube.drop(NODES, None, "far")
    await stranded.look()
    assert ("force", "pods", "main-broker-2-0") not in stranded.kube.calls
