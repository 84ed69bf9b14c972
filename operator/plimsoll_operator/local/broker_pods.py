"""Runs pods of brokers as processes of this machine, as the kubelet of `api_server`.

A pod's template gives its broker's configuration: configs by its ConfigMap, revision and id by its
labels. The directory's layout gives its addresses and its data directory. Images, resources and
probes have no effect here. Pods that are not of brokers are not run here. Each pod owns one
`BrokerProcess`, which dies with its parent (it requests that from the kernel), so none is left
behind however the parent ends. Secrets are mounted as files that only the owner can read; all files
of a Secret change at once, by a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import time
from asyncio import create_subprocess_exec
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from plimsoll_core.cluster.topic_configs import AUTO_CREATE
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api_server.kubelets import RuntimeState
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.background_tasks import BackgroundTasks
from plimsoll_operator.local.kept_objects import NODE
from plimsoll_operator.local.layout import DirectoryLayout, within
from plimsoll_operator.local.own_pods import is_broker
from plimsoll_operator.local.ports import LOOPBACK, Ports, taken
from plimsoll_operator.manifests.configmap import FILE
from plimsoll_operator.manifests.listener_secrets import data_of
from plimsoll_operator.metalog.directory import write_whole
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.local")

BACKOFF_MS = 100
BACKOFF_MS_MAX = 5_000
STEADY_MS = 10_000
"""Milliseconds after which a running process counts as stable: when it exits, it is restarted after
the shortest delay."""
STOP_MS_MAX = 30_000
FINAL_CODES = (2, 3)
"""Exit codes of a broker with a bad configuration, or with another broker's volume. Such a broker
is not restarted, since it would exit in the same way."""
TAKEN_STARTS_MAX = 5
"""Number of consecutive exits because of a port in use, after which the broker is not restarted. An
outgoing connection occupies a port only briefly; another process that listens on the port keeps
it."""
LOG_BYTES_MAX = 16 * 1024 * 1024


class BrokerProcess:
    """The broker process of one pod. `run` starts it and restarts it when it exits; its
    configuration file must exist before."""

    def __init__(
        self,
        broker_id: int,
        layout: DirectoryLayout,
        *,
        restart: bool,
        changed: Callable[[], None],
        port_taken: Callable[[], str],
    ) -> None:
        """Create the process of a broker; `run` starts it. `restart`: True if it is started again
        after it exits. `changed`: called when it starts or exits. `port_taken`: returns a sentence
        if another process uses a port of the broker, else ""."""
        self.broker_id = broker_id
        # The running process's pid; None between two processes.
        self.pid: int | None = None
        # True if it is not restarted although no stop was requested.
        self.ended = False
        # The number of restarts.
        self.restarts = 0
        # Why the last process ended; empty before that.
        self.why = ""
        self._layout = layout
        self._restart = restart
        self._changed = changed
        self._port_taken = port_taken
        # Consecutive exits that found a port taken.
        self._taken = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def last_words(self) -> str:
        """Return the last line of the broker's log, which says why the process exited; "no output"
        if the log is empty or absent."""
        path = self._layout.broker_log(self.broker_id)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return lines[-1] if lines else "no output"

    async def run(self) -> None:
        """Run the process until `stop` is called. Return earlier if it exits and is not restarted:
        restarts are off, or another start would fail in the same way."""
        backoff_ms = BACKOFF_MS
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once()
            # A killed process wrote no reason; otherwise its last line is the reason.
            self.why = self.last_words if code > 0 else _signal_name(-code)
            if self._stopping.is_set() or not self._restart or self._is_final(code):
                self.ended = not self._stopping.is_set()
                text = (
                    "the process of broker %d ended with exit code %d and is not restarted"
                    if self.ended
                    else "the process of broker %d was stopped as requested (exit code %d)"
                )
                logger.info(text, self.broker_id, code)
                self._changed()
                return
            self._changed()
            ran_ms = (time.monotonic() - started) * 1000
            backoff_ms = BACKOFF_MS if ran_ms > STEADY_MS else min(backoff_ms * 2, BACKOFF_MS_MAX)
            logger.warning(
                "the process of broker %d ended (%s); the local cluster starts it again",
                self.broker_id,
                self.why,
            )
            await set_within(self._stopping, backoff_ms / 1000)
            self.restarts += 1

    def _is_final(self, code: int) -> bool:
        """Return True if a process that exited with `code` must not be restarted: its code is in
        `FINAL_CODES`, or this is the last of `TAKEN_STARTS_MAX` consecutive exits that found a port
        in use. Each call counts one exit; the port as the reason is logged."""
        taken = self._port_taken() if code > 0 else ""
        self._taken = self._taken + 1 if taken else 0
        if self._taken >= TAKEN_STARTS_MAX:
            self.why = taken
            logger.error(
                "the process of broker %d could not open its port and is not started again; free "
                "the port, then start `plimsoll local` again: %s",
                *(self.broker_id, taken),
            )
            return True
        return code in FINAL_CODES

    async def _run_once(self) -> int:
        log_path = self._layout.broker_log(self.broker_id)
        _rotate(log_path)
        with log_path.open("ab") as log:
            process = await create_subprocess_exec(
                sys.executable,
                *("-m", "plimsoll_broker"),
                *("--config", str(self._layout.broker_config(self.broker_id))),
                *("--die-with-parent", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process, self.pid = process, process.pid
        self._changed()
        if self._stopping.is_set():
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._process, self.pid = None, None

    async def stop(self, grace_ms: int = STOP_MS_MAX) -> None:
        """Send SIGTERM to the process, if it runs, and wait for it to exit; it is not restarted.
        Kill it after `grace_ms` milliseconds."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await process.wait()
        except TimeoutError:
            logger.warning(
                "broker %d did not stop within its grace period, so the local cluster kills its "
                "process",
                self.broker_id,
            )
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name if number else "cleanly"
    except ValueError:
        return f"signal {number}"


def _rotate(path: Path) -> None:
    """Rename the log to `….log.1` if it is larger than `LOG_BYTES_MAX`, replacing an older one."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))


LINK = "..data"


def mount(directory: Path, version: str, files: Mapping[str, bytes]) -> None:
    """Make `directory` hold exactly `files` (content by name), replacing all in one step, as a
    kubelet mounts a Secret. `version`: the Secret's resourceVersion; if that version is mounted
    already, do nothing. Raises OSError."""
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    place, link = directory / f"..{version}", directory / LINK
    if link.is_symlink() and os.readlink(link) == place.name:
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    for name, data in files.items():
        descriptor = os.open(within(place, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    before = os.readlink(link) if link.is_symlink() else None
    new = directory / f"{LINK}.tmp"
    new.unlink(missing_ok=True)
    new.symlink_to(place.name)
    new.replace(link)
    if before is not None and before != place.name:
        shutil.rmtree(directory / before, ignore_errors=True)


PROBE_S = 2.0
MOUNT_S = 1.0
PAUSE_S = 0.1
PROBE_STARTING_S = 0.25
PROBE_S_MAX = 1.0
NO_CONFIG = ("CreateContainerConfigError", "the broker's ConfigMap does not exist")


@dataclass(slots=True)
class _Running:
    """A broker's pod that was started, with its process and tasks."""

    process: BrokerProcess
    # Ends when no process of the pod runs any more.
    task: asyncio.Task[None]
    # True if the last request to /readyz succeeded.
    ready: bool = False


class BrokerPods:
    """Runs the pods of brokers as processes: an `api_server.kubelets.PodRuntime`."""

    def __init__(
        self,
        server: MemoryApiServer,
        layout: DirectoryLayout,
        ports: Callable[[int], Ports],
        *,
        restart: bool,
        address: str = LOOPBACK,
    ) -> None:
        """Create the runtime of the brokers' pods. `ports`: returns a broker's ports, and picks
        them at its first call. `restart`: True if a broker process that exits is started again.
        `address`: where brokers listen."""
        self.on_change: Callable[[], None] = lambda: None
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        self.server = server
        self._layout = layout
        self._ports = ports
        self._restart = restart
        self._address = address
        # By uid, until the kubelet is told that the pod has ended.
        self._pods: dict[str, _Running] = {}
        # The pids in the directory's file.
        self._shown: dict[str, int] = {}
        # Pods' lives, their probes and their stops.
        self._helpers = BackgroundTasks(lambda error: self.on_failure(error))

    # --- what kubelets ask ------------------------------------------------------------------------

    def place(self, pod: Object) -> str | None:
        return NODE if is_broker(self.server, pod) else None

    def start(self, pod: Object) -> None:
        if not is_broker(self.server, pod):
            logger.warning(
                "pod %s is not started: it does not belong to a broker's StatefulSet, and a "
                "local cluster runs no other pods",
                pod["metadata"]["name"],
            )
            return
        broker_id = int(pod["metadata"]["labels"][labels.BROKER_ID])
        process = BrokerProcess(
            broker_id,
            self._layout,
            restart=self._restart,
            changed=self._changed,
            port_taken=lambda: taken({broker_id: self._ports(broker_id)}, address=self._address),
        )
        before = [one.task for one in self._pods.values() if one.process.broker_id == broker_id]
        running = _Running(process, self._helpers.spawn(self._run(pod, process, before)))
        self._pods[pod["metadata"]["uid"]] = running
        running.task.add_done_callback(lambda _: self._changed())
        self._helpers.spawn(self._probe_forever(running))
        self._helpers.spawn(self._mount_forever(pod, running))
        self._helpers.spawn(self._pause_forever(pod, running))

    def stop(self, pod: Object, grace_seconds: int) -> None:
        running = self._pods.get(pod["metadata"]["uid"])
        if running is not None:
            self._helpers.spawn(running.process.stop(1000 * grace_seconds))

    def state(self, pod: Object) -> RuntimeState | None:
        running = self._pods.get(pod["metadata"]["uid"])
        if running is None:
            return None
        process = running.process
        if process.pid is not None:
            return RuntimeState(
                phase="Running",
                ready=running.ready,
                restarts=process.restarts,
                pod_ip=self._address,
            )
        if process.why:
            waiting = ("CrashLoopBackOff", process.why)
            return RuntimeState(phase="Running", restarts=process.restarts, waiting=waiting)
        missing = None if self._config(pod) else NO_CONFIG
        return RuntimeState(phase="Pending", waiting=missing)

    def has_ended(self, pod: Object) -> bool:
        uid = pod["metadata"]["uid"]
        running = self._pods.get(uid)
        if running is None:
            return True
        if not running.task.done():
            return False
        del self._pods[uid]
        return True

    # --- what the cluster asks --------------------------------------------------------------------

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids of all running brokers, by broker id, and of this process as
        `controller`."""
        processes = sorted((one.process for one in self._pods.values()), key=_number)
        running = {str(one.broker_id): one.pid for one in processes if one.pid is not None}
        return {**running, "controller": os.getpid()}

    @property
    def ended(self) -> list[BrokerProcess]:
        """Return the broker processes that have exited and will not be restarted."""
        return [one.process for one in self._pods.values() if one.process.ended]

    async def stop_all(self) -> None:
        await asyncio.gather(*(one.process.stop() for one in self._pods.values()))
        for task in self._helpers:
            task.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)

    # --- one pod ----------------------------------------------------------------------------------

    async def _run(
        self, pod: Object, process: BrokerProcess, before: list[asyncio.Task[None]]
    ) -> None:
        """Write the broker's configuration file once the pod's ConfigMap exists, and run the broker
        until it is stopped. `before`: the tasks of earlier pods of the same broker; they must end
        first, since two processes must not share a data directory."""
        if before:
            await asyncio.wait(before)
        while (config := self._config(pod)) is None:
            if process.stopping:
                return
            await asyncio.sleep(PROBE_STARTING_S)
        write_whole(self._layout.broker_config(process.broker_id), config)
        await process.run()

    def _config(self, pod: Object) -> bytes | None:
        """Return the content of the broker's configuration file. Return None while the ConfigMap
        that the pod names does not exist."""
        meta = pod["metadata"]
        volumes = pod["spec"].get("volumes") or ()
        names = [volume["configMap"]["name"] for volume in volumes if volume.get("configMap")]
        stored = found(self.server, resources.CONFIG_MAPS, meta["namespace"], names[0])
        if stored is None:
            return None
        broker_id = int(meta["labels"][labels.BROKER_ID])
        place = BrokerPlace(self._layout, self._ports(broker_id), self._address)
        return local_config(stored.body["data"][FILE], pod, place)

    async def _mount_forever(self, pod: Object, running: _Running) -> None:
        """Write the pod's Secret to the broker's directory, and again after each change, until the
        pod has ended."""
        broker_id = running.process.broker_id
        names = [
            volume["secret"]["secretName"]
            for volume in pod["spec"].get("volumes") or ()
            if volume.get("secret")
        ]
        while names and not running.task.done():
            stored = found(self.server, resources.SECRETS, pod["metadata"]["namespace"], names[0])
            if stored is not None:
                version = stored.body["metadata"]["resourceVersion"]
                mount(self._layout.broker_pki(broker_id), version, data_of(stored.body))
            await asyncio.sleep(MOUNT_S)

    async def _pause_forever(self, pod: Object, running: _Running) -> None:
        """Suspend the broker's process (SIGSTOP) until the time that the pod's annotation
        `PAUSED_UNTIL` states, or until it is to be stopped; then continue it. Runs until the pod
        has ended. A suspended process is killed by the kernel, like any other, when this process
        ends."""
        meta, paused = pod["metadata"], 0
        while not running.task.done():
            stored = found(self.server, resources.PODS, meta["namespace"], meta["name"])
            until = "" if stored is None else _annotations(stored.body).get(labels.PAUSED_UNTIL, "")
            pid = running.process.pid or 0
            wanted = pid if until and not running.process.stopping and _is_ahead(until) else 0
            if paused != wanted:
                _signal(paused, signal.SIGCONT)
                _signal(wanted, signal.SIGSTOP)
                paused = wanted
            await asyncio.sleep(PAUSE_S)

    async def _probe_forever(self, running: _Running) -> None:
        """Request the broker's /readyz periodically, as a kubelet does, until the pod has ended."""
        port = self._ports(running.process.broker_id).metrics
        while not running.task.done():
            alive = running.process.pid is not None
            ready = alive and await _is_ready(self._address, port)
            if ready != running.ready:
                running.ready = ready
                self._changed()
            await asyncio.sleep(PROBE_S if ready else PROBE_STARTING_S)
        running.ready = False

    def _changed(self) -> None:
        pids = self.pids
        if pids != self._shown:
            self._shown = pids
            self._layout.show_pids(pids)
        self.on_change()


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """Place of a broker on this machine: its directory, ports and address."""

    layout: DirectoryLayout
    ports: Ports
    address: str = LOOPBACK


def local_config(text: str, pod: Object, place: BrokerPlace) -> bytes:
    """Return the content of a ConfigMap for brokers, adapted to one broker process at `place`. All
    brokers share one address here, so each adds its id to the port of a declared listener."""
    meta = pod["metadata"]
    layout, ports, host = place.layout, place.ports, place.address
    broker_id = int(meta["labels"][labels.BROKER_ID])
    config = json.loads(text)
    config.pop("health", None)  # served on the metrics port
    # In development producers often start before topics exist; the LogCluster may override it.
    config.setdefault("configs", {}).setdefault(AUTO_CREATE, "true")
    config |= {
        "broker_id": broker_id,
        "data_dir": str(layout.data(broker_id)),
        "listen": {"host": host, "port": ports.kafka},
        "advertised": {"host": host, "port": ports.kafka},
        "replication": {"host": host, "port": ports.replication},
        "metrics": {"host": host, "port": ports.metrics},
        "pod_uid": meta["uid"],
        "revision": (meta.get("annotations") or {}).get(labels.REVISION, ""),
        "certificates": str(layout.broker_pki(broker_id)),
        "port_shift": broker_id,
    }
    if pod.get("spec", {}).get("shareProcessNamespace"):
        config["allow_drills"] = True
    return msgspec.json.format(msgspec.json.encode(config))


def _annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _is_ahead(stamp: str) -> bool:
    """Return True if the timestamp `stamp` is later than now. Return False if it is malformed."""
    try:
        return milliseconds(stamp) > time.time() * 1000
    except ValueError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process `pid`, which may have ended. Does nothing for `pid` 0."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _number(process: BrokerProcess) -> int:
    return process.broker_id


async def _is_ready(address: str, port: int) -> bool:
    """Return True if a GET of /readyz is answered with status 200 within `PROBE_S_MAX`."""
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(
                    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
