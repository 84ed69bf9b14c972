"""Apache Kafka, as the conformance tests start it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from bench.peers.processor_time import Processes
from bench.peers.systems.system import SERVER_PROCESS, KafkaSystem, Kind, MissingError
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.kafka_jars import JarsUnavailable, kafka_jars

from plimsoll_operator.pki.authority import issue, new_authority


class Kafka(KafkaSystem):
    name = "Kafka"

    def __init__(self, directory: Path, kind: Kind) -> None:
        super().__init__(directory, kind)
        nodes, self._client = _certificates(directory) if kind.tls else ({}, {})
        self._cluster = ApacheKafka(
            directory, brokers=3, configs=nodes, client=self._client, popen=SERVER_PROCESS
        )

    @classmethod
    def prepare(cls) -> None:
        try:
            kafka_jars()
        except (JarsUnavailable, subprocess.TimeoutExpired) as error:
            raise MissingError(f"Apache Kafka: {error}") from error

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def client_settings(self) -> dict[str, Any]:
        return self._client

    def processes(self) -> Processes:
        return Processes(brokers=[one.pid for one in self._cluster.processes.values()])

    def kill(self, broker: int) -> None:
        self._cluster.kill(broker)


def _certificates(directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of nodes that encrypt all that they say, and of their clients."""
    now_ms = time.time_ns() // 1_000_000
    authority = new_authority("bench", now_ms)
    shown = issue(authority, ["127.0.0.1"], now_ms)
    directory.mkdir(parents=True, exist_ok=True)
    trusted, pair = directory / "ca.pem", directory / "node.pem"
    trusted.write_bytes(authority.certificate)
    pair.write_bytes(shown.key + shown.certificate)
    nodes = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pair),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    return nodes, {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
