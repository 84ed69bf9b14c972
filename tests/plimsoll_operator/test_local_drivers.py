"""Pods of Spark drivers as processes: what is started, with what, and what a kubelet hears."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.local_cluster import runs, wait_for

from plimsoll_operator.api.meta import LocalClusterRef, ObjectMeta
from plimsoll_operator.api.verification import Produce, Verification, VerificationSpec
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.memory.kubelets import RuntimeState
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.port import Object
from plimsoll_operator.local import driver_pods
from plimsoll_operator.local.driver_pods import NOT_STARTED, DriverPods, environment, translated
from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_operator.manifests import verification as manifests
from plimsoll_operator.manifests.verification import SparkDriver
from plimsoll_operator.process_clocks import wall_ms

WITHIN_S = 30
ENDS = """
import json, os, sys
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
print(json.dumps({"config": config, "tmp": os.environ["TMPDIR"], "cwd": os.getcwd()}))
sys.exit(3 if config["produce"]["records"] == 666 else 0)
"""
WAITS = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


def a_driver(records: int = 1) -> SparkDriver:
    spec = VerificationSpec(
        cluster_ref=LocalClusterRef(name="main"), topic="t", produce=Produce(records=records)
    )
    meta = ObjectMeta(name="check", namespace="default", uid="v")
    made = Verification(metadata=meta, spec=spec)
    return SparkDriver(verification=made, image="spark", image_pull_policy="IfNotPresent")


def pod(driver: SparkDriver | None = None) -> Object:
    template = manifests.job(driver or a_driver())["spec"]["template"]
    meta = {"name": "check-driver-1", "namespace": "default", "uid": "a"}
    return {"metadata": {**template["metadata"], **meta}, "spec": template["spec"]}


class Scene:
    def __init__(self, root: Path) -> None:
        self.layout = DirectoryLayout(root)
        self.layout.prepare()
        self.server = MemoryApiServer(wall_ms, lambda: str(uuid.uuid4()))
        self.pods = DriverPods(
            self.server, self.layout, bootstrap=lambda: "127.0.0.1:1", api="http://127.0.0.1:2"
        )
        self.pods.on_change = self._change
        self._changed = asyncio.Event()

    def config_map(self, driver: SparkDriver) -> None:
        self.server.seed(resources.CONFIG_MAPS, manifests.config(driver))

    def _change(self) -> None:
        self._changed.set()

    async def until(self, phase: str) -> RuntimeState:
        async with asyncio.timeout(WITHIN_S):
            while True:
                self._changed.clear()
                state = self.pods.state(pod())
                if state is not None and state.phase == phase:
                    return state
                await self._changed.wait()

    @property
    def log(self) -> Path:
        return self.layout.pod_log("check-driver-1")


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    (tmp_path / "driver_that_ends.py").write_text(ENDS)
    (tmp_path / "driver_that_waits.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(driver_pods, "MODULE", "driver_that_ends")
    made = Scene(tmp_path / "data")
    yield made
    await made.pods.stop_all()


async def test_pod_of_anything_but_a_driver_gets_no_node(scene: Scene) -> None:
    assert scene.pods.place(pod()) == "this-machine"
    assert scene.pods.place({"metadata": {"name": "other", "labels": {}}}) is None


async def test_driver_runs_with_its_config_and_the_addresses_of_this_machine(
    scene: Scene,
) -> None:
    scene.config_map(a_driver())
    scene.pods.start(pod())
    assert (await scene.until("Succeeded")).exit_code == 0
    said = json.loads(scene.log.read_text())
    assert said["config"]["bootstrap"] == "127.0.0.1:1"
    assert said["config"]["report"] == {
        "configMap": "check-report",
        "namespace": "default",
        "server": "http://127.0.0.1:2",
    }
    assert said["config"]["topic"] == "t"


async def test_volumes_of_a_driver_go_when_it_has_ended(scene: Scene) -> None:
    scene.config_map(a_driver())
    scene.pods.start(pod())
    await scene.until("Succeeded")
    said = json.loads(scene.log.read_text())
    folder = Path(said["tmp"])
    assert scene.layout.pod("check-driver-1") in folder.parents
    assert Path(said["cwd"]) == scene.layout.pod("check-driver-1")
    async with asyncio.timeout(WITHIN_S):
        await scene.pods.stop_all()
    assert not scene.layout.pod("check-driver-1").exists()
    assert scene.pods.has_ended(pod())


async def test_driver_that_ends_badly_has_failed_and_its_log_is_named(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.config_map(a_driver(666))
    scene.pods.start(pod())
    assert (await scene.until("Failed")).exit_code == 3
    await scene.pods.stop_all()
    assert str(scene.log) in caplog.text


async def test_driver_whose_config_map_is_not_there_has_failed(scene: Scene) -> None:
    scene.pods.start(pod())
    assert (await scene.until("Failed")).exit_code == NOT_STARTED


async def test_stopped_driver_takes_its_children_along(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_pods, "MODULE", "driver_that_waits")
    scene.config_map(a_driver())
    scene.pods.start(pod())
    await scene.until("Running")
    async with asyncio.timeout(WITHIN_S):
        said = await asyncio.to_thread(wait_for, "the child's pid", scene.log.read_text)
        scene.pods.stop(pod(), 20)
        assert (await scene.until("Failed")).exit_code == 128 + 15
    assert not runs(int(said))


def test_paths_below_a_mount_are_of_this_machine_and_others_stay() -> None:
    mounts = {"/tmp": Path("/data/tmp"), "/etc/plimsoll": Path("/data/config")}
    words = ["--config", "/etc/plimsoll/verification.json", "/tmp", "/tmpfs", "/etc"]
    assert [translated(word, mounts) for word in words] == [
        "--config", "/data/config/verification.json", "/data/tmp", "/tmpfs", "/etc",
    ]  # fmt: skip


def test_home_of_the_template_is_not_taken() -> None:
    container = {"env": [{"name": "HOME", "value": "/tmp"}, {"name": "X", "value": "/tmp/x"}]}
    made = environment(container, {"/tmp": Path("/d")}, {"HOME": "/home/me"})
    assert (made["HOME"], made["X"], made["TMPDIR"]) == ("/home/me", "/d/x", "/d")
