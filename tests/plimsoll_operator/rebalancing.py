"""A Rebalance, its LogCluster, and a controller that really decides."""

from typing import Any

from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import CopySize, ReportCopies
from plimsoll_core.messages.requests import BrokerProvenDead, Tick
from plimsoll_operator.api.rebalance import RebalanceStatus
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "fill")
LOOK = Work(Task.REBALANCE, KEY)
ROWS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2), (1, 2, 0))


def an_object(uid: str = "b1", **spec: Any) -> dict[str, Any]:
    wish = {"clusterRef": {"name": "main"}, "mode": "AddBrokers", "brokers": [3, 4]}
    whole = {name: value for name, value in {**wish, **spec}.items() if value is not None}
    return {
        "metadata": {"name": "fill", "namespace": "kafka", "uid": uid, "generation": 1},
        "spec": whole,
    }


class Rebalancings(Scene):
    """Brokers 0 to 4; `orders` has five partitions on 0, 1, 2 and is a client's."""

    def __init__(self, image: ClusterImage | None = None, **spec: Any) -> None:
        image = image or with_topic(an_image((0, 1, 2, 3, 4)), ROWS, holder=None)
        self.deciding = Deciding(image)
        super().__init__(image, self.deciding)
        self.put(an_object(**spec))

    def put(self, body: dict[str, Any]) -> None:
        self.kube.put(REBALANCES, body)
        self.objects.rebalances.put(body)

    def change(self, generation: int = 2, **spec: Any) -> None:
        body = an_object(**spec)
        body["metadata"]["generation"] = generation
        self.put(body)

    async def look(self) -> RebalanceStatus:
        await self.run(rebalance.reconcile, KEY)
        return self.status

    @property
    def status(self) -> RebalanceStatus:
        return self.term.shown.statuses[Target(REBALANCES, *KEY)][1]

    @property
    def row(self) -> Any:
        return self.deciding.image.rebalances["b1"]

    def partitions(self) -> list[Any]:
        image = self.deciding.image
        return [image.partitions[PartitionKey(TOPIC_ID, n)] for n in range(len(ROWS))]

    def moving(self) -> list[Any]:
        return [p for p in self.partitions() if p.moving]

    def copied(self) -> None:
        """All new replicas are in sync, as if their leaders had proposed it."""
        for p in self.moving():
            leader = p.leader if p.leader in p.target else p.target[0]
            step = {} if leader == p.leader else {"leader_epoch_step": 1}
            change = {"isr": p.target, "replicas": p.target, "adding": (), "removing": ()}
            isr = change.pop("isr")
            record = isr_changed(p.index, isr, leader=leader, **change, **step)
            self.deciding.image = replay(self.deciding.image, record)

    async def tell(self, size: int) -> None:
        """Every leader tells of its partitions."""
        for p in self.partitions():
            one = CopySize(topic_id=TOPIC_ID, index=p.index, size=size)
            epoch = self.deciding.image.brokers[p.leader].broker_epoch
            await self.deciding.request(
                ReportCopies(broker_id=p.leader, broker_epoch=epoch, copies=(), sizes=(one,))
            )

    async def kill(self, broker: int) -> None:
        epoch = self.deciding.image.brokers[BrokerId(broker)].broker_epoch
        dead = BrokerProvenDead(broker_id=BrokerId(broker), broker_epoch=epoch, evidence="e")
        await self.deciding.request(dead)
        await self.deciding.request(Tick())
