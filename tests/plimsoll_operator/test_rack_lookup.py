"""A broker's rack is its node's label, found when it registers; what cannot be found is said."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_operator.builders import CLUSTER_UID, a_cluster, an_image, registered, replay
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.records import MembersChanged
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Refused, RegisterBroker
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.kube.errors import Rejected, Unavailable
from plimsoll_operator.kube.resources import NODES, PODS
from plimsoll_operator.leadership.rack_lookup import RackFinder

ZONE = "topology.kubernetes.io/zone"


def a_registration(broker: int = 0, **fields: Any) -> RegisterBroker:
    plain = RegisterBroker(
        cluster_id=UUID(CLUSTER_UID),
        broker_id=BrokerId(broker),
        incarnation_id=UUID(int=9),
        previous_broker_epoch=None,
        directory_ids=(UUID(int=broker + 100),),
        endpoints=(Endpoint(name="internal", host=f"b{broker}", port=9092),),
        pod_uid=f"pod-{broker}",
        metadata_versions=(1, 1),
        release="0.2.0",
    )
    return msgspec.structs.replace(plain, **fields)


def a_scene(labels: dict[str, str] | None = None, **racks: str) -> tuple[Scene, RackFinder]:
    """Broker 0's pod runs on node `n1`, which has the labels."""
    scene = Scene(an_image(), **({"racks": racks} if racks else {}))
    scene.kube.put(
        PODS,
        {
            "metadata": {"name": "main-broker-0-0", "namespace": "kafka", "uid": "pod-0"},
            "spec": {"nodeName": "n1"},
        },
    )
    scene.kube.put(NODES, {"metadata": {"name": "n1", "labels": labels or {}}})
    scene.controller.active = True
    return scene, RackFinder(scene.effects)


async def rack(finder: RackFinder, **fields: Any) -> str | None:
    found = await finder.fill_in(a_registration(**fields))
    assert isinstance(found, RegisterBroker)
    return found.rack


async def test_unrequested_missing_rack_is_no_warning(
    caplog: pytest.LogCaptureFixture,
):
    _, finder = a_scene()
    assert await rack(finder) is None
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_rack_defaults_to_the_nodes_zone():
    _, finder = a_scene({ZONE: "west-1", "rack": "r7"})
    assert await rack(finder) == "west-1"
    _, finder = a_scene({ZONE: "west-1", "rack": "r7"}, topologyKey="rack")
    assert await rack(finder) == "r7"


async def test_rack_in_broker_config_wins():
    scene, finder = a_scene({ZONE: "west-1"})
    assert await rack(finder, rack="mine") == "mine"
    assert scene.kube.calls == []


async def test_ignored_racks_are_not_looked_up():
    scene, finder = a_scene({ZONE: "west-1"}, policy="Ignored")
    assert await rack(finder) is None
    assert scene.kube.calls == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, f"node n1 has no label {ZONE}"),
        (
            {"pod_uid": "another"},
            "pod main-broker-0-0 has another uid than the broker states",
        ),
        (
            {"pod_uid": None},
            "pod main-broker-0-0 has another uid than the broker states",
        ),
        ({"broker_id": BrokerId(1)}, "cannot look up the node of the broker's pod"),
    ],
    ids=["no label", "another pod", "no pod named", "no such pod"],
)
async def test_rack_finder_without_rack_logs_or_refuses(
    fields: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
):
    _, finder = a_scene(policy="Preferred")
    assert await rack(finder, **fields) is None
    assert why in caplog.text
    scene, finder = a_scene(policy="Required")
    refusal = await finder.fill_in(a_registration(**fields))
    assert isinstance(refusal, Refused)
    assert refusal.reason == "InvalidRegistration"
    assert why in refusal.message
    assert "spec.racks.policy" in refusal.message
    assert scene.term.shown.notes["Stalled"].message == refusal.message


async def test_insisting_refused_broker_causes_no_api_calls():
    scene, finder = a_scene(policy="Required")
    for _ in range(5):
        assert isinstance(await finder.fill_in(a_registration()), Refused)
    assert [call[1] for call in scene.kube.calls] == ["pods", "nodes"]


async def test_status_forgets_the_rack_that_was_missing():
    scene, finder = a_scene(policy="Required")
    await finder.fill_in(a_registration())
    scene.declare(racks={"policy": "Preferred"})
    assert await rack(finder) is None
    assert "Stalled" not in scene.term.shown.notes


async def test_status_forgets_refused_former_member():
    scene, finder = a_scene(policy="Required")
    await finder.fill_in(a_registration())
    finder.review()
    assert "Stalled" in scene.term.shown.notes
    gone = MembersChanged(cause="declared", broker_ids=(BrokerId(1), BrokerId(2)))
    scene.controller.image = replay(scene.controller.image, gone)
    finder.review()
    assert "Stalled" not in scene.term.shown.notes


@pytest.mark.parametrize("error", [Unavailable(0, "timeout"), Rejected(403, "may not")])
async def test_known_rack_outlasts_a_failed_lookup(error: Exception):
    scene, finder = a_scene({ZONE: "west-1"})
    known = msgspec.structs.replace(registered(0), rack="west-1")
    scene.controller.image = replay(scene.controller.image, known)
    scene.kube.refuse["get"] = error
    assert await rack(finder) == "west-1"
    assert await rack(finder, pod_uid="another") is None


async def test_standby_asks_nobody():
    scene, finder = a_scene({ZONE: "west-1"})
    scene.controller.active = False
    assert await rack(finder) is None
    assert scene.kube.calls == []


def test_policy_reaches_the_controller():
    assert settings_of(a_cluster()).rack_policy == "Preferred"
    required = a_cluster(racks={"policy": "Required"})
    assert settings_of(required).rack_policy == "Required"
