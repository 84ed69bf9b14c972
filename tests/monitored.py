"""What tests with a real Prometheus share: the rules of the chart, and waiting for an alert."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dev.panels import Found
from dev.prometheus import Notification, Prometheus

CHART = Path(__file__).resolve().parents[1] / "helm" / "plimsoll"
RULES = (CHART / "files" / "alerts.yaml", CHART / "files" / "recording.yaml")
ISR_ALERT = "PlimsollISRShrinking"
FIRES_S = 30.0
"""The promise: so long after an ISR could shrink, somebody has been told."""
RESOLVES_S = 90.0
WINDOW = "20s"
POLL_S = 0.1
OF_KUBERNETES = ("plimsoll_metadata_log_", "plimsoll_operator_api_")
"""Beginnings of metrics that `plimsoll local` has not: of objects in etcd, of an API server."""


def rules() -> list[dict[str, Any]]:
    """The chart's, but that the alert of ISR shrinks looks back for 20 seconds in place of its
    5 minutes: it resolves that much sooner.  `tests/helm/alerts_test.yaml` has it as it is."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    for group in groups:
        for rule in group["rules"]:
            if rule.get("alert") == ISR_ALERT:
                rule["expr"] = re.sub(r"\b5m\b", WINDOW, rule["expr"])
                assert WINDOW in rule["expr"]
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

    def wait(self, alert: str, *, firing: bool, timeout_s: float = FIRES_S) -> Notification:
        """The first notification of that kind."""
        deadline = time.monotonic() + timeout_s
        while True:
            said = self.told()
            for one in said:
                if (one.alert, one.firing) == (alert, firing):
                    return one
            what = f"{alert} {'fires' if firing else 'resolves'} not within {timeout_s:g} s"
            assert time.monotonic() < deadline, (what, [(one.alert, one.firing) for one in said])
            time.sleep(POLL_S)


def empty_panels(found: Mapping[str, Sequence[Found]]) -> list[tuple[str, str]]:
    """Panels of which a query found nothing: (row/title, legend)."""
    return [
        (panel, one.legend) for panel, shown in found.items() for one in shown if not one.series
    ]


def scrape_config(monitor: dict[str, Any], kubeconfig: str) -> dict[str, Any]:
    """A PodMonitor as the Prometheus operator hands it to Prometheus."""
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    wanted = spec["selector"]["matchLabels"].items()
    keep = [
        {
            "action": "keep",
            "source_labels": ["__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", name)],
            "regex": value,
        }
        for name, value in wanted
    ]
    port = {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "action": "keep"}
    taken = (("namespace", "namespace"), ("pod_name", "pod"), ("pod_container_name", "container"))
    own = [
        {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
        for source, target in taken
    ]
    more = [
        {"source_labels": one["sourceLabels"], "target_label": one["targetLabel"]}
        for one in endpoint.get("relabelings", ())
    ]
    namespaces = spec.get("namespaceSelector", {})
    names = namespaces.get("matchNames") or [monitor["metadata"]["namespace"]]
    discovery: dict[str, Any] = {"role": "pod", "kubeconfig_file": kubeconfig}
    if not namespaces.get("any"):
        discovery["namespaces"] = {"names": names}
    return {
        "job_name": f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}",
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [*keep, {**port, "regex": endpoint["port"]}, *own, *more],
    }
