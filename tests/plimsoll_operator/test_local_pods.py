"""Pods of brokers as processes: what is started, with which config, and what a kubelet hears."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll_operator.api import labels
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local import broker_pods
from plimsoll_operator.local.broker_pods import NO_CONFIG, BrokerPods
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.local.ports import Ports
from plimsoll_operator.process_clocks import wall_ms

PORTS = Ports(kafka=1, metrics=2, replication=3)
IN_KUBERNETES = {
    "cluster_id": str(uuid.UUID(int=1)),
    "controllers": ["127.0.0.1:9"],
    "listen": {"host": "0.0.0.0", "port": 9092},
    "health": {"host": "0.0.0.0", "port": 9101},
    "configs": {"log.retention.ms": "5"},
}


class FakeProcess:
    """Runs from `run` until it is stopped."""

    made: list[FakeProcess]

    def __init__(self, broker_id: int, layout: object, **_: Any) -> None:
        self.broker_id = broker_id
        self.pid: int | None = None
        self.ended, self.restarts, self.why = False, 0, ""
        self.stopping = False
        self.graces_ms: list[int] = []
        self.may_end, self.running = asyncio.Event(), asyncio.Event()
        FakeProcess.made.append(self)

    async def run(self) -> None:
        self.pid = 7
        self.running.set()
        await self.may_end.wait()
        self.pid = None

    async def stop(self, grace_ms: int = 0) -> None:
        self.stopping = True
        self.graces_ms.append(grace_ms)


class Scene:
    def __init__(self, root: Path) -> None:
        self.layout = DirectoryLayout(root)
        self.layout.prepare()
        self.server = MemoryApiServer(wall_ms, lambda: str(uuid.uuid4()))
        self.pods = BrokerPods(self.server, self.layout, lambda _: PORTS, restart=True)
        FakeProcess.made = []
        template = {"metadata": {"labels": {labels.BROKER_ID: "4"}}}
        meta = {"name": "main-broker-4", "namespace": "default", "uid": "s"}
        self.server.seed(
            resources.STATEFUL_SETS, {"metadata": meta, "spec": {"template": template}}
        )

    def config_map(self, **configs: str) -> None:
        meta = {"name": "config", "namespace": "default"}
        config = IN_KUBERNETES | {"configs": IN_KUBERNETES["configs"] | configs}
        data = {"broker.json": json.dumps(config)}
        self.server.seed(resources.CONFIG_MAPS, {"metadata": meta, "data": data})

    def config(self) -> Any:
        return json.loads(self.layout.broker_config(4).read_text())


def pod(uid: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "main-broker-4", "uid": "s"}
    return {
        "metadata": {
            "name": "main-broker-4-0",
            "namespace": "default",
            "uid": uid,
            "labels": {labels.BROKER_ID: "4"},
            "ownerReferences": [{**owner, "controller": True}],
            "annotations": {labels.REVISION: "abc"},
        },
        "spec": {"volumes": [{"name": "config", "configMap": {"name": "config"}}]},
    }


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(broker_pods, "BrokerProcess", FakeProcess)
    monkeypatch.setattr(broker_pods, "PROBE_STARTING_S", 0)
    return Scene(tmp_path)


async def soon(condition: Callable[[], bool]) -> None:
    """Within a few turns of the loop."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


async def test_non_broker_pod_gets_no_node(scene: Scene) -> None:
    assert scene.pods.place(pod("a")) == "this-machine"
    assert scene.pods.place({"metadata": {"name": "driver"}}) is None


def labelled_alone(made: Object) -> None:
    del made["metadata"]["ownerReferences"]


def another_broker(made: Object) -> None:
    made["metadata"]["labels"][labels.BROKER_ID] = "5"


@pytest.mark.parametrize("forged", [labelled_alone, another_broker], ids=lambda f: f.__name__)
async def test_pod_without_stateful_set_starts_no_broker(
    scene: Scene, forged: Callable[[Object], None]
) -> None:
    """Also one that states its node itself, which no scheduler was asked for."""
    made = pod("a")
    forged(made)
    assert scene.pods.place(made) is None
    scene.pods.start(made)
    assert FakeProcess.made == []
    assert scene.pods.state(made) is None
    assert scene.pods.has_ended(made)


async def test_broker_runs_with_template_configs_and_addresses(
    scene: Scene,
) -> None:
    scene.config_map()
    scene.pods.start(pod("a"))
    await FakeProcess.made[0].running.wait()
    config = scene.config()
    assert (config["pod_uid"], config["revision"], config["broker_id"]) == ("a", "abc", 4)
    assert config["configs"] == {"log.retention.ms": "5", "auto.create.topics.enable": "true"}
    assert config["listen"] == config["advertised"] == {"host": "127.0.0.1", "port": 1}
    assert config["replication"]["port"] == 3
    assert config["data_dir"] == str(scene.layout.data(4))
    assert "health" not in config
    assert scene.pods.pids["4"] == 7


async def test_auto_creation_false_in_log_cluster_is_passed(scene: Scene) -> None:
    scene.config_map(**{"auto.create.topics.enable": "false"})
    scene.pods.start(pod("a"))
    await FakeProcess.made[0].running.wait()
    assert scene.config()["configs"]["auto.create.topics.enable"] == "false"


async def test_pod_without_config_map_waits_saying_so(scene: Scene) -> None:
    scene.pods.start(pod("a"))
    await asyncio.sleep(0)
    state = scene.pods.state(pod("a"))
    assert state is not None
    assert (state.phase, state.waiting) == ("Pending", NO_CONFIG)
    scene.config_map()
    await soon(FakeProcess.made[0].running.is_set)
    state = scene.pods.state(pod("a"))
    assert state is not None
    assert state.phase == "Running"


async def test_later_broker_pod_waits_for_earlier(scene: Scene) -> None:
    scene.config_map()
    scene.pods.start(pod("a"))
    await FakeProcess.made[0].running.wait()
    scene.pods.stop(pod("a"), 40)
    scene.pods.start(pod("b"))
    first, second = FakeProcess.made
    await soon(lambda: first.graces_ms == [40_000])
    assert not scene.pods.has_ended(pod("a"))
    assert not second.running.is_set()
    first.may_end.set()
    await soon(second.running.is_set)
    assert scene.pods.has_ended(pod("a"))
    assert scene.config()["pod_uid"] == "b"


async def test_restarted_broker_shows_its_last_termination(
    scene: Scene,
) -> None:
    scene.config_map()
    scene.pods.start(pod("a"))
    process = FakeProcess.made[0]
    await process.running.wait()
    process.pid, process.why, process.restarts = None, "SIGKILL", 1
    state = scene.pods.state(pod("a"))
    assert state is not None
    assert (state.waiting, state.restarts, state.ready) == (
        ("CrashLoopBackOff", "SIGKILL"),
        1,
        False,
    )
