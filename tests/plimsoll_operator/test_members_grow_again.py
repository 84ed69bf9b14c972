"""A cluster that grows again before the first proposal to fill it is approved."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.test_members_handler import Growing

from plimsoll_core.cluster.model import Rebalance, RebalanceObject
from plimsoll_core.cluster.records import RebalanceNoted
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.labels import short_id
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import REBALANCES, Kind
from plimsoll_operator.reconcile.cluster import membership
from plimsoll_operator.reconcile.cluster.drain_and_fill import SOON_MS
from plimsoll_operator.reconcile.work_queue import Retry


@pytest.fixture
def scene() -> Growing:
    """Brokers 0, 1 and 2; `orders` has one partition on 0 and 1."""
    made = Growing(with_topic(an_image(), ((0, 1),), holder=None))
    made.term.monotonic_ms = lambda: made.ms
    return made


async def first_fill(scene: Growing) -> None:
    """Broker 3 joins, and `main-fill-3` is proposed."""
    await scene.edit(count=4)
    scene.join(3)
    await scene.look()


async def test_growth_before_approval_leaves_one_fill(
    scene: Growing,
) -> None:
    await first_fill(scene)
    assert list(scene.rebalances()) == ["main-fill-3"]
    scene.show("main-fill-3", "AwaitingApproval")
    await scene.edit(count=5)
    scene.join(4)
    await scene.look()
    both = {"main-fill-3-4": ("AddBrokers", [3, 4], "Manual")}
    assert scene.rebalances() == both
    await scene.look()
    assert scene.rebalances() == both
    assert scene.image.newcomers == ()


@pytest.mark.parametrize("what", ["edited", "begun", "ended"])
async def test_started_or_edited_fill_is_kept(scene: Growing, what: str) -> None:
    await first_fill(scene)
    body = scene.kube.find(REBALANCES, "kafka", "main-fill-3")
    if what == "edited":  # somebody approves of it just now
        body["spec"]["approvedPlan"] = "sha256:x"
    elif what == "begun":
        begun = RebalanceObject(namespace="kafka", name="x", uid=body["metadata"]["uid"])
        row = Rebalance(object=begun, phase="Running", mode="AddBrokers", started_ms=0)
        scene.commit(RebalanceNoted(cause="x", rebalance=row))
    else:
        body["status"] = {"phase": "Completed"}
    scene.kube.put(REBALANCES, body)
    await scene.edit(count=5)
    scene.join(4)
    await scene.look()
    assert sorted(scene.rebalances()) == ["main-fill-3", "main-fill-4"]


async def test_broker_being_removed_rejoins_after_removal(
    scene: Growing,
) -> None:
    """An operator that slept since it listed the StatefulSets deletes that of the broker when it
    wakes, by its uid; without a grant, while the broker may hold replicas again."""
    scene.kube.refuse["delete"] = Unavailable(0, "asleep")
    with pytest.raises(Retry):
        await scene.edit(count=2)
    assert scene.image.members == (0, 1)
    scene.declare(brokers={"count": 3})
    for _ in range(3):
        with suppress(Retry):
            await scene.look(after_ms=membership.SETTLE_MS)
        assert scene.image.members == (0, 1)
        assert ("statefulsets", "kafka", "main-broker-2") in scene.kube.objects
    del scene.kube.refuse["delete"]
    await scene.look()
    assert scene.blocked() == [("Start", 2, "BrokerLeaving")]
    assert ("statefulsets", "kafka", "main-broker-2") not in scene.kube.objects
    await scene.stopped(2)
    await scene.look()
    await scene.look()
    assert scene.image.members == (0, 1, 2)
    assert ("statefulsets", "kafka", "main-broker-2") in scene.kube.objects
    assert scene.blocked() == []


async def test_drain_with_leftovers_is_recreated(
    scene: Growing,
) -> None:
    """The operator's host is an hour behind: the broker kept its replicas for so long, and nothing
    told why."""
    scene.moved((1, 2))
    await scene.edit(count=2)
    body = scene.kube.find(REBALANCES, "kafka", "main-drain-2")
    made_ms = milliseconds(body["metadata"]["creationTimestamp"])
    scene.show("main-drain-2", "Completed")
    scene.term.now_ms = lambda: made_ms - 3_600_000
    scene.kube.said_ms = made_ms + SOON_MS
    await scene.look()
    await scene.look()
    anew = scene.kube.find(REBALANCES, "kafka", "main-drain-2")
    assert anew["metadata"]["uid"] != body["metadata"]["uid"]


def somebody_elses(name: str) -> Object:
    spec = {"clusterRef": {"name": "main"}, "mode": "AddBrokers", "brokers": [9]}
    metadata = {"name": name, "namespace": "kafka", "uid": "theirs"}
    return {"metadata": metadata, "spec": {**spec, "approval": "Manual"}}


@pytest.mark.parametrize(
    ("count", "name", "made"),
    [
        (4, "main-fill-3", ("AddBrokers", [3], "Manual")),
        (2, "main-drain-2", ("RemoveBrokers", [2], "Automatic")),
    ],
)
async def test_operators_rebalance_avoids_an_occupied_name(
    scene: Growing, count: int, name: str, made: tuple[str, list[int], str]
) -> None:
    """That one was taken for it: nothing was proposed, and no broker emptied."""
    scene.kube.put(REBALANCES, somebody_elses(name))
    scene.moved((1, 2))
    await scene.edit(count=count)
    if count == 4:
        scene.join(3)
    other = f"{name}-{short_id(scene.image.cluster_id)}"
    for _ in range(2):
        await scene.look()
        assert scene.rebalances() == {name: ("AddBrokers", [9], "Manual"), other: made}
    assert scene.image.newcomers == ()


async def test_fill_made_by_another_operator_is_reused(
    scene: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, copies = scene.kube.create, list[Object]()

    async def made_meanwhile(kind: Kind, body: Object) -> Object:
        if kind == REBALANCES and not copies:
            copies.append(await create(kind, body))
        answer: Object = await create(kind, body)
        return answer

    monkeypatch.setattr(scene.kube, "create", made_meanwhile)
    await first_fill(scene)
    assert scene.image.newcomers == (3,), "it is looked at first"
    await scene.look()
    assert list(scene.rebalances()) == ["main-fill-3"]
    assert scene.image.newcomers == ()


@pytest.mark.parametrize("when", ["create", "get"])
async def test_fill_approved_during_replacement_stays(
    scene: Growing, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first_fill(scene)
    await scene.edit(count=5)
    scene.join(4)
    call = getattr(scene.kube, when)

    async def approved_meanwhile(kind: Kind, *rest: Any) -> Object:
        answer: Object = await call(kind, *rest)
        if kind == REBALANCES:
            body = scene.kube.find(REBALANCES, "kafka", "main-fill-3")
            approved = {**body, "spec": {**body["spec"], "approvedPlan": "sha256:x"}}
            scene.kube.put(REBALANCES, approved)
        return answer

    monkeypatch.setattr(scene.kube, when, approved_meanwhile)
    await scene.look()
    assert sorted(scene.rebalances()) == ["main-fill-3", "main-fill-3-4"]


async def test_fill_with_status_change_during_replacement_is_deleted(
    scene: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster that grew changes what it proposes."""
    await first_fill(scene)
    await scene.edit(count=5)
    scene.join(4)
    get, shown = scene.kube.get, ["AwaitingApproval", "Planning"]

    async def shown_meanwhile(kind: Kind, *rest: Any) -> Object:
        answer: Object = await get(kind, *rest)
        if kind == REBALANCES and shown:
            scene.show("main-fill-3", shown.pop())
        return answer

    monkeypatch.setattr(scene.kube, "get", shown_meanwhile)
    await scene.look()
    assert shown == []
    assert list(scene.rebalances()) == ["main-fill-3-4"]
