"""A LogCluster's own PodMonitor: made where the chart allows it, as and while the spec says so."""

import dataclasses
from typing import Any

from tests.plimsoll_operator.terms import Scene
from tests.plimsoll_operator.test_cluster_handler import a_scene

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.kube.resources import POD_MONITORS
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.status.record_events import Occurrence

NAME = "main-broker"


def a_watched_scene(
    *, allowed: bool = True, installed: bool = True, **spec: Any
) -> tuple[Scene, list[Occurrence]]:
    """`installed`: the Prometheus operator's kinds are served."""
    scene, told = a_scene(**spec), []
    if installed:
        scene.kube.server.store.serve([Resource(kind=POD_MONITORS)])
    scene.term.options = dataclasses.replace(scene.term.options, pod_monitors=allowed)
    scene.effects.tell = told.append
    return scene, told


def asked_about(scene: Scene) -> list[str]:
    return [call[0] for call in scene.kube.calls if call[1] == POD_MONITORS.plural]


async def test_pod_monitor_selects_and_names_its_brokers():
    wanted = {"interval": "15s", "labels": {"release": "prometheus"}}
    scene, told = a_watched_scene(podMonitor=wanted)
    await scene.run(cluster.reconcile)
    made = scene.kube.find(POD_MONITORS, "kafka", NAME)
    assert made is not None
    pod = scene.kube.objects["statefulsets", "kafka", "main-broker-0"]["spec"]["template"]
    assert made["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert made["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "15s")
    assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"cluster", "broker"}
    (container,) = pod["spec"]["containers"]
    assert "metrics" in {port["name"] for port in container["ports"]}
    assert told == []


async def test_pod_monitor_is_removed_with_the_spec():
    scene, _ = a_watched_scene(podMonitor={})
    await scene.run(cluster.reconcile)
    assert scene.made(POD_MONITORS.plural) == [NAME]
    scene.declare()
    await scene.run(cluster.reconcile)
    assert scene.made(POD_MONITORS.plural) == []


async def test_pod_monitor_that_somebody_else_made_stays():
    scene, _ = a_watched_scene()
    scene.kube.put(POD_MONITORS, {"metadata": {"name": NAME, "namespace": "kafka"}, "spec": {}})
    await scene.run(cluster.reconcile)
    assert scene.made(POD_MONITORS.plural) == [NAME]


async def test_missing_pod_monitor_right_is_reported():
    scene, told = a_watched_scene(allowed=False, podMonitor={})
    await scene.run(cluster.reconcile)
    assert asked_about(scene) == []
    (event,) = told
    assert event.reason == "PodMonitorRefused"
    assert "metrics.podMonitor.perLogCluster" in event.message


async def test_cluster_works_without_prometheus_operator():
    scene, told = a_watched_scene(installed=False, podMonitor={})
    await scene.run(cluster.reconcile)
    (event,) = told
    assert event.message.startswith("The operator cannot create or change the brokers' PodMonitor")
    assert scene.made("statefulsets") == ["main-broker-0", "main-broker-1", "main-broker-2"]
