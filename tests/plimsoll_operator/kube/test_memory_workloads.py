"""StatefulSets and pods in memory: what reconcilers and brokers see of Kubernetes' controllers."""

import itertools
import json

import pytest

from plimsoll_operator.api_server.kubelets import RuntimeState, Workloads
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi, Object
from plimsoll_operator.kube.resources import (
    CORE_EVENTS,
    PODS,
    STATEFUL_SETS,
    VOLUME_CLAIMS,
    Kind,
)

LABELS = {"app": "main"}
READY = RuntimeState(phase="Running", ready=True, pod_ip="10.0.0.1")


class Runtime:
    """Pods are ready when they are started, and end when `ends` says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[tuple[str, int]] = []
        self.states: dict[str, RuntimeState] = {}
        self.ends = True
        self.node: str | None = "one"

    def place(self, pod: Object) -> str | None:
        return self.node

    def start(self, pod: Object) -> None:
        self.started.append(pod["metadata"]["name"])

    def stop(self, pod: Object, grace_seconds: int) -> None:
        self.stopped.append((pod["metadata"]["name"], grace_seconds))

    def state(self, pod: Object) -> RuntimeState | None:
        return self.states.get(pod["metadata"]["name"], READY)

    def has_ended(self, pod: Object) -> bool:
        return self.ends


class Cluster:
    def __init__(self) -> None:
        uids = itertools.count(1)
        self.server = MemoryApiServer(
            lambda: 1_800_000_000_000, lambda: f"uid-{next(uids)}", namespaces=("kafka",)
        )
        self.runtime = Runtime()
        self.workloads = Workloads(self.server, self.runtime)
        self.kube = KubeApi(MemoryTransport(self.server))

    def settle(self) -> None:
        for _ in range(5):
            self.workloads.reconcile()

    async def names(self, kind: Kind) -> list[str]:
        found = await self.kube.list(kind, "kafka")
        return [item["metadata"]["name"] for item in found.items]

    async def pod(self, ordinal: int = 0) -> Object:
        return await self.kube.get(PODS, "kafka", f"main-{ordinal}")

    async def status(self) -> Object:
        found = await self.kube.get(STATEFUL_SETS, "kafka", "main")
        status: Object = found["status"]
        return status

    async def edit(self, **spec: object) -> None:
        await self.kube.merge(STATEFUL_SETS, "kafka", "main", {"spec": spec})
        self.settle()

    async def delete_pod(self, *, grace_seconds: int | None = None) -> str:
        uid = str((await self.pod())["metadata"]["uid"])
        await self.kube.delete(PODS, "kafka", "main-0", uid=uid, grace_seconds=grace_seconds)
        return uid


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {
        "replicas": 2,
        "serviceName": "main",
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": LABELS},
        "template": template("broker:1"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    meta = {"name": "main", "namespace": "kafka"}
    await made.kube.create(STATEFUL_SETS, {"metadata": meta, "spec": spec})
    made.settle()
    return made


def template(image: str) -> Object:
    containers = [{"name": "broker", "image": image}]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 40}
    return {"metadata": {"labels": dict(LABELS)}, "spec": spec}


async def test_stateful_set_has_its_pods_and_claims(cluster: Cluster):
    assert await cluster.names(PODS) == ["main-0", "main-1"]
    assert await cluster.names(VOLUME_CLAIMS) == ["data-main-0", "data-main-1"]
    claim = await cluster.kube.get(VOLUME_CLAIMS, "kafka", "data-main-0")
    assert (claim["status"]["phase"], claim["metadata"]["labels"]) == ("Bound", LABELS)
    status = await cluster.status()
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert status["currentRevision"] == status["updateRevision"]
    assert cluster.runtime.started == ["main-0", "main-1"]


async def test_pod_shows_what_its_runtime_says(cluster: Cluster):
    waiting = RuntimeState(phase="Pending", waiting=("ImagePullBackOff", "no such image"))
    cluster.runtime.states["main-0"] = waiting
    cluster.settle()
    status = (await cluster.pod())["status"]
    (container,) = status["containerStatuses"]
    assert (status["phase"], container["ready"]) == ("Pending", False)
    assert container["state"] == {
        "waiting": {"reason": "ImagePullBackOff", "message": "no such image"}
    }
    assert (await cluster.status())["readyReplicas"] == 1


async def test_pod_with_ended_container_keeps_running(cluster: Cluster):
    uid = (await cluster.pod())["metadata"]["uid"]
    cluster.runtime.states["main-0"] = RuntimeState(
        phase="Running", ended=True, exit_code=137, restarts=2
    )
    cluster.settle()
    pod = await cluster.pod()
    (container,) = pod["status"]["containerStatuses"]
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (uid, "Running")
    assert (container["started"], container["restartCount"]) == (False, 2)
    assert container["state"] == {"terminated": {"exitCode": 137, "reason": "Error"}}


async def test_reconciling_what_is_settled_writes_nothing(cluster: Cluster):
    revision = cluster.server.store.revision
    cluster.settle()
    assert cluster.server.store.revision == revision


async def test_changed_template_applies_to_recreated_pod(cluster: Cluster):
    before = await cluster.pod()
    await cluster.edit(template=template("broker:2"))
    assert await cluster.pod() == before
    status = await cluster.status()
    assert (status["updatedReplicas"], status["currentReplicas"]) == (0, 2)
    assert status["currentRevision"] != status["updateRevision"]
    await cluster.delete_pod()
    cluster.settle()
    after = await cluster.pod()
    assert after["spec"]["containers"][0]["image"] == "broker:2"
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (await cluster.status())["updatedReplicas"] == 1


async def test_slowly_ending_pod_keeps_its_name(cluster: Cluster):
    cluster.runtime.ends = False
    uid = await cluster.delete_pod()
    cluster.settle()
    going = (await cluster.pod())["metadata"]
    assert (going["uid"], going["deletionGracePeriodSeconds"]) == (uid, 40)
    assert cluster.runtime.stopped == [("main-0", 40)]
    cluster.runtime.ends = True
    cluster.settle()
    assert (await cluster.pod())["metadata"]["uid"] != uid


async def test_forcibly_deleted_pod_is_replaced_at_once(cluster: Cluster):
    cluster.runtime.ends = False
    uid = await cluster.delete_pod(grace_seconds=0)
    cluster.settle()
    assert cluster.runtime.stopped == [("main-0", 0)]
    assert (await cluster.pod())["metadata"]["uid"] != uid


async def test_scaled_down_set_keeps_its_claims(cluster: Cluster):
    await cluster.edit(replicas=1)
    assert await cluster.names(PODS) == ["main-0"]
    assert await cluster.names(VOLUME_CLAIMS) == ["data-main-0", "data-main-1"]


async def test_pods_go_with_their_set_and_claims_stay(cluster: Cluster):
    uid = (await cluster.kube.get(STATEFUL_SETS, "kafka", "main"))["metadata"]["uid"]
    await cluster.kube.delete(STATEFUL_SETS, "kafka", "main", uid=uid)
    cluster.settle()
    assert await cluster.names(PODS) == []
    assert len(await cluster.names(VOLUME_CLAIMS)) == 2


async def test_claim_in_use_goes_after_its_pod(cluster: Cluster):
    claim = (await cluster.kube.get(VOLUME_CLAIMS, "kafka", "data-main-0"))["metadata"]
    await cluster.kube.delete(VOLUME_CLAIMS, "kafka", "data-main-0", uid=claim["uid"])
    cluster.settle()
    assert await cluster.kube.get(VOLUME_CLAIMS, "kafka", "data-main-0")
    await cluster.delete_pod()
    cluster.settle()
    made = await cluster.kube.get(VOLUME_CLAIMS, "kafka", "data-main-0")
    assert made["metadata"]["uid"] != claim["uid"]
    assert (await cluster.pod())["spec"]["nodeName"] == "one"


async def test_pod_that_has_ended_by_itself_is_replaced(cluster: Cluster):
    uid = (await cluster.pod())["metadata"]["uid"]
    cluster.runtime.states["main-0"] = RuntimeState(phase="Failed", exit_code=137)
    cluster.workloads.reconcile()
    assert (await cluster.pod())["status"]["phase"] == "Failed"
    del cluster.runtime.states["main-0"]
    cluster.settle()
    assert (await cluster.pod())["metadata"]["uid"] != uid


async def test_pod_without_a_node_is_pending(cluster: Cluster):
    cluster.runtime.node = None
    await cluster.delete_pod()
    cluster.settle()
    pod = await cluster.pod()
    assert (pod["status"]["phase"], "nodeName" in pod["spec"]) == ("Pending", False)


async def test_set_whose_pods_cannot_be_made_says_why(cluster: Cluster):
    await cluster.edit(replicas=0)
    wrong = template("broker:3")
    wrong["metadata"]["labels"]["zone"] = "not a label"
    await cluster.edit(replicas=1, template=wrong)
    uid = (await cluster.kube.get(STATEFUL_SETS, "kafka", "main"))["metadata"]["uid"]
    selector = f"involvedObject.uid={uid},reason=FailedCreate"
    listed = await cluster.kube.list(CORE_EVENTS, "kafka", field_selector=selector)
    (event,) = listed.items
    assert "create Pod main-0 in StatefulSet main failed error: " in event["message"]
    with pytest.raises(NotFound):
        await cluster.pod()


async def test_ordered_pods_start_one_after_another():
    cluster = Cluster()
    cluster.runtime.states["main-0"] = RuntimeState(phase="Running")
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": template("broker:1"),
    }
    path = STATEFUL_SETS.path("kafka")
    body = json.dumps({"metadata": {"name": "main"}, "spec": spec}).encode()
    cluster.server.handle(HttpRequest(method="POST", path=path, body=body))
    cluster.settle()
    assert await cluster.names(PODS) == ["main-0"]
    del cluster.runtime.states["main-0"]
    cluster.settle()
    assert await cluster.names(PODS) == ["main-0", "main-1"]
