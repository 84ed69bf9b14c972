"""A real Prometheus and Alertmanager watch a local cluster: dashboards, rules and alerts.

One cluster for all tests of the file, which follow each other: what was asked for fires nothing;
a paused broker and a lost controller do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer
from dev.grafana import MARKS, Dashboard, Mark, dashboards, query
from dev.panels import Window, chosen, looked_up
from dev.prometheus import Prometheus, Target
from tests.integration.declared import log_cluster
from tests.integration.listening import OURS
from tests.integration.local_cluster import LocalCluster, a_producer, produce, wait_for
from tests.integration.test_local_objects import ask
from tests.monitored import (
    ISR_ALERT,
    OF_KUBERNETES,
    RESOLVES_S,
    Alerts,
    empty_panels,
    rules,
)

OWN = {"namespace": "default", "cluster": "main"}
PARTITIONS = 12
COPIED_RECORDS = 5_000
TOPIC = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "orders"},
    "spec": {
        "clusterRef": {"name": "main"},
        "partitions": PARTITIONS,
        "replicationFactor": 3,
        "minInSyncReplicas": 2,
    },
}
VERIFICATION: dict[str, Any] = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "Verification",
    "metadata": {"name": "proof"},
    "spec": {"clusterRef": {"name": "main"}, "topic": "orders", "produce": {"records": 1}},
}
"""One that cannot run, where no Spark is."""
SCHEDULE = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "VerificationSchedule",
    "metadata": {"name": "yearly"},
    "spec": {
        "schedule": "0 0 1 1 *",
        "template": {**VERIFICATION["spec"], "allowExisting": True},
    },
}
TROUBLE = {
    "plimsoll_blocked_actions",
    "plimsoll_stalled",
    "plimsoll_verification_violated",
    "plimsoll_certificate_expiry_time_seconds",
    "plimsoll_verification_judged_time_seconds",
}
"""Whose series only trouble has that there is none of here, listeners with TLS, or a Continuous
Verification."""
TOPIC_SERIES = {"metric.topic.series.max": 100}
MOVEMENT = {"bytesPerSecond": "1Mi", "autoRebalance": "Automatic"}


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster, and the Prometheus that watches it since `begin_s` (Unix time)."""

    cluster: LocalCluster
    prometheus: Prometheus
    begin_s: float

    def look(self) -> None:
        """Scrape who runs now."""
        operator = self.cluster.ready["metrics"]["controller"]
        targets = [Target(address=_address(operator))]
        for broker in sorted(self.cluster.pids.keys() - {"controller"}):
            metrics = self.cluster.config(int(broker))["metrics"]
            address = f"{metrics['host']}:{metrics['port']}"
            targets.append(Target(address=address, labels={**OWN, "broker": broker}))
        self.prometheus.watch(targets)
        wait_for("everything is scraped", lambda: self._all_scraped(len(targets)))

    def _all_scraped(self, number: int) -> bool:
        found = self.prometheus.targets()
        return len(found) == number and all(one["health"] == "up" for one in found)

    def alerts(self) -> Alerts:
        return Alerts.of(self.prometheus, OWN)

    def status(self) -> dict[str, Any]:
        found = ask(self.cluster, "GET", f"{OURS}/logclusters/main")[1]
        return dict(found.get("status") or {})

    def change(self, patch: dict[str, Any]) -> None:
        path = f"{OURS}/logclusters/main"
        code, said = ask(self.cluster, "PATCH", path, patch, "merge-patch+json")
        assert code == 200, said


def _address(url: str) -> str:
    return url.removeprefix("http://").removesuffix("/metrics")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    spec = {"movement": MOVEMENT, "config": TOPIC_SERIES, "backup": {}}
    (folder / "cluster.yaml").write_text(log_cluster(**spec))
    objects = (TOPIC, VERIFICATION, SCHEDULE)
    (folder / "topics.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    files = [folder / "cluster.yaml", folder / "topics.yaml"]
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("PLIMSOLL_SPARK_JARS", str(folder / "no-jars"))
    cluster = LocalCluster(folder / "cluster", brokers=None, files=files)
    with Prometheus(folder / "prometheus", rules()) as prometheus, cluster:
        monkeypatch.undo()
        found = Watched(cluster, prometheus, time.time())
        found.look()
        cluster.wait_isr("orders", 3)
        # Enough for copies to take some seconds under the movement limit.
        produce(cluster.bootstrap, "orders", (b"%1000d" % n for n in range(COPIED_RECORDS)))
        with used(cluster):
            yield found


@contextmanager
def used(cluster: LocalCluster) -> Iterator[None]:
    """A producer and a group that read and write a little for as long as this takes."""
    over = threading.Event()
    threads = [threading.Thread(target=one, args=(cluster, over)) for one in (_write, _read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def _write(cluster: LocalCluster, over: threading.Event) -> None:
    producer = a_producer(cluster.bootstrap, **{"message.timeout.ms": 5_000})
    while not over.wait(0.1):
        for _ in range(20):
            producer.produce("orders", value=b"x" * 200)
        producer.poll(0)
    producer.purge()


def _read(cluster: LocalCluster, over: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
    )
    consumer.subscribe(["orders"])
    while not over.is_set():
        consumer.consume(500, 0.5)
    consumer.close()


def settled(watched: Watched, members: set[int]) -> Callable[[], bool]:
    """Whether these are the members and the topic is in sync on all that it is to be on."""

    def now() -> bool:
        status = watched.status()
        if {*(status.get("brokers") or {}).get("ids", ())} != members:
            return False
        rows = watched.cluster.topic("orders").values()
        hosts = {broker for row in rows for broker in row.replicas}
        return hosts == members and all(len(row.isrs) == 3 for row in rows)

    return now


def restarted(watched: Watched, before: dict[str, int]) -> Callable[[], bool]:
    def now() -> bool:
        pids = watched.cluster.pids
        return all(pids.get(one, pid) != pid for one, pid in before.items() if one != "controller")

    return now


def test_scale_up_roll_and_drain_fire_nothing(watched: Watched) -> None:
    alerts = watched.alerts()
    watched.change({"spec": {"brokers": {"count": 4}}})
    wait_for("broker 3 is filled", settled(watched, {0, 1, 2, 3}), 90, 0.2)
    watched.look()
    before = watched.cluster.pids
    watched.change({"metadata": {"annotations": {"plimsoll.dev/restart": "first"}}})
    wait_for("every broker was restarted", restarted(watched, before), 120, 0.2)
    wait_for("all are back", settled(watched, {0, 1, 2, 3}), 60, 0.2)
    watched.change({"spec": {"brokers": {"count": 3}}})
    wait_for("broker 3 is drained", settled(watched, {0, 1, 2}), 120, 0.2)
    watched.look()
    assert alerts.fired() == []


def test_local_paused_broker_fires_isr_alert(
    watched: Watched,
) -> None:
    alerts, pid = watched.alerts(), watched.cluster.pids["1"]
    os.kill(pid, signal.SIGSTOP)
    try:
        alert = alerts.wait(ISR_ALERT, firing=True)
        assert {**OWN, "broker": "1", "cause": "fenced"}.items() <= alert.labels.items()
        assert alert.annotations["runbook_url"].endswith(f"{ISR_ALERT}.md")
        # A restart of the others waits for it: something for the panels about what is blocked.
        watched.change({"metadata": {"annotations": {"plimsoll.dev/restart": "second"}}})
        wait_for("the roll is blocked", lambda: watched.status().get("blocked"), 30, 0.2)
        wait_for(
            "Prometheus has it", lambda: watched.prometheus.query("plimsoll_blocked_actions"), 30
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("broker 1 is back", settled(watched, {0, 1, 2}), 60, 0.2)
    alerts.wait(ISR_ALERT, firing=False, timeout_s=RESOLVES_S)


def test_local_operator_and_broker_deaths_fire_alert(watched: Watched) -> None:
    """The process that commits the shrinks is one that no Prometheus has seen at 0."""
    alerts = watched.alerts()
    watched.cluster.kill_everything()
    watched.cluster.start()
    watched.look()
    alert = alerts.wait(ISR_ALERT, firing=True)
    assert OWN.items() <= alert.labels.items()
    watched.cluster.wait_isr("orders", 3)
    alerts.wait(ISR_ALERT, firing=False, timeout_s=RESOLVES_S)


# What panels and rules show is what the tests above have done.


def test_every_rule_is_evaluated_on_metrics_that_exist(watched: Watched) -> None:
    found = watched.prometheus.rules()
    assert len(found) == sum(len(group["rules"]) for group in rules())
    assert [(one["name"], one.get("lastError")) for one in found if one["health"] != "ok"] == []
    asked = {name for one in found for name in re.findall(r"\bplimsoll_\w+", one["query"])}
    # The lag of a group comes with a look that is every ten seconds.
    with contextlib.suppress(AssertionError):
        wait_for(
            "all that rules ask for", lambda: asked - watched.prometheus.names() <= TROUBLE, 30, 0.5
        )
    assert asked - watched.prometheus.names() - TROUBLE == set()


@pytest.mark.parametrize("mark", MARKS, ids=lambda one: one.title)
def test_faults_and_restarts_were_marked(watched: Watched, mark: Mark) -> None:
    window = Window(begin_s=watched.begin_s, end_s=time.time())
    text = chosen(query(mark.show, ("namespace", "cluster")), OWN)
    assert watched.prometheus.over_time(text, window.begin_s, window.end_s, window.step_s)


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda one: one.name)
def test_every_panel_shows_something(watched: Watched, dashboard: Dashboard) -> None:
    window = Window(begin_s=watched.begin_s, end_s=time.time())
    found = looked_up(watched.prometheus, dashboard, OWN, window)
    asked = {f"{r.title}/{p.title}": str(p.show) for r in dashboard.rows for p in r.panels}
    here = {panel for panel, text in asked.items() if not any(x in text for x in OF_KUBERNETES)}
    assert [empty for empty in empty_panels(found) if empty[0] in here] == []
