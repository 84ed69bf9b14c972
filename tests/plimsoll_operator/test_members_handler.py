"""Growing and shrinking, as the operator does it: step by step, and never half."""

import time
from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image, registered, replay, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    BrokerUnfenced,
    BrokerUnregistered,
    MembersChanged,
    PartitionsChanged,
    VolumeReleased,
)
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import PODS, REBALANCES, VOLUME_CLAIMS
from plimsoll_operator.reconcile.cluster import membership
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.cluster.drain_and_fill import KEPT_MAX
from plimsoll_operator.reconcile.cluster.membership import settling_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import Occurrence


class Growing(Scene):
    """A cluster whose controller decides, and the time."""

    def __init__(self, image: ClusterImage, **spec: Any) -> None:
        super().__init__(image, Deciding(image), **spec)
        self.ms = 0
        self.more: dict[str, Any] = {}
        self.told: list[Occurrence] = []
        self.effects.tell = self.told.append

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    async def look(self, *, after_ms: int = 0) -> None:
        self.ms += after_ms
        await self.run(cluster.reconcile)

    async def edit(self, **brokers: Any) -> None:
        """The spec is changed, seen, and settles."""
        self.declare(brokers=brokers, **self.more)
        await self.look()
        await self.look(after_ms=membership.SETTLE_MS)

    def commit(self, *records: Any) -> None:
        self.controller.image = replay(self.controller.image, *records)

    def join(self, *brokers: int) -> None:
        for broker in brokers:
            self.commit(registered(broker))
            epoch = self.image.brokers[BrokerId(broker)].broker_epoch
            self.commit(BrokerUnfenced(cause="x", broker_id=BrokerId(broker), broker_epoch=epoch))

    def moved(self, row: tuple[int, ...]) -> None:
        """`orders` has these replicas now, as if a Rebalance had moved them."""
        (topic_id,) = self.image.topics
        ids = tuple(BrokerId(b) for b in row)
        self.commit(
            PartitionsChanged(
                cause="moved",
                topic_id=topic_id,
                ranges=((0, 0),),
                replicas=ids,
                isr=ids,
                leader=ids[0],
                leader_epoch_step=1,
            )
        )

    def rebalances(self) -> dict[str, tuple[str, list[int], str]]:
        """What was made, by name: mode, brokers, approval."""
        return {
            name: (body["spec"]["mode"], body["spec"]["brokers"], body["spec"]["approval"])
            for (plural, _, name), body in self.kube.objects.items()
            if plural == "rebalances"
        }

    def show(self, name: str, phase: str, message: str = "") -> None:
        """A Rebalance is so far."""
        body = self.kube.find(REBALANCES, "kafka", name)
        conditions = [{"type": "Blocked", "status": "True", "reason": "X", "message": message}]
        status = {"phase": phase, "conditions": conditions if message else []}
        self.kube.put(REBALANCES, {**body, "status": status})

    def blocked(self) -> list[tuple[str, int | None, str]]:
        rows = self.term.shown.blocked.get("Members", ())
        return [(row.action, row.broker, row.reason) for row in rows]

    async def stopped(self, broker: int) -> None:
        """Its pod is gone, and its session over."""
        epoch = self.image.brokers[BrokerId(broker)].broker_epoch
        dead = BrokerProvenDead(broker_id=BrokerId(broker), broker_epoch=epoch, evidence="gone")
        await self.controller.request(dead)


@pytest.fixture
def scene() -> Growing:
    """Brokers 0, 1 and 2; `orders` has one partition on 0 and 1."""
    made = Growing(with_topic(an_image(), ((0, 1),), holder=None))
    made.term.monotonic_ms = lambda: made.ms
    return made


SETS = [f"main-broker-{n}" for n in range(5)]


class TestGrowing:
    async def test_settles_before_it_is_done(self, scene: Growing) -> None:
        await scene.look()
        scene.declare(brokers={"count": 4})
        await scene.look()
        await scene.look(after_ms=membership.SETTLE_MS - 1)
        assert scene.image.members == (0, 1, 2)
        scene.declare(brokers={"count": 5})
        await scene.look(after_ms=1)
        assert scene.image.members == (0, 1, 2), "an edit begins it anew"
        await scene.look(after_ms=membership.SETTLE_MS)
        assert scene.image.members == (0, 1, 2, 3, 4)
        assert scene.made("statefulsets") == SETS

    @pytest.mark.parametrize(
        ("policy", "approval"),
        [(None, "Manual"), ("Propose", "Manual"), ("Automatic", "Automatic"), ("Off", None)],
    )
    async def test_rebalance_follows_when_all_have_joined(
        self, scene: Growing, policy: str | None, approval: str | None
    ) -> None:
        scene.more = {"movement": {"autoRebalance": policy}} if policy else {}
        await scene.edit(count=5)
        scene.join(3)
        await scene.look()
        assert scene.rebalances() == {}
        scene.join(4)
        await scene.look()
        made = {"main-fill-3-4": ("AddBrokers", [3, 4], approval)} if approval else {}
        assert scene.rebalances() == made
        assert scene.image.newcomers == ()
        if made:
            scene.kube.drop(REBALANCES, "kafka", "main-fill-3-4")
        await scene.look()
        assert scene.rebalances() == {}, "who deleted it does not want it"

    async def test_rebalance_without_moves_is_not_created(self, scene: Growing) -> None:
        empty = Growing(an_image())
        await empty.look()
        empty.declare(brokers={"count": 4})
        settling_of(empty.term).edit = ((0, 1, 2, 3), -membership.SETTLE_MS)
        await empty.look()
        empty.join(3)
        await empty.look()
        assert empty.rebalances() == {}
        assert empty.image.newcomers == ()


class TestShrinking:
    async def test_broker_is_removed_in_steps(self, scene: Growing) -> None:
        await scene.look()
        scene.kube.put(PODS, _pod(1))
        await scene.edit(count=2, excludedIds=[1])
        assert scene.image.leaving == (1,)
        assert scene.rebalances() == {"main-drain-1": ("RemoveBrokers", [1], "Automatic")}
        assert scene.image.members == (0, 1, 2)
        await scene.look()
        assert len(scene.rebalances()) == 1
        scene.moved((0, 2))
        await scene.look()
        assert scene.image.members == (0, 2)
        assert scene.made("statefulsets") == [SETS[0], SETS[2]]
        await scene.stopped(1)
        await scene.look()
        assert BrokerId(1) in scene.image.brokers, "its pod is still there"
        scene.kube.drop(PODS, "kafka", "main-broker-1-0")
        await scene.look()
        assert BrokerId(1) not in scene.image.brokers
        assert scene.image.leaving == ()
        assert scene.blocked() == []

    async def test_broker_without_replicas_needs_no_rebalance(self, scene: Growing) -> None:
        await scene.edit(count=2)
        await scene.look()
        assert scene.rebalances() == {}
        assert scene.image.members == (0, 1)
        assert scene.made("statefulsets") == SETS[:2]

    async def test_dead_broker_is_drained_too(self, scene: Growing) -> None:
        await scene.stopped(1)
        await scene.edit(count=2, excludedIds=[1])
        assert scene.rebalances() == {"main-drain-1": ("RemoveBrokers", [1], "Automatic")}
        scene.moved((0, 2))
        await scene.look()
        await scene.look()
        assert BrokerId(1) not in scene.image.brokers

    async def test_replacement_joins_first(self, scene: Growing) -> None:
        await scene.edit(count=3, excludedIds=[1])
        assert scene.image.members == (0, 1, 2, 3)
        assert scene.image.leaving == ()
        assert scene.blocked() == [("Drain", 1, "WaitingForBrokers")]
        scene.join(3)
        await scene.look()
        assert scene.image.leaving == (1,)
        assert scene.blocked() == []
        assert list(scene.rebalances()) == ["main-drain-1"], "a drain evens out, nothing to fill"

    async def test_drain_below_replication_factor_is_blocked(self, scene: Growing) -> None:
        await scene.edit(count=1)
        assert scene.image.leaving == ()
        assert scene.blocked() == [
            ("Drain", 1, "NotEnoughBrokers"),
            ("Drain", 2, "NotEnoughBrokers"),
        ]
        row = scene.term.shown.blocked["Members"][0]
        assert row.until == (
            "Topic orders has replication factor 2 and only 1 broker would remain: lower the"
            " replication factor, or keep 2 brokers."
        )
        assert [told.reason for told in scene.told] == ["DrainBlocked", "DrainBlocked"]
        since = row.since
        await scene.look(after_ms=5_000)
        assert scene.term.shown.blocked["Members"][0].since == since
        assert len(scene.told) == 2
        await scene.edit(count=2)
        assert scene.blocked() == []
        assert scene.image.members == (0, 1)

    async def test_broker_that_may_stay_after_all(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        await scene.edit(count=3)
        assert scene.image.leaving == ()
        assert scene.rebalances() == {}, "deleted, so rolled back"
        assert scene.image.members == (0, 1, 2)

    async def test_another_broker_leaves_while_one_is_drained(self, scene: Growing) -> None:
        four = Growing(with_topic(an_image((0, 1, 2, 3)), ((0, 1),), holder=None))
        four.ms = membership.SETTLE_MS
        four.declare(brokers={"count": 3, "excludedIds": [1]})
        await four.look()
        settling_of(four.term).edit = ((0, 2, 3), -membership.SETTLE_MS)
        await four.look()
        assert list(four.rebalances()) == ["main-drain-1"]
        four.declare(brokers={"count": 2, "excludedIds": [0, 1]})
        settling_of(four.term).edit = ((2, 3), -membership.SETTLE_MS)
        await four.look()
        assert four.image.leaving == (0, 1)
        assert sorted(four.rebalances()) == ["main-drain-0", "main-drain-1"]

    async def test_drain_that_was_cancelled_waits_for_its_owner(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        scene.show("main-drain-1", "Cancelled")
        await scene.look()
        assert scene.blocked() == [("Drain", 1, "RebalanceCancelled")]
        assert list(scene.rebalances()) == ["main-drain-1"]
        scene.kube.drop(REBALANCES, "kafka", "main-drain-1")
        await scene.look()
        assert scene.rebalances()
        assert scene.blocked() == []

    async def test_drain_reports_its_rebalances_message(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        scene.show("main-drain-1", "Blocked", "Broker 2 is down.")
        await scene.look()
        assert scene.blocked() == [("Drain", 1, "RebalanceBlocked")]
        assert (
            scene.term.shown.blocked["Members"][0].until
            == "Rebalance main-drain-1: Broker 2 is down."
        )

    async def test_drain_that_came_to_nothing_is_made_anew(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        old = scene.kube.find(REBALANCES, "kafka", "main-drain-1")["metadata"]["uid"]
        scene.show("main-drain-1", "Completed")
        await scene.look()
        await scene.look()
        assert scene.kube.find(REBALANCES, "kafka", "main-drain-1")["metadata"]["uid"] != old

    async def test_recent_drain_is_not_recreated(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        made = {"creationTimestamp": timestamp(time.time_ns() // 1_000_000)}
        body = scene.kube.set_metadata(REBALANCES, "kafka", "main-drain-1", **made)
        scene.show("main-drain-1", "NothingToDo")
        for _ in range(3):
            await scene.look()
        left = scene.kube.find(REBALANCES, "kafka", "main-drain-1")["metadata"]["uid"]
        assert left == body["metadata"]["uid"]

    async def test_ended_drains_beyond_the_limit_are_deleted(self, scene: Growing) -> None:
        await scene.edit(count=2, excludedIds=[1])
        body = scene.kube.find(REBALANCES, "kafka", "main-drain-1")
        for n in range(KEPT_MAX + 5):
            made = {"name": f"old-{n}", "creationTimestamp": f"2026-11-21T00:00:{n:02}Z"}
            scene.kube.put(
                REBALANCES,
                {
                    "metadata": {**body["metadata"], **made, "uid": f"old-{n}"},
                    "spec": {**body["spec"], "brokers": [7]},
                    "status": {"phase": "Completed"},
                },
            )
        await scene.look()
        kept = [f"old-{n}" for n in range(5, KEPT_MAX + 5)]
        assert sorted(scene.rebalances()) == sorted(["main-drain-1", *kept])


class TestVolumes:
    async def removed(self, scene: Growing) -> None:
        for broker in range(3):
            scene.kube.put(VOLUME_CLAIMS, _claim(scene, broker))
        await scene.stopped(2)
        await scene.edit(count=2)
        for _ in range(3):
            await scene.look()
        assert BrokerId(2) not in scene.image.brokers

    def claims(self, scene: Growing) -> list[str]:
        return scene.made("persistentvolumeclaims")

    async def test_volumes_of_removed_brokers_are_kept_by_default(self, scene: Growing) -> None:
        await self.removed(scene)
        assert len(self.claims(scene)) == 3

    async def test_volumes_of_removed_brokers_are_deleted_on_request(self, scene: Growing) -> None:
        scene.more = {"storage": {"size": "1Gi", "retention": {"whenScaled": "Delete"}}}
        await self.removed(scene)
        assert self.claims(scene) == ["data-main-broker-0-0", "data-main-broker-1-0"]
        assert not scene.image.released

    async def test_volumes_of_another_cluster_are_left_alone(self, scene: Growing) -> None:
        scene.more = {"storage": {"size": "1Gi", "retention": {"whenScaled": "Delete"}}}
        claim = _claim(scene, 2)
        claim["metadata"]["labels"][labels.CLUSTER_ID] = "somebody-else"
        scene.kube.put(VOLUME_CLAIMS, claim)
        await scene.stopped(2)
        await scene.edit(count=2)
        await scene.look()
        assert self.claims(scene) == ["data-main-broker-2-0"]

    async def test_kept_earlier_are_not_deleted_later(self, scene: Growing) -> None:
        await self.removed(scene)
        scene.more = {"storage": {"size": "1Gi", "retention": {"whenScaled": "Delete"}}}
        await scene.edit(count=2)
        await scene.look()
        assert len(self.claims(scene)) == 3

    def released(self, scene: Growing, pvc_uid: str) -> None:
        """An earlier term unregistered broker 2 and got no further."""
        scene.more = {"storage": {"size": "1Gi", "retention": {"whenScaled": "Delete"}}}
        epoch = scene.image.brokers[BrokerId(2)].broker_epoch
        scene.commit(
            MembersChanged(cause="x", broker_ids=(BrokerId(0), BrokerId(1))),
            BrokerUnregistered(cause="x", broker_id=BrokerId(2), broker_epoch=epoch),
            VolumeReleased(cause="x", broker_id=BrokerId(2), pvc_uid=pvc_uid),
        )
        scene.kube.put(VOLUME_CLAIMS, _claim(scene, 2))
        scene.declare(brokers={"count": 2}, **scene.more)

    async def test_successor_finishes_what_was_released(self, scene: Growing) -> None:
        claim = scene.kube.put(VOLUME_CLAIMS, _claim(scene, 2))
        self.released(scene, "uid-of-2")
        meta = {**claim["metadata"], "uid": "uid-of-2"}
        scene.kube.put(VOLUME_CLAIMS, {**claim, "metadata": meta})
        scene.kube.refuse["delete"] = Unavailable(0, "no answer")
        with pytest.raises(Retry):
            await scene.look()
        assert list(scene.image.released) == ["uid-of-2"]
        del scene.kube.refuse["delete"]
        await scene.look()
        assert self.claims(scene) == []
        await scene.look()
        assert not scene.image.released

    async def test_volume_claim_is_deleted_by_released_uid(self, scene: Growing) -> None:
        """One that was made since under the same name has another uid."""
        self.released(scene, "an-earlier-one")
        await scene.look()
        assert not scene.image.released
        assert self.claims(scene) == ["data-main-broker-2-0"]


def _pod(broker: int) -> dict[str, Any]:
    return {"metadata": {"name": f"main-broker-{broker}-0", "namespace": "kafka"}}


def _claim(scene: Growing, broker: int) -> dict[str, Any]:
    found = labels.labels("main", scene.term.cluster_id, "broker")
    meta = {"name": f"data-main-broker-{broker}-0", "namespace": "kafka", "labels": found}
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": meta, "spec": spec}
