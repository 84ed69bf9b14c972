"""A cluster of pods that a real Prometheus watches: those that the chart's PodMonitors select.

Prometheus runs beside the node: it reaches pods by their addresses, as the kubelet does.  Broker 2
has a volume of its own size, in memory, which a test can fill.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from dev.kubectl import Cluster, CommandFailed, is_true, wait_for
from dev.prometheus import Prometheus
from tests.e2e.clients import produce
from tests.e2e.drill import SYSTEM, Drill
from tests.integration.volume import Volume, mounted
from tests.monitored import CHART, Alerts, rules, targets_of

OPERATORS = 2
SCRAPE_S = 3
"""Longer than the usual second of these tests: an answer that a busy machine delays by a second is
still one."""
WINDOW = "30s"
PATIENT_S = 300
"""For what has no promise of its own; a machine with idle processors needs a tenth of it."""
REPLICAS = {"partitions": 12, "replicationFactor": 3, "minInSyncReplicas": 2}
LISTENERS = [{"name": "internal", "port": 9092}, {"name": "tls", "port": 9094, "tls": {}}]
STORAGE_CLASS = "plimsoll-local"
"""Of dev/storageclass.yaml."""
SMALL = 2
"""The broker whose volume is as small as it says."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster, and the Prometheus that watches it."""

    drill: Drill
    prometheus: Prometheus
    begin_s: float  # Unix time
    volume: Volume  # of broker SMALL

    @property
    def own(self) -> dict[str, str]:
        return {"namespace": self.drill.namespace, "cluster": "main"}

    def alerts(self) -> Alerts:
        return Alerts.of(self.prometheus, self.own)

    def up(self) -> tuple[int, int]:
        """Operators and brokers that are scraped."""
        found = [one["labels"]["namespace"] for one in self.prometheus.targets()
                 if one["health"] == "up"]  # fmt: skip
        return found.count(SYSTEM), found.count(self.drill.namespace)

    def settled(self, brokers: int) -> Callable[[], bool | None]:
        """Whether so many brokers are members, all partitions in sync, and all of it scraped."""

        def now() -> bool | None:
            if len(self.drill.members()) != brokers:
                return None
            found = self.drill.view("orders")
            if found is None or len(found) != REPLICAS["partitions"]:
                return None
            if any(set(p["isr"]) != set(p["replicas"]) or p["leader"] is None for p in found):
                return None
            if len({broker for p in found for broker in p["replicas"]}) != brokers:
                return None
            return self.up() == (OPERATORS, brokers) or None

        return now


@pytest.fixture(scope="module")
def watched(operator: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    namespace = f"watched-{uuid.uuid4().hex[:6]}"
    operator.make_namespace(namespace)
    drill = Drill(operator, namespace)
    drill.spec["movement"]["bytesPerSecond"] = "50Mi"
    drill.spec["listeners"] = LISTENERS
    folder = tmp_path_factory.mktemp("watched")
    prometheus = Prometheus(folder / "prometheus", rules(WINDOW), SCRAPE_S)
    try:
        with small_volume(drill, folder / "volume") as volume, prometheus:
            drill.apply("LogCluster", "main", drill.spec)
            drill.apply("Topic", "orders", REPLICAS)
            with discovered(drill, prometheus):
                found = Watched(drill, prometheus, time.time(), volume)
                wait_for(
                    "orders to be Ready",
                    lambda: is_true(drill.get("topic", "orders"), "Ready") or None,
                    PATIENT_S,
                )
                produce(operator, namespace, "orders", ["x" * 1_000] * 500)
                wait_for("everything to be scraped", found.settled(3), PATIENT_S)
                yield found
    finally:
        operator.delete_namespace(namespace)


@contextmanager
def small_volume(drill: Drill, path: Path) -> Iterator[Volume]:
    """Within: a volume in memory is there for broker SMALL, before the broker asks for one."""
    pvc, name = f"data-main-broker-{SMALL}-0", f"{drill.namespace}-small"
    nodes = drill.cluster.items("nodes", "")
    here = {
        "key": "kubernetes.io/hostname",
        "operator": "In",
        "values": [nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"]],
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": drill.spec["storage"]["size"]},
            "accessModes": ["ReadWriteOncePod"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "claimRef": {"namespace": drill.namespace, "name": pvc},
        },
    }
    with mounted(path) as found:
        drill.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(volume))
        try:
            yield found
        finally:
            drill.cluster.kubectl("delete", "pv", name, "--wait=false")


@contextmanager
def discovered(drill: Drill, prometheus: Prometheus) -> Iterator[None]:
    """Within: every second, the pods that the chart's PodMonitors select are what is scraped."""
    over, shown = threading.Event(), monitors(drill.cluster)

    def look() -> None:
        while not over.wait(1):
            with suppress(CommandFailed):
                pods = [
                    pod
                    for namespace in (SYSTEM, drill.namespace)
                    for pod in drill.cluster.items("pods", namespace)
                ]
                prometheus.watch(target for one in shown for target in targets_of(one, pods))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def monitors(cluster: Cluster) -> list[dict[str, Any]]:
    """The PodMonitors of the chart, as helm renders them."""
    said = cluster.run(
        "helm", "template", "plimsoll", str(CHART), "-n", SYSTEM,
        "--kube-version", "1.34.0", "--set", "metrics.podMonitor.enabled=true",
        "-s", "templates/podmonitor.yaml",
    )  # fmt: skip
    return [one for one in yaml.safe_load_all(said) if one]
