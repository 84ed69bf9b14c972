"""Processes of applications that stand on Kafka's clients: started, asked, killed, stopped.

Called by the tests of Connect, MirrorMaker 2 and Streams.  Each writes to a log of its own, whose
end is in what a test says when a wait is over.  It ends only the processes that it started.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.conftest import Peer
from tests.conformance.kafka_jars import KafkaJars, application_jars

from plimsoll_operator.local.ports import HeldPorts

STOP_S = 30.0
REQUEST_S = 20.0
LOG_END = 4000
CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
STORES = ("config.storage", "offset.storage", "status.storage")
# What one process commits before it is killed must be soon, and its death must be noticed soon.
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "1000",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "3",
    "plugin.discovery": "service_load",
}


class Application:
    """A process of one of Kafka's classes, in a directory of its own."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent
            )

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to what does not end."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def said(self) -> str:
        """The end of what it printed."""
        return self.printed()[-LOG_END:]


def properties(path: Path, values: Mapping[str, str]) -> str:
    """Written to a file; its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    escaped = {name: value.replace("\n", "\\n") for name, value in values.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return str(path)


def command(jars: KafkaJars, main_class: str, *arguments: str) -> list[str]:
    """As the jars say, with warnings told."""
    java, *others = jars.command(main_class, *arguments)
    return [java, "-Dorg.apache.logging.log4j.level=WARN", *others]


class Worker(Application):
    """One worker of Kafka Connect, distributed; `url` is where its REST interface listens."""

    def __init__(self, directory: Path, bootstrap: str, configs: Mapping[str, str]) -> None:
        self._held = HeldPorts()
        port = self._held.pick()
        self.url = f"http://127.0.0.1:{port}"
        self.id = f"127.0.0.1:{port}"
        values = {"bootstrap.servers": bootstrap, "group.id": "connect", **WORKER, **configs}
        values |= {"listeners": self.url, "rest.advertised.host.name": "127.0.0.1"}
        file = properties(directory / f"worker-{port}.properties", values)
        super().__init__(
            command(application_jars(), CONNECT, file), directory / f"worker-{port}.log"
        )

    def kill(self) -> None:
        super().kill()
        self._held.close()

    def stop(self) -> None:
        super().stop()
        self._held.close()


@dataclass(kw_only=True)
class Connect:
    """Workers of one Connect cluster."""

    directory: Path
    bootstrap: str
    configs: Mapping[str, str]
    # Those that were started and not killed.
    workers: list[Worker] = field(default_factory=list)

    def start_worker(self) -> Worker:
        worker = Worker(self.directory, self.bootstrap, self.configs)
        self.workers.append(worker)
        return worker

    def kill_worker(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.kill()

    def stop(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.stop()

    def request(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer of any worker; None: none can answer now (it starts, or it rebalances)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        for worker in self.workers:
            request = urllib.request.Request(worker.url + path, data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
                    return json.loads(reply.read() or b"{}")
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (404, 409, 500, 503):
                        raise AssertionError(error.read().decode()) from error
            except OSError:
                continue
        return None

    def said(self) -> str:
        """The end of what each worker printed."""
        return "\n".join(one.said() for one in self.workers)

    def wait_for(self, what: str, condition: Callable[[], Any], timeout_s: float = 90.0) -> Any:
        """As the local cluster's, with what the workers said."""
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.said()}")
            time.sleep(0.1)
        return value

    def create(self, name: str, configs: Mapping[str, str]) -> None:
        """A connector, running with its tasks."""
        self.wait_for(
            f"{name} is taken", lambda: self.request(f"/connectors/{name}/config", configs, "PUT")
        )
        self.wait_for(f"{name} runs", lambda: self.runs(name))

    def runs(self, name: str) -> str | None:
        """The id of the worker that runs the first task, if the connector and all tasks run."""
        status = self.request(f"/connectors/{name}/status")
        if not status or not status["tasks"] or status["connector"]["state"] != "RUNNING":
            return None
        if {task["state"] for task in status["tasks"]} != {"RUNNING"}:
            return None
        return str(status["tasks"][0]["worker_id"])


@contextlib.contextmanager
def connect(
    directory: Path, bootstrap: str, *, workers: int = 2, **configs: str
) -> Iterator[Connect]:
    """So many workers, which will answer."""
    found = Connect(directory=directory, bootstrap=bootstrap, configs=configs)
    try:
        for _ in range(workers):
            found.start_worker()
        yield found
    finally:
        found.stop()


def mirror_maker(
    directory: Path, clusters: Mapping[str, Peer], of: Mapping[str, str]
) -> Application:
    """MirrorMaker 2 by itself, both ways between two clusters, each under its alias; `of`: what of
    them it copies, and how soon."""
    values = {"clusters": ",".join(clusters), "tasks.max": "1"}
    values["dedicated.mode.enable.internal.rest"] = "false"
    for alias, peer in clusters.items():
        values |= {f"{alias}.{name}": text for name, text in peer.java.items()}
        for name in STORES:
            values[f"{alias}.{name}.replication.factor"] = str(peer.replicas)
    for source, target in itertools.permutations(clusters, 2):
        flow = f"{source}->{target}"
        values[f"{flow}.enabled"] = "true"
        values |= {f"{flow}.{name}": text for name, text in of.items()}
        values |= {
            f"{flow}.{name}": text
            for name, text in replicated(clusters[source], clusters[target]).items()
        }
    file = properties(directory / "mirror.properties", values)
    words = command(application_jars(), MIRROR_MAKER, file)
    words[words.index("-Xmx256m")] = "-Xmx512m"
    return Application(words, directory / "mirror.log")


def replicated(source: Peer, target: Peer) -> dict[str, str]:
    """How many replicas the topics of a flow between two clusters have."""
    return {
        "replication.factor": str(target.replicas),
        "offset-syncs.topic.replication.factor": str(source.replicas),
        "checkpoints.topic.replication.factor": str(target.replicas),
        "heartbeats.topic.replication.factor": str(target.replicas),
    }
