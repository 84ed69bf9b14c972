"""The chart's dashboards are what their descriptions say, and ask for metrics that exist."""

import json
import re
from pathlib import Path

import pytest
from dev import grafana
from dev.grafana import Dashboard, Kind, dashboards

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS = {
    "broker", "cluster", "controller", "fleet", "groups", "moves-and-rolls", "topic",
    "verification",
}  # fmt: skip
ALL = dashboards()
OF_OPERATORS = ("plimsoll_operator_", "plimsoll_reconcile_", "plimsoll_not_ready_")
"""Of a process, or of all namespaces together: of no LogCluster."""


def test_dashboards_match_their_descriptions() -> None:
    found = {path.name: path.read_text() for path in grafana.DASHBOARDS.glob("*.json")}
    assert found == grafana.files(), "run: .venv/bin/python -m dev.grafana"


def test_every_subject_has_a_dashboard() -> None:
    assert {one.name for one in ALL} == SUBJECTS


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)
def test_panels_have_unique_titles_and_descriptions(
    dashboard: Dashboard,
) -> None:
    titles = [panel.title for panel in dashboard.panels]
    for panel in dashboard.panels:
        assert panel.about.endswith("."), panel.title
        assert panel.show, panel.title
        if panel.kind is not Kind.NUMBER:
            assert panel.warn is panel.bad is None, panel.title
    rows = [[panel.title for panel in row.panels] for row in dashboard.rows]
    assert all(len(row) == len(set(row)) for row in rows)
    assert len(titles) >= 8


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)
def test_queries_ask_only_for_the_chosen_logclusters(dashboard: Dashboard) -> None:
    """Beside what every LogCluster has in common, the operator's own process."""
    for panel in dashboard.panels:
        for text in panel.show.values():
            for name, matchers in re.findall(r"\b(plimsoll_[a-z0-9_]+)(\{[^}]*\})?", text):
                chosen = re.search(r"\b(NAMESPACE|CLUSTER|BROKER|TOPIC|GROUP)\b", matchers)
                assert chosen or name.startswith(OF_OPERATORS), (panel.title, text)


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)
def test_panels_never_overlap(dashboard: Dashboard) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in grafana.grafana(dashboard)["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= grafana.COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_queries_leave_no_placeholder_to_prometheus() -> None:
    for text in grafana.files().values():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", ()):
                left = re.search(r"\b(NAMESPACE|CLUSTER|BROKER|TOPIC|GROUP|RATE)\b", target["expr"])
                assert left is None, target


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.name)
def test_faults_and_restarts_are_marked(dashboard: Dashboard) -> None:
    marks = grafana.grafana(dashboard)["annotations"]["list"]
    assert [mark["name"] for mark in marks] == ["Unplanned ISR shrinks", "Granted restarts"]
    for mark in marks:
        assert 'namespace=~"$namespace",cluster=~"$cluster"' in mark["expr"]
        assert re.search(r"\b(CLUSTER|RATE)\b", mark["expr"]) is None


def test_legends_say_words_and_no_numbers() -> None:
    """A legend of the margin was -1, 0, 1 or 2."""
    for dashboard in ALL:
        for panel in dashboard.panels:
            assert "{{margin}}" not in panel.show, panel.title
    (spare,) = [p for one in ALL for p in one.panels if p.title == "Partitions by spare replicas"]
    assert [*spare.show] == ["below min ISR", "none", "one", "two or more"]


def test_dashboard_says_when_a_disk_is_full() -> None:
    (broker,) = [one for one in ALL if one.name == "broker"]
    (panel,) = [one for one in broker.panels if one.title == "Time until the disk is full"]
    assert panel.unit == "s"


def test_matcher_of_what_nobody_chooses_is_refused() -> None:
    with pytest.raises(ValueError, match="BROKER"):
        grafana.query("x{BROKER}", ("namespace", "cluster"))
