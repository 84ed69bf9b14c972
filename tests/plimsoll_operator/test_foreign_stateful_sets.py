"""What is labelled as a broker's, but has no broker's name, is nothing of the operator's."""

import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import STATEFUL_SETS, VOLUME_CLAIMS
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.restarts import reconcile as restarts


@pytest.fixture
def scene() -> Scene:
    image = with_topic(an_image(), ((0, 1, 2),))
    return Scene(image, Deciding(image), brokers={"count": 3})


@pytest.mark.parametrize("number", ["", "seven", "7"])
async def test_foreign_stateful_set_with_labels_is_left_alone(scene: Scene, number: str) -> None:
    found = labels.labels("main", scene.term.cluster_id, "broker")
    found |= {labels.BROKER_ID: number} if number else {}
    meta = {"name": "somebodys", "namespace": "kafka", "labels": found}
    scene.kube.put(STATEFUL_SETS, {"metadata": meta, "spec": {"template": {}}})
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    scene.kube.put(VOLUME_CLAIMS, {"metadata": meta, "spec": spec})
    await scene.run(cluster.reconcile)
    await scene.run(restarts.reconcile)
    assert "somebodys" in scene.made("statefulsets")


@pytest.mark.parametrize("name", ["main-broker-", "main-broker-07", "main-broker-²", "x-1", ""])
def test_names_that_are_no_brokers_have_no_number(name: str) -> None:
    assert labels.broker_of("main", name) is None
    assert labels.broker_of("main", labels.broker("main", 7)) == 7
