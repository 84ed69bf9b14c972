"""What tests with a real Prometheus share: the rules of the chart, and waiting for an alert."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dev.panels import Found
from dev.prometheus import Notification, Prometheus, Target

CHART = Path(__file__).resolve().parents[1] / "helm" / "plimsoll"
RULES = CHART.parent / "prometheus-rules.yaml"
"""What the chart renders."""
ISR_ALERT = "PlimsollISRShrinking"
FIRES_S = 30.0
"""The promise: so long after an ISR could shrink, somebody has been told."""
RESOLVES_S = 90.0
WINDOW = "10s"
POLL_S = 0.1
PRESSURE = Path("/proc/pressure/cpu")
STRETCH_MAX = 3
OF_KUBERNETES = ("plimsoll_metadata_log_", "plimsoll_operator_api_")
"""Beginnings of metrics that `plimsoll local` has not: of objects in etcd, of an API server."""


def rules(window: str = WINDOW) -> list[dict[str, Any]]:
    """The chart's, but that the alert of ISR shrinks looks back for some seconds in place of its
    5 minutes: it resolves that much sooner.  `tests/helm/test_alerts.py` has it as it is."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    for group in groups:
        for rule in group["rules"]:
            if rule.get("alert") == ISR_ALERT:
                rule["expr"] = re.sub(r"\b5m\b", window, rule["expr"])
                assert window in rule["expr"]
    return groups


@dataclass(frozen=True, slots=True)
class Alerts:
    """What is told of one LogCluster from now on."""

    prometheus: Prometheus
    own: Mapping[str, str]
    begin: int

    @classmethod
    def of(cls, prometheus: Prometheus, own: Mapping[str, str]) -> Alerts:
        return cls(prometheus, own, len(prometheus.notifications))

    def told(self) -> list[Notification]:
        """With this cluster's labels, or with nobody's."""
        return [
            one
            for one in self.prometheus.notifications[self.begin :]
            if all(one.labels.get(name, value) == value for name, value in self.own.items())
        ]

    def fired(self) -> list[tuple[str, dict[str, str]]]:
        return [(one.alert, dict(one.labels)) for one in self.told() if one.firing]

    def wait(
        self, alert: str, *, firing: bool, timeout_s: float = FIRES_S, **labels: str
    ) -> Notification:
        """The first notification of that kind, with these labels.  See `MachineTime`."""
        time_given = MachineTime(timeout_s)
        while True:
            said = self.told()
            for one in said:
                same = labels.items() <= one.labels.items()
                if same and (one.alert, one.firing) == (alert, firing):
                    return one
            what = f"{alert} {'fires' if firing else 'resolves'} not within {timeout_s:g} s"
            found = [(one.alert, one.firing, dict(one.labels)) for one in said]
            assert not time_given.over, (what, labels, found)
            time.sleep(POLL_S)


class MachineTime:
    """So many seconds of a machine that has a processor for everybody: while somebody waits for one
    (pressure, as the kernel counts it), time does not count, but for `STRETCH_MAX` at most."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began_s, self._waited_s = time.monotonic(), waited_s()

    @property
    def over(self) -> bool:
        passed_s = time.monotonic() - self._began_s
        return given_s(passed_s, waited_s() - self._waited_s) > self._seconds


def given_s(passed_s: float, lost_s: float) -> float:
    """What counts of the time that passed, of which so much was lost."""
    return max(passed_s - lost_s, passed_s / STRETCH_MAX)


def waited_s() -> float:
    """For how long some process has waited for a processor; 0 where the kernel does not count."""
    try:
        found = PRESSURE.read_text()
    except OSError:
        return 0.0
    (microseconds,) = re.findall(r"^some .*total=(\d+)", found, re.MULTILINE)
    return int(microseconds) / 1e6


def empty_panels(found: Mapping[str, Sequence[Found]]) -> list[tuple[str, str]]:
    """Panels of which a query found nothing: (row/title, legend)."""
    return [
        (panel, one.legend) for panel, shown in found.items() for one in shown if not one.series
    ]


def targets_of(monitor: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Iterator[Target]:
    """What a PodMonitor has Prometheus scrape: each port of that name, and its labels.  Debian's
    Prometheus is built without the discovery of Kubernetes, so the Prometheus operator's
    translation is made here."""
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    namespaces = spec.get("namespaceSelector", {})
    names = namespaces.get("matchNames") or [monitor["metadata"]["namespace"]]
    for pod in pods:
        meta, address = pod["metadata"], (pod.get("status") or {}).get("podIP")
        shown = meta.get("labels") or {}
        selected = spec["selector"]["matchLabels"].items() <= shown.items()
        inside = namespaces.get("any") or meta["namespace"] in names
        if not (address and selected and inside):
            continue
        found = {
            f"__meta_kubernetes_pod_label_{re.sub(r'[^A-Za-z0-9_]', '_', name)}": value
            for name, value in shown.items()
        }
        labels = {"namespace": meta["namespace"], "pod": meta["name"]}
        for one in endpoint.get("relabelings", ()):
            (source,) = one["sourceLabels"]
            labels[one["targetLabel"]] = found.get(source, "")
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port["name"] == endpoint["port"]:
                    yield Target(address=f"{address}:{port['containerPort']}", labels=labels)
