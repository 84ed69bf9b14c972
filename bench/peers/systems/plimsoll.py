"""Plimsoll, as `plimsoll local` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.checkouts import HERE, code_of
from bench.peers.processor_time import Processes
from bench.peers.systems.system import READY_S, KafkaSystem, Kind
from tests.integration.declared import log_cluster
from tests.integration.listening import free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.integration.test_inside import inside

SPEC: dict[str, Any] = {
    "storage": {"size": "16Gi"},
    "movement": {"bytesPerSecond": "100Gi"},
    # As the conformance tests start Kafka: a group is stable at once.
    "config": {"group.initial.rebalance.delay.ms": 0},
}


class Plimsoll(KafkaSystem):
    name = "Plimsoll"
    checkout = HERE

    def __init__(self, directory: Path, kind: Kind) -> None:
        super().__init__(directory, kind)
        directory.mkdir(parents=True)
        file, spec = directory / "cluster.yaml", dict(SPEC)
        if kind.tls:
            (port,) = free_ports(1)
            spec["listeners"] = [{"name": "tls", "port": port, "tls": {}}]
            spec["certificates"] = {"internal": {"mode": "Required"}}
        file.write_text(log_cluster(**spec))
        self._cluster = LocalCluster(directory / "data", brokers=None, files=[file])

    def start(self) -> None:
        with code_of(self.checkout):
            self._cluster.start()
        if self.kind.tls:
            wait_for("TLS inside", lambda: inside(self._cluster)["mode"] == "Required", READY_S)

    def stop(self) -> None:
        self._cluster.stop()

    @property
    def bootstrap(self) -> str:
        listeners = self._cluster.ready.get("listeners", {})
        return str(listeners["tls"]) if self.kind.tls else self._cluster.bootstrap

    def client_settings(self) -> dict[str, Any]:
        return tls_client(self._cluster) if self.kind.tls else {}

    def processes(self) -> Processes:
        controller = [self._cluster.controller_pid]
        return Processes(brokers=self._cluster.broker_pids, controllers=controller)

    def kill(self, broker: int) -> None:
        self._cluster.kill_broker(broker)


def of_checkout(checkout: Path) -> type[Plimsoll]:
    """Return the system that runs the code of another checkout."""
    return type("Before", (Plimsoll,), {"name": "before", "checkout": checkout})
