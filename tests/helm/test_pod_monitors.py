"""Whom the chart's PodMonitors have Prometheus scrape."""

from uuid import UUID

from tests.helm.test_chart import of_kind
from tests.monitored import targets_of

from plimsoll_operator.api import labels

ON = "metrics.podMonitor.enabled=true"


def a_pod(namespace: str, shown: dict[str, str], address: str) -> dict[str, object]:
    port = {"name": "metrics", "containerPort": 9100}
    return {
        "metadata": {"name": "pod", "namespace": namespace, "labels": shown},
        "spec": {"containers": [{"name": "main", "ports": [port]}]},
        "status": {"podIP": address},
    }


def test_pod_monitors_scrape_all_brokers_and_operators():
    broker = labels.labels("main", UUID(int=1), "broker") | {labels.BROKER_ID: "7"}
    (deployment,) = of_kind("Deployment")
    operator = deployment["spec"]["template"]["metadata"]["labels"]
    pods = [
        a_pod("kafka", broker, "10.0.0.1"),
        a_pod("plimsoll-system", operator, "10.0.0.2"),
        a_pod("elsewhere", operator, "10.0.0.3"),
        a_pod("kafka", {"app": "other"}, "10.0.0.4"),
    ]
    found = [one for monitor in of_kind("PodMonitor", ON) for one in targets_of(monitor, pods)]
    assert {one.address: dict(one.labels) for one in found} == {
        "10.0.0.2:9100": {"namespace": "plimsoll-system", "pod": "pod"},
        "10.0.0.1:9100": {"namespace": "kafka", "pod": "pod", "cluster": "main", "broker": "7"},
    }
