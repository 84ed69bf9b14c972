"""The chart's dashboards as Grafana's sidecar finds them, and who makes PodMonitors."""

import json

from dev import grafana
from tests.helm.test_chart import of_kind

ON = "metrics.dashboards.enabled=true"


def boards(*settings: str) -> dict[str, dict[str, str]]:
    """Labels of each ConfigMap that holds a dashboard, by its name."""
    return {
        one["metadata"]["name"]: one["metadata"]["labels"]
        for one in of_kind("ConfigMap", *settings)
        if "-dashboard-" in one["metadata"]["name"]
    }


def test_dashboards_come_with_their_value_alone():
    assert boards() == {}
    assert len(boards(ON)) == len(grafana.dashboards())


def test_dashboards_arrive_as_they_were_made():
    """Grafana's own templates, `{{broker}}`, are none of helm's."""
    made = {}
    for one in of_kind("ConfigMap", ON):
        if "-dashboard-" in one["metadata"]["name"]:
            made.update({k.removeprefix("plimsoll-"): v for k, v in one["data"].items()})
    assert {name: json.loads(text) for name, text in made.items()} == {
        name: json.loads(text) for name, text in grafana.files().items()
    }


def test_sidecar_finds_dashboards_by_label():
    assert all(found["grafana_dashboard"] == "1" for found in boards(ON).values())
    other = boards(ON, "metrics.dashboards.labels.dashboards=yes")
    assert all(found["dashboards"] == "yes" for found in other.values())
    (annotated, *_) = [
        one["metadata"]
        for one in of_kind("ConfigMap", ON, "metrics.dashboards.annotations.grafana_folder=Logs")
        if "-dashboard-" in one["metadata"]["name"]
    ]
    assert annotated["annotations"] == {"grafana_folder": "Logs"}


def test_brokers_are_scraped_by_one_monitor():
    on, per = "metrics.podMonitor.enabled=true", "metrics.podMonitor.perLogCluster=true"
    assert len(of_kind("PodMonitor", on)) == 2
    (monitor,) = of_kind("PodMonitor", on, per)
    assert monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"


def test_pod_monitors_are_writable_only_when_used():
    def powers(*settings: str) -> set[str]:
        (role,) = [
            one for one in of_kind("ClusterRole", *settings)
            if one["metadata"]["name"] == "plimsoll"
        ]  # fmt: skip
        return {resource for rule in role["rules"] for resource in rule.get("resources", ())}

    def told(*settings: str) -> str | None:
        (deployment,) = of_kind("Deployment", *settings)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        return env.get("PLIMSOLL_POD_MONITORS")

    per = "metrics.podMonitor.perLogCluster=true"
    assert powers(per) - powers() == {"podmonitors"}
    assert (told(), told(per)) == (None, "true")
