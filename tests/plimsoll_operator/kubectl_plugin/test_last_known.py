"""`brokers`, `topic` and `what-if` while no operator leads: what objects showed last, and when."""

from typing import Any

import pytest
from tests.plimsoll_operator.kubectl_plugin.test_verbs import said, scene

from plimsoll_operator.kubectl_plugin import verbs_cluster, verbs_topics
from plimsoll_operator.kubectl_plugin.last_known import UNKNOWN, as_of
from plimsoll_operator.kubectl_plugin.shown import ViewUnavailable

AT = "2026-11-28T10:00:00Z"
META = {
    "name": "orders",
    "managedFields": [
        {"manager": "kubectl", "time": "2026-11-28T12:00:00Z"},
        {"manager": "plimsoll", "subresource": "status", "time": AT},
    ],
}


def a_broker(broker: int, **status: Any) -> Any:
    return {
        "metadata": META | {"name": f"main-{broker}"},
        "spec": {"clusterRef": {"name": "main"}, "brokerId": broker},
        "status": status,
    }


A_TOPIC = {
    "metadata": META,
    "spec": {"clusterRef": {"name": "main"}},
    "status": {
        "partitions": 2,
        "replicationFactor": 3,
        "minInSyncReplicas": 2,
        "health": {"fullISR": 1, "atMinISR": 0, "underMinISR": 0, "offline": 1},
        "assignment": ["0,1,2", "1,2,0"],
        "unhealthy": [
            {
                "partition": 1,
                "leader": -1,
                "leaderEpoch": 7,
                "isr": [],
                "waitsFor": [2],
                "cause": "StorageFailed",
                "since": AT,
            }
        ],
    },
}


async def test_brokers_without_an_operator_show_their_objects_statuses() -> None:
    fenced = {"since": AT, "why": "It was silent for 6 s."}
    bodies = [
        a_broker(1, state="Fenced", fenced=fenced),
        a_broker(0, state="Active", leaders=5, disk={"used": "1Gi", "free": "9Gi"}),
    ]
    found = await verbs_cluster.brokers(scene(views=None, bodies={"logbrokers": bodies}))
    text = said(found)
    assert "No operator that leads the cluster answers." in text
    assert "Unknown without the operator" in text
    assert text.count(AT) == 3
    assert "It was silent for 6 s." in text
    assert "9Gi" in text
    assert [row["broker"] for row in found.data["brokers"]] == [0, 1]
    assert [row["asOf"] for row in found.data["brokers"]] == [AT, AT]


async def test_brokers_without_operator_and_objects_say_so() -> None:
    with pytest.raises(ViewUnavailable):
        await verbs_cluster.brokers(scene(views=None))


async def test_topic_without_an_operator_shows_its_objects_status() -> None:
    found = await verbs_topics.topic(scene(views=None, bodies={"topics": [A_TOPIC]}), "orders")
    text = said(found)
    assert f"Topic orders as of {AT}: 2 partitions, replication factor 3, min ISR 2" in text
    assert "Unknown without the operator: leaders, ISRs" in text
    assert "StorageFailed" in text
    assert "1,2,0" in text
    assert found.data["lastKnown"] is True


async def test_topic_without_object_and_operator_is_unknown() -> None:
    session = scene(views=None, bodies={"topics": [A_TOPIC]})
    with pytest.raises(ViewUnavailable, match="No Topic object in this namespace declares other"):
        await verbs_topics.topic(session, "other")


async def test_what_if_without_an_operator_says_why() -> None:
    with pytest.raises(ViewUnavailable, match="depends on the current ISR of every partition"):
        await verbs_cluster.what_if(scene(views=None), [1])


def test_status_time_falls_back_to_conditions() -> None:
    body = {"metadata": {"name": "x"}, "status": {"conditions": [{"lastTransitionTime": AT}]}}
    assert as_of(body) == AT
    assert as_of({"metadata": {"name": "x"}}) == UNKNOWN
