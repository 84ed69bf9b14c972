"""Pods of Spark drivers as processes: what is started, with what, and what a kubelet hears."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.integration.local_cluster import runs, wait_for

from plimsoll_operator.api import labels
from plimsoll_operator.api.evidence import EvidenceStore
from plimsoll_operator.api.meta import LocalClusterRef, ObjectMeta
from plimsoll_operator.api.verification import Produce, Verification, VerificationSpec
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.kubelets import RuntimeState
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local import driver_pods
from plimsoll_operator.local.driver_pods import NOT_STARTED, DriverPods, environment, translated
from plimsoll_operator.local.layout import DirectoryLayout, OwnerCredentials
from plimsoll_operator.manifests import verification as manifests
from plimsoll_operator.manifests.verification import SparkDriver
from plimsoll_operator.process_clocks import wall_ms

WITHIN_S = 30
ENDS = """
import json, os, sys
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
said = {"config": config, "tmp": os.environ["TMPDIR"], "cwd": os.getcwd()}
print(json.dumps({**said, "arguments": sys.argv[1:]}))
sys.exit(3 if config["produce"]["records"] == 666 else 0)
"""
WAITS = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


def a_driver(records: int = 1, evidence: EvidenceStore | None = None) -> SparkDriver:
    spec = VerificationSpec(
        cluster_ref=LocalClusterRef(name="main"),
        topic="t",
        produce=Produce(records=records),
        evidence=evidence,
    )
    meta = ObjectMeta(name="check", namespace="default", uid="v")
    made = Verification(metadata=meta, spec=spec)
    return SparkDriver(verification=made, image="spark", image_pull_policy="IfNotPresent")


def pod(driver: SparkDriver | None = None) -> Object:
    """As the Job controller makes it."""
    template = manifests.job(driver or a_driver())["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "check-driver", "uid": "j"}
    meta = {
        "name": "check-driver-1",
        "namespace": "default",
        "uid": "a",
        "ownerReferences": [{**owner, "controller": True}],
    }
    return {"metadata": {**template["metadata"], **meta}, "spec": template["spec"]}


class Scene:
    def __init__(self, root: Path) -> None:
        self.layout = DirectoryLayout(root)
        self.layout.prepare()
        self.server = MemoryApiServer(wall_ms, lambda: str(uuid.uuid4()), definitions=shipped())
        self.pods = DriverPods(
            self.server,
            self.layout,
            bootstrap=lambda: "127.0.0.1:1",
            api="https://127.0.0.1:2",
            owner=OwnerCredentials(token="the-owners", authority=b"PEM"),
        )
        verification = {"metadata": {"name": "check", "namespace": "default", "uid": "v"}}
        self.server.seed(resources.VERIFICATIONS, verification)
        job = manifests.job(a_driver())
        self.server.seed(resources.JOBS, {**job, "metadata": {**job["metadata"], "uid": "j"}})
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


async def test_non_driver_pod_gets_no_node(scene: Scene) -> None:
    assert scene.pods.place(pod()) == "this-machine"
    assert scene.pods.place({"metadata": {"name": "other", "labels": {}}}) is None


async def test_driver_runs_with_config_and_local_addresses(
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
        "server": "https://127.0.0.1:2",
        "account": str(scene.layout.pod("check-driver-1") / "account"),
    }
    assert said["config"]["topic"] == "t"


async def test_driver_volumes_are_removed_at_its_end(scene: Scene) -> None:
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


async def test_failed_driver_names_its_log(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.config_map(a_driver(666))
    scene.pods.start(pod())
    assert (await scene.until("Failed")).exit_code == 3
    await scene.pods.stop_all()
    assert str(scene.log) in caplog.text


async def test_claim_of_a_driver_is_a_kept_directory(scene: Scene) -> None:
    evidence = EvidenceStore(persistent_volume_claim="proofs")
    driver = a_driver(evidence=evidence)
    scene.config_map(driver)
    scene.pods.start(pod(driver))
    await scene.until("Succeeded")
    said = json.loads(scene.log.read_text())
    claim = scene.layout.claims / "proofs"
    assert said["arguments"][-2:] == ["--evidence", str(claim)]
    await scene.pods.stop_all()
    assert claim.is_dir()
    assert claim.stat().st_mode & 0o077 == 0


async def test_driver_without_config_map_has_failed(scene: Scene) -> None:
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


def test_only_paths_below_mounts_are_mapped() -> None:
    mounts = {"/tmp": Path("/data/tmp"), "/etc/plimsoll": Path("/data/config")}
    words = ["--config", "/etc/plimsoll/verification.json", "/tmp", "/tmpfs", "/etc"]
    assert [translated(word, mounts) for word in words] == [
        "--config", "/data/config/verification.json", "/data/tmp", "/tmpfs", "/etc",
    ]  # fmt: skip


def test_executors_of_local_drivers_are_no_pods() -> None:
    runner = {"executors": 2, "cores": 1, "pods": {"image": "spark:1"}}
    report = {"configMap": "check-report", "namespace": "default"}
    asked = json.dumps({"bootstrap": "b:1", "report": report, "runner": runner})
    text = driver_pods.local_config(asked, bootstrap="127.0.0.1:9092", api="a", account="c")
    assert json.loads(text)["runner"] == {"executors": 2, "cores": 1}


def test_home_of_the_template_is_not_taken() -> None:
    made = environment({"/tmp": Path("/d")}, {"HOME": "/home/me"})
    assert (made["HOME"], made["SPARK_LOCAL_DIRS"], made["TMPDIR"]) == ("/home/me", "/d", "/d")


def labelled_alone(made: Object) -> None:
    del made["metadata"]["ownerReferences"]


def job_of_another_uid(made: Object) -> None:
    made["metadata"]["ownerReferences"][0]["uid"] = "x"


def another_verification(made: Object) -> None:
    made["metadata"]["labels"][labels.VERIFICATION] = "other"


@pytest.mark.parametrize(
    "forged", [labelled_alone, job_of_another_uid, another_verification], ids=lambda f: f.__name__
)
async def test_pod_without_verification_job_starts_no_process(
    scene: Scene, forged: Callable[[Object], None]
) -> None:
    """Also one that states its node itself, which no scheduler was asked for."""
    made = pod()
    forged(made)
    scene.config_map(a_driver())
    assert scene.pods.place(made) is None
    scene.pods.start(made)
    assert (await scene.until("Failed")).exit_code == NOT_STARTED
    assert not scene.log.exists()


async def test_driver_inherits_no_pod_environment_or_command(scene: Scene) -> None:
    made = pod()
    (container,) = made["spec"]["containers"]
    container["env"] = [{"name": "TMPDIR", "value": "/elsewhere"}]
    container["args"] = ["--config", "/elsewhere"]
    scene.config_map(a_driver())
    scene.pods.start(made)
    await scene.until("Succeeded")
    said = json.loads(scene.log.read_text())
    assert scene.layout.pod("check-driver-1") in Path(said["tmp"]).parents


async def test_key_that_is_a_path_is_written_nowhere(scene: Scene, tmp_path: Path) -> None:
    """An earlier run may have kept one: what is stored is looked at again."""
    config = manifests.config(a_driver())
    outside = "../../../../written"
    scene.server.seed(resources.CONFIG_MAPS, {**config, "data": {outside: "x", **config["data"]}})
    scene.pods.start(pod())
    assert (await scene.until("Failed")).exit_code == NOT_STARTED
    assert not list(tmp_path.rglob("written"))
    assert not (tmp_path.parent / "written").exists()
