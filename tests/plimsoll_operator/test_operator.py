"""The operator as it ships, over an API server in memory."""

import asyncio
import dataclasses
import uuid
from collections.abc import Callable

from tests.plimsoll_operator.builders import a_cluster_body

from plimsoll_operator.api import labels
from plimsoll_operator.api_server import garbage_collection
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.stateful_sets import listed
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.metalog.kubernetes_log import KubernetesLog
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.process.object_watches import ObjectWatches
from plimsoll_operator.process.operator import Operator
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms
from plimsoll_operator.status.operator_metrics import Metrics

WAIT_S = 30


def parts_over(server: MemoryApiServer) -> Parts:
    transport = MemoryTransport(server)
    kube = KubeApi(transport)
    return Parts(
        options=OperatorOptions(identity="one", broker_image="b:1", controllers=("c:1",)),
        kube=kube,
        lease_kube=kube,
        status_kube=kube,
        watch_kube=kube,
        metadata_log=lambda key, cluster_id: KubernetesLog(transport, *key, cluster_id),
        objects=Objects(),
        server=ControllerServer("127.0.0.1", 0),
        metrics=Metrics(),
        now_ms=wall_ms,
        monotonic_ms=monotonic_ms,
    )


class Scene:
    """An operator, and a LogCluster `kafka/main` that was applied when it began."""

    def __init__(self) -> None:
        self.server = MemoryApiServer(
            wall_ms, lambda: str(uuid.uuid4()), definitions=shipped(), namespaces=("kafka",)
        )
        self.parts = parts_over(self.server)
        kube = self.parts.watch_kube
        self.operator = Operator(self.parts, lambda receiver: ObjectWatches(kube, receiver))
        self._changed = asyncio.Event()
        self.server.store.observers.append(lambda _: self._changed.set())

    async def run(self) -> asyncio.Task[None]:
        body = a_cluster_body()
        body["metadata"] = {"name": "main", "namespace": "kafka"}
        await self.parts.kube.create(resources.LOG_CLUSTERS, body)
        return asyncio.ensure_future(self.operator.run())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looked at whenever an object changed."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def names(self, kind: resources.Kind) -> list[str]:
        return [one.metadata["name"] for one in listed(self.server, kind)]

    @property
    def holder(self) -> str:
        return "".join(
            one.body["spec"]["holderIdentity"] for one in listed(self.server, resources.LEASES)
        )

    async def end(self, running: asyncio.Task[None]) -> None:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()


async def test_operator_leads_cluster_over_memory_api_server():
    scene = Scene()
    running = await scene.run()
    brokers = {f"main-broker-{number}" for number in range(3)}
    await scene.until(lambda: brokers <= set(scene.names(resources.STATEFUL_SETS)))
    assert scene.operator.ready
    assert scene.holder == "one"
    await scene.end(running)
    assert scene.holder == ""


async def test_operator_whose_cluster_is_deleted_releases_its_lease():
    scene = Scene()
    running = await scene.run()
    await scene.until(lambda: scene.holder == "one")
    kube = scene.parts.kube
    found = await kube.get(resources.LOG_CLUSTERS, "kafka", "main")
    await kube.delete(resources.LOG_CLUSTERS, "kafka", "main", uid=found["metadata"]["uid"])
    await scene.until(lambda: scene.holder == "")
    await scene.end(running)


async def test_lease_of_never_started_cluster_is_deleted():
    """Its volume is another cluster's."""
    scene = Scene()
    kube = scene.parts.kube
    of_another = {labels.CLUSTER: "main", labels.CLUSTER_ID: "000000000000"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-0", "namespace": "kafka", "labels": of_another},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await kube.create(resources.VOLUME_CLAIMS, volume)
    running = await scene.run()
    await scene.until(lambda: scene.names(resources.LEASES) != [])
    found = await kube.get(resources.LOG_CLUSTERS, "kafka", "main")
    await kube.delete(resources.LOG_CLUSTERS, "kafka", "main", uid=found["metadata"]["uid"])
    await scene.until(lambda: scene.holder == "")
    await scene.end(running)
    garbage_collection.collect(scene.server)
    assert scene.names(resources.LEASES) == []


async def test_operators_options_reach_the_pods_of_brokers():
    scene = Scene()
    scene.parts.options = dataclasses.replace(
        scene.parts.options, image_pull_secrets=("pull",), set_user=False
    )
    running = await scene.run()
    await scene.until(lambda: "main-broker-0" in scene.names(resources.STATEFUL_SETS))
    found = await scene.parts.kube.get(resources.STATEFUL_SETS, "kafka", "main-broker-0")
    pod = found["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert "runAsUser" not in pod["securityContext"]
    await scene.end(running)
