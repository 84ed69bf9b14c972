"""A LogCluster whose pods and brokers come and go as the kubelet would have them."""

from typing import Any

from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
)
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.messages.requests import Tick
from plimsoll_operator.api.labels import REVISION
from plimsoll_operator.kube.resources import PODS, STATEFUL_SETS
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.restarts import reconcile as restarts

OLD = {"image": "broker:old"}
NEW = {"image": "broker:new"}


class Cluster:
    """A scene whose pods and brokers come and go as the kubelet would have them."""

    def __init__(self, committed: ClusterImage, spec: dict[str, Any]) -> None:
        self.deciding = Deciding(committed)
        self.scene = Scene(committed, self.deciding)
        self.scene.declare(**spec)
        self.kube = self.scene.kube
        self.kube.server_ms = 1_800_000_000_000
        self.lives = 0

    @property
    def image(self) -> ClusterImage:
        return self.deciding.image

    async def look(self) -> None:
        await self.scene.run(cluster.reconcile)
        await self.scene.run(restarts.reconcile)

    def pod(self, broker: int) -> dict[str, Any]:
        return self.kube.find(PODS, "kafka", f"main-broker-{broker}-0")

    def template(self, broker: int) -> dict[str, Any]:
        return self.kube.find(STATEFUL_SETS, "kafka", f"main-broker-{broker}")["spec"]["template"]

    def runs(self, broker: int) -> str:
        return str(self.pod(broker)["spec"]["containers"][0]["image"])

    def start_pods(self) -> list[int]:
        """The StatefulSets' pods that are missing are made, from the template as it is."""
        started = []
        for (plural, _, name), body in list(self.kube.objects.items()):
            if plural != "statefulsets" or ("pods", "kafka", f"{name}-0") in self.kube.objects:
                continue
            template = body["spec"]["template"]
            self.lives += 1
            meta = {
                **template["metadata"],
                "name": f"{name}-0",
                "namespace": "kafka",
                "uid": f"pod-uid-{self.lives}",
            }
            self.kube.put(PODS, {"metadata": meta, "spec": template["spec"]})
            started.append(int(name.rsplit("-", 1)[1]))
        return sorted(started)

    def take_part(self, *brokers: int) -> None:
        """Their processes register, and are in sync everywhere."""
        image = self.image
        for broker in brokers:
            if broker in image.brokers and not image.brokers[broker].fenced:
                image = self._stopped(image, broker)
            image = replay(
                image,
                BrokerRegistered(
                    cause="registration",
                    broker_id=broker,
                    incarnation_id=image.brokers[broker].incarnation_id,
                    directory_ids=image.brokers[broker].directory_ids,
                    endpoints=(),
                    pod_uid=self.pod(broker)["metadata"]["uid"],
                    revision=self.pod(broker)["metadata"]["annotations"][REVISION],
                ),
            )
            epoch = image.brokers[broker].broker_epoch
            image = replay(image, BrokerUnfenced(cause="up", broker_id=broker, broker_epoch=epoch))
        for p in image.partitions.values():
            image = replay(image, isr_changed(p.index, p.replicas))
        self.deciding.image = image
        self.beat()

    def beat(self) -> None:
        """All registered brokers send a heartbeat."""
        for broker_id, broker in self.image.brokers.items():
            self.deciding.soft.contacts[broker_id] = Contact(
                broker_epoch=broker.broker_epoch,
                last_ms=self.deciding.now_ms,
                applied_offset=self.image.next_offset,
            )

    def stop(self, broker: int) -> None:
        self.deciding.image = self._stopped(self.image, broker)

    def _stopped(self, image: ClusterImage, broker: int) -> ClusterImage:
        epoch = image.brokers[broker].broker_epoch
        image = replay(image, BrokerFenced(cause="gone", broker_id=broker, broker_epoch=epoch))
        for p in list(image.partitions.values()):
            isr = tuple(r for r in p.isr if r != broker)
            image = replay(image, isr_changed(p.index, isr))
        return image

    async def tick(self) -> None:
        await self.deciding.request(Tick())

    @property
    def blocked(self) -> list[tuple[int | None, str, str]]:
        rows = self.scene.term.shown.blocked.get("Restart", ())
        return [(row.broker, row.reason, row.until) for row in rows]


async def a_cluster(*replicas: tuple[int, ...], **spec: Any) -> Cluster:
    """Brokers that run the old image, and a topic with these partitions."""
    brokers = sorted({b for row in replicas for b in row})
    committed = with_topic(an_image(tuple(brokers)), replicas)
    made = Cluster(committed, {**OLD, "brokers": {"count": len(brokers)}, **spec})
    await made.look()
    made.take_part(*made.start_pods())
    await made.look()
    assert made.blocked == []
    return made


def declare(found: Cluster, **spec: Any) -> None:
    count = len(found.image.members)
    found.scene.declare(**{"brokers": {"count": count}, **spec})
