"""Clusters of processes of different releases: each broker and the controller of any release.

The sources of the release before come from `dev/release.sh`; its processes run with this
environment's libraries, and import nothing of ours from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.local_cluster import Acked, a_producer, wait_for

from plimsoll_operator.local.ports import HeldPorts

ROOT = Path(__file__).resolve().parent.parent.parent
PRESENT = "present"
EARLIER = "earlier"
NEXT = "next"
"""The present sources with one metadata version more: see next_release.py."""
HOST = "127.0.0.1"
STOP_S = 60
START_S = 120
PAUSE_S = 0.02
"""Between two writes."""


def python_path(release: str) -> str:
    if release != EARLIER:
        return ":".join(str(ROOT / part) for part in ("core", "operator", "broker_image", "spark"))
    words = [str(ROOT / "dev" / "release.sh"), "path"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def newest_metadata_version(release: str) -> int:
    """Return the newest metadata version that a release understands."""
    code = "from plimsoll_core.cluster.record_versions import NEWEST; print(NEWEST)"
    env = {**os.environ, "PYTHONPATH": python_path(release)}
    found = subprocess.check_output([sys.executable, "-c", code], env=env)
    return int(found) + (release == NEXT)


class Process:
    """One process of a release; its log goes to a file."""

    def __init__(self, name: str, release: str, words: list[str], log: Path) -> None:
        self.release = release
        self.log = log
        if release == NEXT:
            words = [str(Path(__file__).with_name("next_release.py")), *words]
        with log.open("ab") as stderr:
            self.popen = subprocess.Popen(
                [sys.executable, *words],
                env={**os.environ, "PYTHONPATH": python_path(release)},
                cwd=log.parent,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise
        finally:
            assert self.popen.stdout is not None
            self.popen.stdout.close()

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class Releases:
    """Three brokers and a controller."""

    def __init__(self, directory: Path, brokers: int = 3) -> None:
        self.directory = directory
        self.cluster_id = uuid4()
        self.count = brokers
        self._held = ports = HeldPorts()
        self.controller_port = ports.pick()
        self.ports = {n: (ports.pick(), ports.pick(), ports.pick()) for n in range(brokers)}
        self.controller: Process | None = None
        self.brokers: dict[int, Process] = {}

    def __enter__(self) -> Releases:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in self.brokers.values():
            broker.end(signal.SIGKILL)
        if self.controller is not None:
            self.controller.end(signal.SIGKILL)
        self._held.close()

    # --- the controller -------------------------------------------------------------------------

    def start_controller(self, release: str, pinned: int | None = None) -> Process:
        words = [str(Path(__file__).with_name("release_controller.py"))]
        words += ["--data", str(self.directory / "metadata"), "--members", str(self.count)]
        words += ["--cluster-id", str(self.cluster_id), "--port", str(self.controller_port)]
        if pinned is not None:
            words += ["--metadata-version", str(pinned)]
        log = self.directory / f"controller-{release}.log"
        self.controller = Process("controller", release, words, log)
        return self.controller

    def lead(self, release: str, pinned: int | None = None) -> None:
        """Until it leads."""
        process = self.start_controller(release, pinned)
        assert process.popen.stdout is not None
        line = process.popen.stdout.readline()
        assert line, process.said()
        assert json.loads(line)["from"].startswith(python_path(release).split(":")[1])

    def replace_controller(self, release: str, pinned: int | None = None) -> None:
        assert self.controller is not None
        assert self.controller.end() == 0
        self.lead(release, pinned)

    # --- brokers --------------------------------------------------------------------------------

    def start(self, broker_id: int, release: str) -> None:
        kafka, metrics, replication = self.ports[broker_id]
        config: dict[str, Any] = {
            "cluster_id": str(self.cluster_id),
            "broker_id": broker_id,
            "data_dir": str(self.directory / f"broker-{broker_id}"),
            "listen": {"host": HOST, "port": kafka},
            "advertised": {"host": HOST, "port": kafka},
            "controllers": [f"{HOST}:{self.controller_port}"],
            "metrics": {"host": HOST, "port": metrics},
            "configs": {},
            "replication": {"host": HOST, "port": replication},
        }
        path = self.directory / f"broker-{broker_id}.json"
        path.write_text(json.dumps(config))
        log = self.directory / f"broker-{broker_id}-{release}.log"
        words = ["-m", "plimsoll_broker", "--config", str(path)]
        self.brokers[broker_id] = Process(f"broker-{broker_id}", release, words, log)

    def start_all(self, release: str) -> None:
        for broker_id in range(self.count):
            self.start(broker_id, release)
        for broker_id in range(self.count):
            self.wait_ready(broker_id)

    def run_as(self, broker_id: int, release: str, topic: str | None = None) -> None:
        """Stop it cleanly, start it as another release, and wait until it takes part."""
        assert self.brokers[broker_id].end() == 0, self.brokers[broker_id].said()[-4000:]
        self.start(broker_id, release)
        self.wait_ready(broker_id)
        if topic is not None:
            self.wait_isr(topic)

    def http(self, broker_id: int, path: str) -> tuple[int, str]:
        url = f"http://{HOST}:{self.ports[broker_id][1]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self, broker_id: int) -> None:
        def ready() -> bool:
            broker = self.brokers[broker_id]
            assert broker.popen.poll() is None, broker.said()[-4000:]
            return self.http(broker_id, "/readyz")[0] == 200

        wait_for(f"broker {broker_id} is ready", ready, START_S, 0.1)

    # --- what is there --------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{kafka}" for kafka, _, _ in self.ports.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000})

    def create_topic(self, name: str, partitions: int) -> None:
        admin = self.admin()
        topic = NewTopic(name, partitions, min(3, self.count), config={"min.insync.replicas": "2"})
        for future in admin.create_topics([topic]).values():
            future.result(30)

    def wait_isr(self, name: str, size: int = 3) -> None:
        def full() -> bool:
            with contextlib.suppress(Exception):
                found = self.admin().list_topics(name, timeout=5).topics[name].partitions
                return bool(found) and all(
                    len(p.isrs) == size and p.leader >= 0 for p in found.values()
                )
            return False

        wait_for(f"{size} in sync in every partition of {name}", full, START_S, 0.1)

    def records(self) -> list[dict[str, Any]]:
        """The metadata log, as it lies on the disk."""
        found = []
        for path in sorted((self.directory / "metadata").rglob("*")):
            if path.is_file() and "batches" in path.name:
                for line in path.read_text().splitlines():
                    with contextlib.suppress(json.JSONDecodeError):
                        found += json.loads(line)["records"]
        return found

    def finalised(self) -> list[int]:
        kind = "MetadataVersionFinalized"
        return [r["metadata_version"] for r in self.records() if r["type"] == kind]


class Writer:
    """Writes all the while, with acks=all, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acked = Acked()
        self._producer = a_producer(bootstrap, **{"message.timeout.ms": 120_000})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0

    def _run(self) -> None:
        while not self._stop.is_set():
            value = f"{self.sent:08d}".encode()
            try:
                self._producer.produce(self._topic, value=value, on_delivery=self.acked.delivered)
                self.sent += 1
            except BufferError:
                pass
            self._producer.poll(0)
            self._stop.wait(PAUSE_S)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def wait_some(self, count: int = 50) -> None:
        """So many more are acknowledged: the cluster takes writes as it is now."""
        wanted = len(self.acked.records) + count
        wait_for("writes are acknowledged", lambda: len(self.acked.records) >= wanted, START_S)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            assert self._producer.flush(120) == 0
