"""Runs pods of Spark drivers, for a Verification's Job, as processes of this machine.

A driver runs only for the pod of a Verification's own Job. The pod states the volumes, which are
folders here. Program, arguments and environment are fixed, whatever the pod states. Addresses of
brokers and of the API server are replaced by those of this machine. Images, resources and security
contexts have no effect. A driver runs once, and dies with this process. When a local cluster
starts, the software that only drivers need is searched for; the status of each Verification names
the missing part.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from plimsoll_operator.api_server.kubelets import Phase, RuntimeState
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.background_tasks import BackgroundTasks
from plimsoll_operator.local.kept_objects import NODE
from plimsoll_operator.local.layout import DirectoryLayout, OwnerCredentials, within
from plimsoll_operator.local.own_pods import is_driver
from plimsoll_operator.local.ports import LOOPBACK
from plimsoll_operator.manifests.verification import (
    DIRECTORY,
    ENVIRONMENT,
    FILE,
    PODS,
    TEMPORARY,
    arguments,
)
from plimsoll_operator.metalog.directory import write_whole
from plimsoll_operator.shipped_files import shipped_directory, working_tree

MODULES = ("plimsoll_spark", "pyspark", "pyarrow", "confluent_kafka")
JARS_VARIABLE = "PLIMSOLL_SPARK_JARS"
"""Environment variable with the folder of Spark's connector, which `plimsoll_spark.session`
reads."""
CONNECTOR = "spark-sql-kafka-0-10_*.jar"


def jars_directory(environment: Mapping[str, str]) -> Path:
    """Return the folder of Spark's Kafka connector, which may not exist: the one that the
    environment names, else one below the working tree, else one in the user's cache (XDG). It is
    absolute."""
    if stated := environment.get(JARS_VARIABLE):
        return Path(stated).absolute()
    tree = working_tree()
    if tree is not None:
        return tree / ".cache" / "spark-jars"
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/") / ".cache"
    return Path(cache).absolute() / "plimsoll" / "spark-jars"


def fetch_jars(environment: Mapping[str, str]) -> int:
    """Download the jars with Maven into `jars_directory`; the script prints that folder. Return the
    script's exit code."""
    script = shipped_directory("spark") / "jars.sh"
    words = ("bash", str(script), str(jars_directory(environment)))
    return subprocess.run(words, env=dict(environment), check=False).returncode


def why_no_driver(environment: Mapping[str, str]) -> str:
    """Return a sentence about the missing software without which no Verification can run; "" if all
    is installed."""
    missing = []
    if any(importlib.util.find_spec(name) is None for name in MODULES):
        missing.append(f"PySpark (`{sys.executable} -m pip install 'plimsoll[spark]'`)")
    if not _has_java(environment):
        missing.append("a Java runtime, 17 or later (Debian: openjdk-17-jre-headless)")
    jars = jars_directory(environment)
    if not any(jars.glob(CONNECTOR)):
        missing.append(
            f"Spark's Kafka connector, which is not in {jars} (`plimsoll spark-jars` downloads "
            f"it with Maven; {JARS_VARIABLE} selects another folder)"
        )
    if not missing:
        return ""
    return (
        f"Verifications need software that is not installed: {'; '.join(missing)}. Install it "
        "and restart the local cluster."
    )


def _has_java(environment: Mapping[str, str]) -> bool:
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return True
    return shutil.which("java", path=environment.get("PATH")) is not None


logger = logging.getLogger("plimsoll.local")

MODULE = "plimsoll_spark.verification"
HOME = "HOME"
ACCOUNT = "account"
"""Name of the folder with the driver's credentials for the API server, like a ServiceAccount's in a
pod."""
PYTHON_PATH = "PYTHONPATH"
STOP_MS_MAX = 15_000
LOOK_MS = 50
NOT_STARTED = 128
"""Exit code that container runtimes report for a container that cannot be started."""


class NotThere(Exception):
    """Raised if a driver's pod cannot be run: it mounts no configuration, the ConfigMap or Secret
    of a volume is missing or invalid, or the pod belongs to no Verification. The message is a
    sentence."""


@dataclass(slots=True)
class _RunningDriver:
    """A driver's pod that was started, with its process."""

    name: str
    # None: not yet started, or ended.
    process: asyncio.subprocess.Process | None = None
    # None while it runs.
    exit_code: int | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    # Ends when no process of the pod runs any more.
    task: asyncio.Task[None] | None = None


class DriverPods:
    """Runs the pods of Spark drivers as processes: an `api_server.kubelets.PodRuntime`."""

    def __init__(
        self,
        server: MemoryApiServer,
        layout: DirectoryLayout,
        *,
        bootstrap: Callable[[], str],
        api: str,
        owner: OwnerCredentials,
        address: str = LOOPBACK,
    ) -> None:
        """Create the runtime of the drivers' pods. `bootstrap`: returns the brokers' addresses,
        comma-separated. `api`: the URL of the API server, to which drivers report with the token of
        `owner`. `address`: this machine's, shown as the pods' IP."""
        self.on_change: Callable[[], None] = lambda: None
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        self._server = server
        self._layout = layout
        self._bootstrap = bootstrap
        self._api = api
        self._owner = owner
        self._address = address
        # By uid, until the kubelet is told that the pod has ended.
        self._pods: dict[str, _RunningDriver] = {}
        # Pods' lives and their stops.
        self._helpers = BackgroundTasks(lambda error: self.on_failure(error))

    # --- what kubelets ask ------------------------------------------------------------------------

    def place(self, pod: Object) -> str | None:
        return NODE if is_driver(self._server, pod) else None

    def start(self, pod: Object) -> None:
        running = _RunningDriver(pod["metadata"]["name"])
        self._pods[pod["metadata"]["uid"]] = running
        running.task = self._helpers.spawn(self._run(pod, running))
        running.task.add_done_callback(lambda _: self.on_change())

    def stop(self, pod: Object, grace_seconds: int) -> None:
        running = self._pods.get(pod["metadata"]["uid"])
        if running is not None:
            self._helpers.spawn(self._stop(running, 1000 * grace_seconds))

    def state(self, pod: Object) -> RuntimeState | None:
        running = self._pods.get(pod["metadata"]["uid"])
        if running is None:
            return None
        if running.exit_code is not None:
            phase: Phase = "Failed" if running.exit_code else "Succeeded"
            return RuntimeState(phase=phase, exit_code=running.exit_code)
        if running.process is None:
            return RuntimeState(phase="Pending")
        return RuntimeState(phase="Running", ready=True, pod_ip=self._address)

    def has_ended(self, pod: Object) -> bool:
        uid = pod["metadata"]["uid"]
        running = self._pods.get(uid)
        if running is None:
            return True
        assert running.task is not None, "set when it is started"
        if not running.task.done():
            return False
        del self._pods[uid]
        return True

    # --- what the cluster asks --------------------------------------------------------------------

    async def stop_all(self) -> None:
        pods = list(self._pods.values())
        await asyncio.gather(*(self._stop(running, STOP_MS_MAX) for running in pods))
        await asyncio.gather(*self._helpers, return_exceptions=True)

    # --- one pod ----------------------------------------------------------------------------------

    async def _run(self, pod: Object, running: _RunningDriver) -> None:
        folder = self._layout.pod(running.name)
        try:
            if not is_driver(self._server, pod):
                raise NotThere(
                    "the pod does not belong to the Job of a Verification, and a local "
                    "cluster runs no others"
                )
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._account(folder)
            mounts = self._volumes(pod, folder)
            running.exit_code = await self._run_driver(running, mounts)
        except (OSError, NotThere) as error:
            logger.warning(
                "the local cluster cannot start the driver pod %s of a Verification, which gets "
                "no verdict; remove the cause and create the Verification again: %s",
                *(running.name, error),
            )
            running.exit_code = NOT_STARTED
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if running.exit_code and not running.stopping.is_set():
            log = self._layout.pod_log(running.name)
            logger.warning(
                "the driver pod %s of a Verification ended with exit code %d; its log in %s and "
                "the Verification's status say why",
                *(running.name, running.exit_code, log),
            )

    def _account(self, folder: Path) -> None:
        account = folder / ACCOUNT
        account.mkdir(mode=0o700, exist_ok=True)
        write_whole(account / "token", self._owner.token.encode(), private=True)
        write_whole(account / "ca.crt", self._owner.authority)

    def _volumes(self, pod: Object, folder: Path) -> dict[str, Path]:
        """Write the content of the pod's volumes to folders below `folder`, but claims have folders
        that outlive the pod; return each folder by its mount path in the container. Raises NotThere
        if a ConfigMap or Secret does not exist, or the configuration is invalid."""
        folders = {}
        volumes = folder / "volumes"
        for volume in pod["spec"].get("volumes") or ():
            claim = volume.get("persistentVolumeClaim")
            if claim is not None:
                path = within(self._layout.claims, claim["claimName"])
            else:
                path = within(volumes, volume["name"])
            folders[volume["name"]] = path
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if config_map := volume.get("configMap"):
                for name, text in self._data(pod, folder, config_map["name"]).items():
                    within(path, name).write_text(text)
            if secret := volume.get("secret"):
                keys = [item["key"] for item in secret.get("items") or ()]
                for name, content in self._secret(pod, secret["secretName"]).items():
                    if not keys or name in keys:
                        write_whole(within(path, name), content, private=True)
        (container,) = pod["spec"]["containers"]
        return {one["mountPath"]: folders[one["name"]] for one in container["volumeMounts"]}

    def _data(self, pod: Object, folder: Path, name: str) -> dict[str, str]:
        stored = found(self._server, resources.CONFIG_MAPS, pod["metadata"]["namespace"], name)
        if stored is None:
            raise NotThere(
                f"ConfigMap {name}, which the driver pod of the Verification mounts, does not exist"
            )
        data: dict[str, str] = dict(stored.body.get("data") or {})
        if FILE in data:
            account = str(folder / ACCOUNT)
            try:
                data[FILE] = local_config(
                    data[FILE], bootstrap=self._bootstrap(), api=self._api, account=account
                )
            except (ValueError, KeyError, TypeError) as error:
                raise NotThere(
                    f"the configuration of the driver pod in ConfigMap {name} is invalid, so the "
                    f"pod cannot run its Verification; please report this: {error!r}"
                ) from error
        return data

    def _secret(self, pod: Object, name: str) -> dict[str, bytes]:
        stored = found(self._server, resources.SECRETS, pod["metadata"]["namespace"], name)
        if stored is None:
            raise NotThere(
                f"Secret {name}, which the driver pod of the Verification mounts, does not exist"
            )
        data = stored.body.get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}

    async def _run_driver(self, running: _RunningDriver, mounts: Mapping[str, Path]) -> int:
        if DIRECTORY not in mounts:
            raise NotThere(
                "this pod is not one of the operator's driver pods, the only ones that a local "
                "cluster runs: it does not mount a Verification's ConfigMap"
            )
        words = [translated(word, mounts) for word in arguments(mounts)]
        if running.stopping.is_set():
            return NOT_STARTED
        with self._layout.pod_log(running.name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "plimsoll_process.parent", str(os.getpid())),
                *(sys.executable, "-m", MODULE, *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(mounts, os.environ),
                cwd=self._layout.pod(
                    running.name
                ),  # Spark creates folders in its working directory
                start_new_session=True,
            )
        running.process = process
        self.on_change()
        if running.stopping.is_set():
            _signal_group(process.pid, signal.SIGTERM)
        try:
            code = await process.wait()
        finally:
            running.process = None
        await self._end_rest(process.pid)
        return code if code >= 0 else 128 - code

    async def _end_rest(self, group: int) -> None:
        """Wait until every process of the group has ended, since the JVM ends after the driver.
        Kill those that still run after `STOP_MS_MAX`."""
        for _ in range(STOP_MS_MAX // LOOK_MS):
            if not _signal_group(group, 0):
                return
            await asyncio.sleep(LOOK_MS / 1000)
        _signal_group(group, signal.SIGKILL)

    async def _stop(self, running: _RunningDriver, grace_ms: int) -> None:
        """Send SIGTERM to the driver and its JVM, and wait for the pod's end. Kill them after
        `grace_ms` milliseconds. A driver that is not started yet is not started any more."""
        running.stopping.set()
        if running.process is not None:
            _signal_group(running.process.pid, signal.SIGTERM)
        assert running.task is not None, "set when it is started"
        done, _ = await asyncio.wait([running.task], timeout=grace_ms / 1000)
        if not done:
            if running.process is not None:
                _signal_group(running.process.pid, signal.SIGKILL)
            await asyncio.wait([running.task])


def local_config(text: str, *, bootstrap: str, api: str, account: str) -> str:
    """Return the content of a driver's ConfigMap `text`, adapted to this machine: the brokers are
    at `bootstrap`, the API server at `api`, and the folder `account` holds the credentials for it.
    A driver that logs in keeps the brokers' addresses that the operator wrote. Raises ValueError,
    KeyError or TypeError if `text` is no driver's configuration."""
    config = json.loads(text)
    # A driver that logs in has the addresses of a listener, which are this machine's already.
    if "user" not in config:
        config["bootstrap"] = bootstrap
    report = {key: config["report"][key] for key in ("configMap", "namespace")}
    config["report"] = {**report, "server": api, "account": account}
    # Executors are processes of this machine too.
    config.get("runner", {}).pop(PODS, None)
    return msgspec.json.format(msgspec.json.encode(config)).decode()


def environment(mounts: Mapping[str, Path], own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a driver: those of this process, `own`, and those that
    every driver's pod has. Variables that this pod states are left out. HOME stays, and so do the
    entries of PYTHONPATH, made absolute, since a driver runs in another folder and the interpreter
    may import from there."""
    stated = {
        name: translated(value, mounts) for name, value in ENVIRONMENT.items() if name != HOME
    }
    paths = [path for path in own.get(PYTHON_PATH, "").split(os.pathsep) if path]
    imported = {PYTHON_PATH: os.pathsep.join(map(os.path.abspath, paths))} if paths else {}
    temporary = {"TMPDIR": str(mounts[TEMPORARY])} if TEMPORARY in mounts else {}
    return {**own, JARS_VARIABLE: str(jars_directory(own)), **imported, **temporary, **stated}


def translated(text: str, mounts: Mapping[str, Path]) -> str:
    """Return `text`, with a mount path at its start replaced by the folder on this machine;
    unchanged if it starts with none."""
    for mount, folder in mounts.items():
        if text == mount or text.startswith(f"{mount}/"):
            return f"{folder}{text[len(mount) :]}"
    return text


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to all processes of the process group `group` (signal 0: only check that one
    exists), and return True. Return False if no process is left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
