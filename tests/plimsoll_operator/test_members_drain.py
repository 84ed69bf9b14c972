"""A drain from the edit to its end: the handlers of both, and a controller that decides."""

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_operator.manifests import rebalance as rebalances
from plimsoll_operator.reconcile.cluster import logcluster_status, membership
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.rebalance import reconcile as rebalance
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.status.status_writer import Target

ROWS = ((0, 1, 2), (1, 2, 3), (2, 3, 0), (3, 0, 1))


class Draining(Scene):
    """Brokers 0 to 3; `orders` has four partitions with three replicas each."""

    def __init__(self, brokers: int = 4, rows: tuple[tuple[int, ...], ...] = ROWS) -> None:
        super().__init__(*_image_and_controller(brokers, rows))
        self.ms = 0
        self.term.monotonic_ms = lambda: self.ms

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def look(self) -> None:
        """Everything is looked at once, and statuses are written."""
        await self.run(cluster.reconcile)
        for gone in list(self.objects.rebalances):
            if gone.key[1] not in self.made("rebalances"):
                self.objects.rebalances.drop(gone.key)
                await self.run(rebalance.reconcile, gone.key)
        for (plural, namespace, name), body in list(self.kube.objects.items()):
            if plural != REBALANCES.plural:
                continue
            self.objects.rebalances.put(_as_served(body))
            await self.run(rebalance.reconcile, (namespace or "", name))
            _, status = self.term.shown.statuses[Target(REBALANCES, namespace or "", name)]
            shown = msgspec.to_builtins(status)
            self.kube.put(REBALANCES, {**body, "status": shown})

    async def edit(self, **brokers: Any) -> None:
        self.declare(brokers=brokers)
        await self.look()
        self.ms += membership.SETTLE_MS
        await self.look()

    def copy(self, off: int | None = None) -> None:
        """Whoever is added catches up; `off`: only where that broker is removed."""
        for p in [p for p in self.image.partitions.values() if p.moving]:
            if off is not None and off not in p.removing:
                continue
            alive = [b for b in p.target if self.image.brokers[b].active]
            leader = p.leader if p.leader in alive else alive[0]
            record = isr_changed(
                p.index,
                tuple(alive),
                leader=leader,
                replicas=p.target,
                adding=(),
                removing=(),
                leader_epoch_step=0 if leader == p.leader else 1,
            )
            self.controller.image = replay(self.controller.image, record)

    async def kill(self, broker: int) -> None:
        epoch = self.image.brokers[BrokerId(broker)].broker_epoch
        dead = BrokerProvenDead(broker_id=BrokerId(broker), broker_epoch=epoch, evidence="gone")
        await self.controller.request(dead)

    async def until_gone(self, broker: int) -> None:
        for _ in range(20):
            self.copy()
            await self.look()
            if broker not in self.image.members and broker in self.image.brokers:
                await self.kill(broker)
            if BrokerId(broker) not in self.image.brokers:
                return
        raise AssertionError(self.image)


def _image_and_controller(
    brokers: int, rows: tuple[tuple[int, ...], ...]
) -> tuple[ClusterImage, Deciding]:
    image = with_topic(an_image(tuple(range(brokers))), rows, holder=None)
    return image, Deciding(image)


def _as_served(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {"generation": 1, **body["metadata"]}}


@pytest.fixture
def scene() -> Draining:
    return Draining()


async def test_broker_is_emptied_and_goes(scene: Draining) -> None:
    await scene.edit(count=3, excludedIds=[1])
    assert scene.image.leaving == (1,)
    assert any(p.moving for p in scene.image.partitions.values())
    await scene.until_gone(1)
    assert scene.image.members == (0, 2, 3)
    assert all(set(p.replicas) == {0, 2, 3} for p in scene.image.partitions.values())
    assert scene.made("statefulsets") == [f"main-broker-{n}" for n in (0, 2, 3)]
    assert scene.kube.find(REBALANCES, "kafka", "main-drain-1")["status"]["phase"] == "Completed"


async def test_dead_broker_is_emptied_from_the_others(scene: Draining) -> None:
    await scene.kill(3)
    await scene.edit(count=3)
    assert scene.image.leaving == (3,)
    await scene.until_gone(3)
    assert all(set(p.replicas) == {0, 1, 2} for p in scene.image.partitions.values())


async def test_withdrawn_drain_stops_reassignments_and_keeps_broker_member(scene: Draining) -> None:
    await scene.edit(count=3, excludedIds=[1])
    moving = {p.key for p in scene.image.partitions.values() if p.moving}
    await scene.edit(count=4)
    await scene.look()
    assert scene.image.leaving == ()
    assert not [p for p in scene.image.partitions.values() if p.moving]
    assert moving
    assert scene.image.members == (0, 1, 2, 3)
    assert not scene.made("rebalances")
    assert {len(p.replicas) for p in scene.image.partitions.values()} == {3}


def shown(scene: Draining, kind: str) -> Condition:
    found = logcluster_status.render(scene.term, scene.term.key)
    assert found is not None
    return next(c for c in found.status.conditions or () if c.type == kind)


async def test_settling_edit_is_reported_and_reverted_one_not(
    scene: Draining,
) -> None:
    scene.declare(brokers={"count": 4, "excludedIds": [1]})
    await scene.look()
    assert shown(scene, "Reconciling").reason == "Settling"
    scene.declare(brokers={"count": 4}, config={"no.such.config": "1"})
    await scene.look()
    found = shown(scene, "Reconciling")
    assert (found.status, found.reason) == ("False", "Stalled")


async def test_drain_waiting_for_a_person_says_so(
    scene: Draining,
) -> None:
    assert shown(scene, "Stalled").message == logcluster_status.NOTHING_TO_DO
    await scene.edit(count=2)
    (row, *_) = scene.term.shown.blocked["Members"]
    assert "or keep 3 brokers" in row.until
    stalled = shown(scene, "Stalled")
    assert (stalled.status, stalled.message) == ("False", logcluster_status.SEE_BLOCKED)


async def test_too_few_survivors_are_shown_in_status(scene: Draining) -> None:
    """One of the survivors is down for so long that it is given nothing."""
    await scene.kill(2)
    await scene.edit(count=3, excludedIds=[1])
    scene.controller.soft.away_ms[BrokerId(2)] = -1_000_000  # type: ignore[attr-defined]
    scene.copy()  # 2 holds up what it was to get, and nothing else
    await scene.look()
    await scene.look()
    rows = scene.term.shown.blocked["Members"]
    assert [(row.action, row.broker) for row in rows] == [("Drain", 1)]
    assert rows[0].until.startswith("Rebalance main-drain-1: ")
    assert scene.image.members == (0, 1, 2, 3)


async def test_drain_of_two_brokers_is_one_object() -> None:
    scene = Draining(5, ((0, 1, 3), (1, 2, 4), (2, 0, 4)))
    await scene.edit(count=3)
    (name,) = scene.made("rebalances")
    uid = scene.kube.find(REBALANCES, "kafka", name)["metadata"]["uid"]
    for _ in range(5):
        scene.copy(off=3)
        await scene.look()
    assert scene.image.members == (0, 1, 2, 4), "3 is empty, 4 is not"
    await scene.kill(3)
    for _ in range(5):
        await scene.look()
        assert scene.made("rebalances") == [name]
    await scene.until_gone(4)
    await scene.look()
    found = scene.kube.find(REBALANCES, "kafka", name)
    assert (found["metadata"]["uid"], found["status"]["phase"]) == (uid, "Completed")


async def test_removal_cancels_leaving_brokers_fill() -> None:
    """It may never end, where a disk is full: the drain would wait for it."""
    scene = Draining(4, ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2)))
    scene.declare(brokers={"count": 4}, autoRebalance="Automatic")
    await scene.look()
    manifest = rebalances.fill(manifest_context(scene.term), (3,))  # type: ignore[arg-type]
    manifest["spec"]["approval"] = "Automatic"
    await scene.kube.create(REBALANCES, manifest)
    await scene.look()
    assert scene.made("rebalances") == ["main-fill-3"]
    assert any(3 in p.adding for p in scene.image.partitions.values())
    await scene.edit(count=3)
    await scene.look()
    assert "main-fill-3" not in scene.made("rebalances")
    await scene.until_gone(3)
