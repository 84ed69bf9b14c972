"""A Reassignment, its LogCluster, and a controller that really decides."""

from typing import Any

from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import CopySize, ReportCopies
from plimsoll_core.messages.requests import BrokerProvenDead, Tick
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.kube.resources import REASSIGNMENTS
from plimsoll_operator.reconcile.reassignment import reconcile as reassignment
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "move")
LOOK = Work(Task.REASSIGNMENT, KEY)
MIB = 2**20


def an_object(uid: str = "r1", **spec: Any) -> dict[str, Any]:
    moves = [{"topic": "orders", "partitions": [0, 1], "replicas": [3, 4, 0]}]
    return {
        "metadata": {"name": "move", "namespace": "kafka", "uid": uid, "generation": 1},
        "spec": {"clusterRef": {"name": "main"}, "moves": moves, **spec},
    }


class Moves(Scene):
    """Brokers 0 to 4; `orders` has two partitions on 0, 1, 2 and is a client's."""

    def __init__(self, image: ClusterImage | None = None, **spec: Any) -> None:
        rows = ((0, 1, 2), (1, 2, 0))
        image = image or with_topic(an_image((0, 1, 2, 3, 4)), rows, holder=None)
        self.deciding = Deciding(image)
        super().__init__(image, self.deciding)
        self.put(an_object(**spec))

    def put(self, body: dict[str, Any]) -> None:
        self.kube.put(REASSIGNMENTS, body)
        self.objects.reassignments.put(body)

    def change(self, **spec: Any) -> None:
        self.put(an_object(**spec))

    async def look(self) -> ReassignmentStatus:
        await self.run(reassignment.reconcile, KEY)
        return self.term.shown.statuses[Target(REASSIGNMENTS, *KEY)][1]

    def p(self, index: int = 0) -> Any:
        return self.deciding.image.partitions[PartitionKey(TOPIC_ID, index)]

    async def tell(self, broker: int, *sizes: int) -> None:
        copies = tuple(
            CopySize(topic_id=TOPIC_ID, index=index, size=size) for index, size in enumerate(sizes)
        )
        epoch = self.deciding.image.brokers[BrokerId(broker)].broker_epoch
        await self.deciding.request(
            ReportCopies(broker_id=BrokerId(broker), broker_epoch=epoch, copies=copies)
        )

    def in_sync(self, index: int, *isr: int) -> None:
        """As if the leader had proposed it."""
        change = {"isr": isr}
        if set(isr) >= set(self.p(index).target):
            target = self.p(index).target
            change = {"isr": target, "replicas": target, "adding": (), "removing": ()}
        isr = change.pop("isr")
        self.deciding.image = replay(
            self.deciding.image, isr_changed(index, isr, leader=isr[0], **change)
        )

    async def kill(self, broker: int) -> None:
        epoch = self.deciding.image.brokers[BrokerId(broker)].broker_epoch
        dead = BrokerProvenDead(broker_id=BrokerId(broker), broker_epoch=epoch, evidence="e")
        await self.deciding.request(dead)
        await self.deciding.request(Tick())
