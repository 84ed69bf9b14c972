"""Children that another client changed are restored, without a restart, with an Event."""

from typing import Any

import pytest
from tests.plimsoll_operator.rolling import NEW, OLD, Cluster, a_cluster, declare

from plimsoll_operator.api.labels import REVISION
from plimsoll_operator.kube.resources import STATEFUL_SETS
from plimsoll_operator.status.events import Occurrence

NAME = "main-broker-0"


@pytest.fixture
async def three() -> Cluster:
    return await a_cluster((0, 1, 2))


def told(found: Cluster) -> list[Occurrence]:
    """The Events of the term from now on."""
    events: list[Occurrence] = []
    found.scene.effects.tell = events.append
    return events


def edit(found: Cluster, **spec: Any) -> None:
    """Another client edits the StatefulSet of broker 0."""
    body = found.kube.find(STATEFUL_SETS, "kafka", NAME)
    found.kube.put(STATEFUL_SETS, {**body, "spec": {**body["spec"], **spec}})


def with_image(template: dict[str, Any], image: str) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    spec = {**template["spec"], "containers": [{**container, "image": image}]}
    return {**template, "spec": spec}


def uids(found: Cluster) -> list[str]:
    return [found.pod(broker)["metadata"]["uid"] for broker in range(3)]


async def test_scaled_stateful_set_is_restored_with_event(three: Cluster):
    events = told(three)
    edit(three, replicas=0)
    await three.look()
    assert three.kube.find(STATEFUL_SETS, "kafka", NAME)["spec"]["replicas"] == 1
    (event,) = events
    assert (event.reason, event.warning) == ("Restored", True)
    assert f"{NAME}: replicas" in event.message


async def test_hand_set_image_is_restored_without_restart(three: Cluster):
    before = uids(three)
    edit(three, template=with_image(three.template(0), "nonsense:1"))
    await three.look()
    (container,) = three.template(0)["spec"]["containers"]
    assert container["image"] == "broker:old"
    assert uids(three) == before
    assert not three.image.grants


async def test_revision_that_was_changed_by_hand_restarts_nobody(three: Cluster):
    before = uids(three)
    template = three.template(0)
    meta = {**template["metadata"], "annotations": {REVISION: "another"}}
    edit(three, template={**template, "metadata": meta})
    await three.look()
    assert three.template(0) == template
    assert uids(three) == before
    assert not three.image.grants


async def test_changed_volume_policy_is_restored(three: Cluster):
    edit(three, persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"})
    await three.look()
    found = three.kube.find(STATEFUL_SETS, "kafka", NAME)["spec"]
    assert found["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"


async def test_template_awaiting_restart_is_restored_unchanged(
    three: Cluster,
):
    declare(three, **NEW)
    await three.look()
    body = three.kube.find(STATEFUL_SETS, "kafka", "main-broker-1")
    before = body["spec"]["template"]
    template = with_image(before, "nonsense:1")
    three.kube.put(STATEFUL_SETS, {**body, "spec": {**body["spec"], "template": template}})
    await three.look()
    assert three.template(1) == before
    assert three.runs(1) == OLD["image"]


async def test_unchanged_children_cost_no_writes(three: Cluster):
    await three.look()
    three.kube.calls.clear()
    await three.look()
    assert [c for c in three.kube.calls if c[0] in ("try", "replace")] == []
