"""Apache Kafka itself on loopback, for comparing answers and speed with ours.

Called by conformance tests and the benchmark; used as a context manager.  Node 0 is broker and
controller in one process, the others are brokers only.  Ports are none that the kernel gives to
connections; everything it writes lies in the directory it is given; it ends only the processes it
started.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.conformance.kafka_jars import BROKER_VERSION, KafkaJars, kafka_jars
from tests.integration.local_cluster import UNDER_PYTEST

from plimsoll_operator.local.ports import HeldPorts

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
HEAP_MB = 512

_LOG4J2 = """\
status = warn
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""


class KafkaDidNotStart(RuntimeError):
    """A broker ended or stayed silent; the sentence holds the end of its log."""


class ApacheKafka:
    """`brokers` nodes of one Apache Kafka cluster, Java 17, KRaft mode."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        version: str = BROKER_VERSION,
        configs: dict[str, str] | None = None,
        heap_mb: int = HEAP_MB,
        advertised_ports: tuple[int, ...] = (),
        authorizes: bool = False,
        client: dict[str, str] | None = None,
        popen: Mapping[str, Any] | None = None,
    ) -> None:
        """`advertised_ports`: of proxies, one before each node, that clients are sent to; nodes
        speak to each other past them.  `authorizes`: one node, with a second listener that asks for
        a SCRAM login, and rights; who is not asked may do all.  `client`: what librdkafka needs
        beside the addresses to reach the nodes as `configs` have them.  `popen`: arguments for
        `subprocess.Popen` of the nodes."""
        self.directory = directory
        self.brokers = brokers
        self.version = version
        self.configs = dict(configs or {})
        self.heap_mb = heap_mb
        self.advertised_ports = advertised_ports
        self.authorizes = authorizes
        self.client = dict(client or {})
        self._popen = dict(popen or {})
        self.ports: tuple[int, ...] = ()
        # Of the nodes among themselves, where clients are sent to proxies.
        self._internal_ports: tuple[int, ...] = ()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._held = HeldPorts()

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def secured_port(self) -> int:
        """Where a login is asked for."""
        assert self.authorizes
        return self._internal_ports[0]

    def data_dir(self, node: int) -> Path:
        """Where a node keeps its partitions: `<topic>-<partition>/00000000000000000000.log`."""
        return self.directory / f"node-{node}" / "data"

    def log_file(self, node: int) -> Path:
        """What a node printed."""
        return self.directory / f"node-{node}" / "output.log"

    def start(self) -> None:
        """Formats the directories and waits until every broker is listed in the metadata."""
        try:
            self._start(kafka_jars(self.version))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Asks every node to stop, kills those that do not; repeatable."""
        # Brokers first: a controlled shutdown needs the controller, which is node 0.
        for node in sorted(self.processes, reverse=True):
            process = self.processes[node]
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        self._held.close()

    def kill(self, node: int) -> None:
        """SIGKILL to one node."""
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def restart(self, node: int) -> None:
        """A node that was killed, with what it had."""
        assert node not in self.processes, "it is gone"
        self.processes[node] = self._spawn(kafka_jars(self.version), node)

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, jars: KafkaJars) -> None:
        controller_port = self._held.pick()
        self.ports = tuple(self._held.pick() for _ in range(self.brokers))
        self._internal_ports = tuple(self._held.pick() for _ in range(self.brokers))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(_LOG4J2)
        for node in range(self.brokers):
            self._format(jars, node, controller_port, cluster_id)
        for node in range(self.brokers):
            self.processes[node] = self._spawn(jars, node)
        self._wait_until_registered()

    def _format(self, jars: KafkaJars, node: int, controller_port: int, cluster_id: str) -> None:
        home = self.directory / f"node-{node}"
        home.mkdir(parents=True)
        properties = home / "server.properties"
        properties.write_text(
            "".join(f"{k}={v}\n" for k, v in self._properties(node, controller_port).items())
        )
        # An id may begin with a dash.
        arguments = (
            *("format", f"--cluster-id={cluster_id}", "--config", str(properties)),
            "--ignore-formatted",
        )
        done = subprocess.run(
            jars.command(jars.storage_tool, *arguments),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise KafkaDidNotStart(f"format failed: {done.stdout[-1000:]} {done.stderr[-1000:]}")

    def _properties(self, node: int, controller_port: int) -> dict[str, str]:
        port = self.ports[node]
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        replicas = str(min(3, self.brokers))
        properties = {
            "node.id": str(node),
            "process.roles": "broker",
            "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": str(self.data_dir(node)),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
        }
        if self.advertised_ports:
            internal = f"INTERNAL://127.0.0.1:{self._internal_ports[node]}"
            proxied = f"PLAINTEXT://127.0.0.1:{self.advertised_ports[node]}"
            properties |= {
                "listeners": f"{listeners},{internal}",
                "advertised.listeners": f"{proxied},{internal}",
                "inter.broker.listener.name": "INTERNAL",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
            }
        if self.authorizes:
            properties |= _authorizing(listeners, f"SECURED://127.0.0.1:{self.secured_port}")
        if node == 0:
            properties["process.roles"] = "broker,controller"
            properties["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        return properties | self.configs

    def _spawn(self, jars: KafkaJars, node: int) -> subprocess.Popen[bytes]:
        home = self.directory / f"node-{node}"
        properties = str(home / "server.properties")
        # What tests ask of it is over in seconds; what it is measured for is not.
        command = jars.command(
            "kafka.Kafka", properties, heap_mb=self.heap_mb, short_lived=UNDER_PYTEST
        )
        command.insert(1, f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}")
        out: IO[bytes]
        with self.log_file(node).open("wb") as out:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=home,
                **self._popen,
            )  # fmt: skip

    def _wait_until_registered(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": 0}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **quiet, **self.client})
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            for node, process in self.processes.items():
                if process.poll() is not None:
                    tail = self.log_file(node).read_text(errors="replace")[-2000:]
                    raise KafkaDidNotStart(f"node {node} ended with {process.returncode}: {tail}")
            with contextlib.suppress(KafkaException):
                if len(admin.list_topics(timeout=1).brokers) == self.brokers:
                    return
        raise KafkaDidNotStart(f"{self.brokers} brokers were not up after {START_TIMEOUT_S:.0f} s")


def _authorizing(open_listener: str, secured_listener: str) -> dict[str, str]:
    """Properties of a node with rights."""
    both = f"{open_listener},{secured_listener}"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "listeners": both,
        "advertised.listeners": both,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{scram} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
