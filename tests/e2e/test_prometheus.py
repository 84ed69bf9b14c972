"""A real Prometheus and Alertmanager watch pods: those that the PodMonitors of the chart select.

One cluster lives through all tests of the file, in this order: a scale-up, a roll and a drain fire
nothing; a paused broker and a broker that dies together with the operator do.  Prometheus runs
beside the node: it reaches pods by their addresses, as the kubelet does.
"""

import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from dev.grafana import dashboards
from dev.kubectl import Cluster, CommandFailed, is_true, wait_for
from dev.panels import Window, looked_up
from dev.prometheus import Prometheus
from tests.e2e.clients import produce
from tests.e2e.drill import SYSTEM, Drill, kill_operator, process_of
from tests.monitored import (
    CHART,
    FIRES_S,
    ISR_ALERT,
    RESOLVES_S,
    Alerts,
    empty_panels,
    rules,
    targets_of,
)

pytestmark = pytest.mark.skipif(
    os.environ.get("USE_CURRENT_CONTEXT") == "1", reason="pods and processes are the local node's"
)
OPERATORS = 2
FAILOVER_S = 20.0
"""The Lease of an operator that was killed runs out, and the other takes over."""
TROUBLE = {
    "plimsoll_stalled",
    "plimsoll_verification_violated",
    "plimsoll_blocked_actions",
    "plimsoll_group_lag_records",
    "plimsoll_group_committed_position",
}
"""Whose series are there with trouble or with groups alone."""
REPLICAS = {"partitions": 12, "replicationFactor": 3, "minInSyncReplicas": 2}


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster, and the Prometheus that watches it."""

    drill: Drill
    prometheus: Prometheus
    begin_s: float  # Unix time

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
    operator.kubectl("create", "namespace", namespace)
    drill = Drill(operator, namespace)
    drill.spec["movement"]["bytesPerSecond"] = "50Mi"
    drill.apply("LogCluster", "main", drill.spec)
    drill.apply("Topic", "orders", REPLICAS)
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(folder, rules()) as prometheus, discovered(drill, prometheus):
        found = Watched(drill, prometheus, time.time())
        wait_for(
            "orders to be Ready",
            lambda: is_true(drill.get("topic", "orders"), "Ready") or None,
            180,
        )
        produce(operator, namespace, "orders", ["x" * 1_000] * 500)
        wait_for("everything to be scraped", found.settled(3), 60)
        yield found
    operator.kubectl("delete", "namespace", namespace, "--wait=false")


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


def test_series_say_whose_they_are(watched: Watched) -> None:
    """The LogCluster's namespace and name on all of them, and the broker's number on a broker's."""
    mine = f'namespace="{watched.drill.namespace}",cluster="main"'
    brokers = watched.prometheus.query(f"plimsoll_broker_ready{{{mine}}}")
    assert sorted(one.labels["broker"] for one in brokers) == ["0", "1", "2"]
    known = watched.prometheus.query(f"plimsoll_cluster_known{{{mine}}}")
    assert len({one.labels["pod"] for one in known}) == OPERATORS
    assert [one["name"] for one in watched.prometheus.rules() if one["health"] != "ok"] == []
    asked = {
        name
        for one in watched.prometheus.rules()
        for name in re.findall(r"\bplimsoll_\w+", one["query"])
    }
    assert asked - watched.prometheus.names() - TROUBLE == set()


@pytest.mark.timeout(600)
def test_scale_up_roll_and_drain_fire_nothing(watched: Watched) -> None:
    drill, alerts = watched.drill, watched.alerts()
    drill.change(count=4)
    wait_for("broker 3 to be filled", watched.settled(4), 180)
    before = uids(drill)
    annotation = f"plimsoll.dev/restart={time.time_ns()}"
    drill.cluster.kubectl("annotate", "logcluster", "main", "-n", drill.namespace, annotation)

    def restarted() -> bool | None:
        now = uids(drill)
        return all(now.get(one) not in (None, uid) for one, uid in before.items()) or None

    wait_for("every broker to be restarted", restarted, 240)
    wait_for("all of them to be back", watched.settled(4), 120)
    drill.change(count=3)
    wait_for("broker 3 to be drained", watched.settled(3), 180)
    assert alerts.fired() == []


def uids(drill: Drill) -> dict[int, str]:
    found = {broker: drill.pod(broker) for broker in range(4)}
    return {broker: pod["metadata"]["uid"] for broker, pod in found.items() if pod}


def fires(watched: Watched, alerts: Alerts, broker: int, timeout_s: float = FIRES_S) -> None:
    """And says of which broker."""
    alert = alerts.wait(ISR_ALERT, firing=True, timeout_s=timeout_s)
    assert {**watched.own, "broker": str(broker)}.items() <= alert.labels.items()


def resolves(watched: Watched, alerts: Alerts) -> None:
    wait_for("all to be in sync", watched.settled(3), 120)
    alerts.wait(ISR_ALERT, firing=False, timeout_s=RESOLVES_S)


@pytest.mark.timeout(400)
def test_paused_broker_fires_the_isr_alert_within_half_a_minute_which_resolves(
    watched: Watched,
) -> None:
    alerts = watched.alerts()
    pid = process_of("main-broker-1-0", "plimsoll_broker")
    os.kill(pid, signal.SIGSTOP)
    try:
        fires(watched, alerts, 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    resolves(watched, alerts)


@pytest.mark.timeout(400)
def test_operator_and_broker_that_die_together_fire_the_isr_alert(watched: Watched) -> None:
    """The operator that commits the shrinks is one that has counted none before."""
    alerts = watched.alerts()
    pid = process_of("main-broker-2-0", "plimsoll_broker")
    kill_operator(watched.drill)
    os.kill(pid, signal.SIGKILL)
    fires(watched, alerts, 2, FAILOVER_S + FIRES_S)
    resolves(watched, alerts)


def test_panels_about_etcd_and_the_api_server_show_something(watched: Watched) -> None:
    """All others are tested where there is a local cluster."""
    (dashboard,) = [one for one in dashboards() if one.name == "controller"]
    window = Window(begin_s=watched.begin_s, end_s=time.time())
    found = looked_up(watched.prometheus, dashboard, watched.own, window)
    assert empty_panels(found) == []
