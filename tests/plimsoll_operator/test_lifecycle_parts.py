"""What the watches bring: objects remembered, unreadable ones left out, strays told."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster_body
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS, VERIFICATIONS
from plimsoll_operator.kube.seen_objects import Objects
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.options import BadOption, from_environment
from plimsoll_operator.process.missing_cluster import look_at_strays
from plimsoll_operator.process_clocks import monotonic_ms, wall_ms


def a_topic_body(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "orders", "namespace": "kafka", "uid": "t1", "generation": 3},
        "spec": {"clusterRef": {"name": "main"}},
        **more,
    }


class Scene:
    def __init__(self) -> None:
        self.kube = ScriptedKube()
        self.objects = Objects()
        self.parts = Parts(
            options=from_environment(
                {"PLIMSOLL_BROKER_IMAGE": "b", "PLIMSOLL_CONTROLLERS": "c:1", "POD_NAME": "x"}
            ),
            kube=self.kube,
            lease_kube=self.kube,
            status_kube=self.kube,
            watch_kube=self.kube,
            metadata_log=None,  # type: ignore[arg-type]
            objects=self.objects,
            server=None,  # type: ignore[arg-type]
            metrics=None,  # type: ignore[arg-type]
            now_ms=wall_ms,
            monotonic_ms=monotonic_ms,
        )
        self.kube.put(TOPICS, a_topic_body())
        self.objects.topics.put(a_topic_body())

    @property
    def writes(self) -> int:
        return sum(verb == "status" for verb, _, _ in self.kube.calls)


async def test_topic_without_a_cluster_is_told_so_once():
    scene = Scene()
    await look_at_strays(scene.parts)
    status = scene.kube.find(TOPICS, "kafka", "orders")["status"]
    assert status["observedGeneration"] == 3
    assert status["conditions"][0]["reason"] == "ClusterNotFound"
    scene.objects.topics.put(scene.kube.find(TOPICS, "kafka", "orders"))
    await look_at_strays(scene.parts)
    assert scene.writes == 1


@pytest.mark.parametrize("ending", ["Complete", "Failed"])
@pytest.mark.parametrize("readable", [True, False])
async def test_ended_verification_keeps_verdict_without_cluster(ending: str, readable: bool):
    """The status was written anew with one condition, and nothing else."""
    scene = Scene()
    scene.objects.topics.drop(("kafka", "orders"))
    spec = {"clusterRef": {"name": "main"}, "topic": "orders", "produce": {"records": 1}}
    ended = [
        {"type": ending, "status": "True", "reason": "Passed", "message": "Nothing is lost."},
        {"type": "Ready", "status": "True", "reason": "Passed", "message": "Nothing is lost."},
    ]
    body = {
        "metadata": {"name": "check", "namespace": "kafka", "uid": "v1", "generation": 1},
        "spec": spec,
        "status": {"phase": "Completed", "verdict": "Passed", "conditions": ended},
    }
    scene.kube.put(VERIFICATIONS, body)
    seen = body if readable else {**body, "spec": {**spec, "clusterRef": {}}}
    assert (scene.objects.verifications.put(seen) is not None) == readable
    await look_at_strays(scene.parts)
    assert scene.writes == 0
    assert scene.kube.find(VERIFICATIONS, "kafka", "check")["status"]["verdict"] == "Passed"


async def test_existing_unseen_cluster_makes_no_stray():
    scene = Scene()
    scene.kube.put(LOG_CLUSTERS, a_cluster_body())
    await look_at_strays(scene.parts)
    assert scene.writes == 0


async def test_topic_of_seen_cluster_belongs_to_leader():
    scene = Scene()
    scene.objects.clusters.put(a_cluster_body())
    await look_at_strays(scene.parts)
    assert scene.kube.calls == []


def test_object_that_cannot_be_read_is_left_out():
    objects = Objects()
    assert objects.topics.put(a_topic_body(spec={"clusterRef": {}})) is None
    assert objects.topics.get(("kafka", "orders")) is None


async def test_topic_shows_why_its_cluster_is_unled():
    scene = Scene()
    await look_at_strays(scene.parts)
    scene.objects.topics.put(scene.kube.find(TOPICS, "kafka", "orders"))
    stalled = {"type": "Stalled", "status": "True", "reason": "x", "message": "The log has a hole."}
    ready = {"type": "Ready", "status": "False", "reason": "x", "message": "x"}
    body = {**a_cluster_body(), "status": {"conditions": [stalled, ready]}}
    scene.kube.put(LOG_CLUSTERS, body)
    scene.objects.clusters.put(body)
    await look_at_strays(scene.parts)
    (shown,) = scene.kube.find(TOPICS, "kafka", "orders")["status"]["conditions"]
    assert shown["reason"] == "ClusterNotLed"
    assert "The log has a hole." in shown["message"]


async def test_unreadable_object_is_reported_once():
    scene = Scene()
    scene.objects.topics.drop(("kafka", "orders"))
    body = a_topic_body(spec={"clusterRef": {}})
    scene.objects.topics.put(body)
    await look_at_strays(scene.parts)
    shown = scene.kube.find(TOPICS, "kafka", "orders")
    (ready,) = shown["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    scene.objects.topics.put({**shown, "spec": body["spec"]})
    await look_at_strays(scene.parts)
    assert scene.writes == 1


def test_fields_of_a_newer_crd_are_ignored():
    body = a_topic_body(spec={"clusterRef": {"name": "main"}, "fromTheFuture": 1})
    assert Objects().topics.put(body) is not None


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "PLIMSOLL_BROKER_IMAGE"),
        ({"PLIMSOLL_BROKER_IMAGE": "b"}, "PLIMSOLL_CONTROLLERS"),
        (
            {
                "PLIMSOLL_BROKER_IMAGE": "b",
                "PLIMSOLL_CONTROLLERS": "c",
                "PLIMSOLL_METRICS_PORT": "x",
            },
            "PLIMSOLL_METRICS_PORT",
        ),
        (
            {"PLIMSOLL_BROKER_IMAGE": "b", "PLIMSOLL_CONTROLLERS": "c", "PLIMSOLL_SET_USER": "no"},
            "PLIMSOLL_SET_USER",
        ),
    ],
)
def test_wrong_environment_is_named(env: dict[str, str], name: str):
    with pytest.raises(BadOption, match=name):
        from_environment(env)
