"""Makes the chart's dashboards, as JSON for Grafana, from the descriptions in `dev/dashboards/`.

`python -m dev.grafana` writes `helm/plimsoll/files/dashboards/`.  A description is a YAML file: its
`title`, `about`, the labels whose values a reader chooses (`choose`), and rows of panels.  A panel
has a `kind` (see `Kind`), Grafana's `unit`, `about`, a `width` of 24 columns, and `show`: a query
for each legend, which is also the name of a table's column.  `warn` and `bad` colour a number from
that value on.

Every dashboard shows `MARKS` as annotations: lines and bands over all panels.

In a query `NAMESPACE`, `CLUSTER`, `BROKER`, `TOPIC` and `GROUP` stand for matchers of the chosen
label values, `RATE` for the interval of a rate. `tests/dev/test_grafana.py` compares the written
files, and `tests/integration/test_prometheus.py` runs every query against a real Prometheus.
"""

from __future__ import annotations

import enum
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dev import quick_yaml

ROOT = Path(__file__).resolve().parent.parent
DESCRIPTIONS = ROOT / "dev" / "dashboards"
DASHBOARDS = ROOT / "helm" / "plimsoll" / "files" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39
"""Schema version of Grafana 11. Newer releases migrate a dashboard of this version when they load
it."""
COLUMNS = 24
NUMBER_HEIGHT, HEIGHT = 4, 8
MATCHER = re.compile(r"\b(NAMESPACE|CLUSTER|BROKER|TOPIC|GROUP)\b")
RATE = re.compile(r"\bRATE\b")
GREEN, ORANGE, RED = "green", "orange", "red"
# The query of a label's values, and if a reader may choose several.
VALUES = {
    "namespace": "label_values(plimsoll_cluster_known, namespace)",
    "cluster": 'label_values(plimsoll_cluster_known{namespace=~"$namespace"}, cluster)',
    "broker": "label_values(plimsoll_broker_ready{CLUSTER}, broker)",
    "topic": "label_values(plimsoll_partition_isr_size{CLUSTER}, topic)",
    "group": "label_values(plimsoll_group_lag_records{CLUSTER}, group)",
}
CHOSEN_ALWAYS = ("namespace", "cluster")
# The labels that a placeholder matches.
MATCHED = {
    "namespace": ("namespace",),
    "cluster": CHOSEN_ALWAYS,
    "broker": (*CHOSEN_ALWAYS, "broker"),
    "topic": (*CHOSEN_ALWAYS, "topic"),
    "group": (*CHOSEN_ALWAYS, "topic", "group"),
}


class Kind(enum.Enum):
    """The ways in which a panel shows the results of its queries."""

    NUMBER = "number"  # what it is now
    LINES = "lines"
    STACKED = "stacked"  # on top of each other
    BARS = "bars"  # events: bars on top of each other
    TABLE = "table"  # now, a row for each set of labels

    @property
    def is_now(self) -> bool:
        return self in (Kind.NUMBER, Kind.TABLE)

    @property
    def grafanas(self) -> str:
        return {Kind.NUMBER: "stat", Kind.TABLE: "table"}.get(self, "timeseries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    kind: Kind
    about: str
    # Query by legend, with CLUSTER, RATE and the like in it.
    show: Mapping[str, str]
    unit: str = "short"
    width: int
    # The values from which a number is orange, red; None: never.
    warn: float | None = None
    bad: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An annotation, where the query gives a value above 0."""

    title: str
    color: str
    # The text of one occurrence, with `{{label}}` in it.
    text: str
    show: str


MARKS = (
    Mark(
        title="Unplanned ISR shrinks",
        color=RED,
        text="{{namespace}}/{{cluster}}: broker {{broker}} left an ISR ({{cause}})",
        show="sum by (namespace, cluster, broker, cause) "
        '(increase(plimsoll_isr_shrinks_total{CLUSTER,planned="false"}[RATE])) > 0',
    ),
    Mark(
        title="Granted restarts",
        color="blue",
        text="{{namespace}}/{{cluster}}: a broker may restart",
        show="max by (namespace, cluster) (plimsoll_restart_grants{CLUSTER}) > 0",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position and size of a panel in Grafana's units: 24 columns, rows of 30 pixels."""

    x: int
    y: int
    w: int
    h: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    name: str
    title: str
    about: str
    choose: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels


def dashboards() -> list[Dashboard]:
    """Return the described dashboards, by name. Raises TypeError, ValueError, KeyError for a field
    that is unknown, impossible or missing."""
    return [_dashboard(path) for path in sorted(DESCRIPTIONS.glob("*.yaml"))]


def _dashboard(path: Path) -> Dashboard:
    described = quick_yaml.load(path.read_text())
    rows = tuple(
        Row(title=row["title"], panels=tuple(_panel(**panel) for panel in row["panels"]))
        for row in described.pop("rows")
    )
    choose = tuple(described.pop("choose"))
    if choose[:2] != CHOSEN_ALWAYS or not set(choose) <= set(VALUES):
        raise ValueError(f"{path.name}: choose {choose}")
    return Dashboard(name=path.stem, choose=choose, rows=rows, **described)


def _panel(kind: str, width: int | None = None, **fields: Any) -> Panel:
    found = Kind(kind)
    wide = COLUMNS // 6 if found is Kind.NUMBER else COLUMNS // 2
    return Panel(kind=found, width=width or wide, **fields)


def query(text: str, chosen: tuple[str, ...]) -> str:
    """Return the query in PromQL, with Grafana's variables in it. Raises ValueError if the query
    matches a label that the reader of the dashboard cannot choose."""

    def matchers(found: re.Match[str]) -> str:
        label = found[1].lower()
        if not {*MATCHED[label]} <= {*chosen}:
            raise ValueError(f"{found[1]} where only {chosen} are chosen: {text}")
        names = MATCHED[label]
        return ",".join(f'{name}=~"${name}"' for name in names)

    return RATE.sub("$__rate_interval", MATCHER.sub(matchers, text))


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana loads it."""
    return {
        "uid": f"plimsoll-{dashboard.name}",
        "title": f"Plimsoll / {dashboard.title}",
        "description": dashboard.about,
        "tags": ["plimsoll"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *(_variable(n, dashboard) for n in dashboard.choose)]},
        "links": [
            {
                "type": "dashboards",
                "tags": ["plimsoll"],
                "title": "Plimsoll",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "annotations": {"list": [_annotation(mark, dashboard.choose) for mark in MARKS]},
        "panels": list(_panels(dashboard)),
    }


def _annotation(mark: Mark, chosen: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": mark.title,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": mark.color,
        "expr": query(mark.show, chosen),
        "titleFormat": mark.title,
        "textFormat": mark.text,
    }


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }


def _variable(name: str, dashboard: Dashboard) -> dict[str, Any]:
    several = name not in CHOSEN_ALWAYS or dashboard.name == "fleet"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query(VALUES[name], dashboard.choose), "refId": name},
        "refresh": 2,
        "sort": 3 if name == "broker" else 1,
        "multi": several,
        "includeAll": several,
        "allValue": ".*" if several else None,
        "current": {"text": "All", "value": "$__all"} if several else {},
    }


def placed(dashboard: Dashboard) -> Iterator[tuple[Row, Panel | None, Place]]:
    """Yield rows and panels with their places: rows one below the other, their panels from left to
    right while they fit. The panel is None for a row's heading."""
    top = 0
    for row in dashboard.rows:
        yield row, None, Place(x=0, y=top, w=COLUMNS, h=1)
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            own = NUMBER_HEIGHT if panel.kind is Kind.NUMBER else HEIGHT
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            yield row, panel, Place(x=left, y=top, w=panel.width, h=own)
            left, height = left + panel.width, max(height, own)
        top += height


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    for number, (row, panel, place) in enumerate(placed(dashboard), 1):
        at = {"id": number, "gridPos": asdict(place)}
        if panel is None:
            yield {**at, "type": "row", "title": row.title, "panels": []}
        else:
            yield {**at, **_drawn(panel, dashboard.choose)}


def _drawn(panel: Panel, chosen: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": panel.kind.grafanas,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "targets": [
            _target(n, legend, query(text, chosen), panel.kind)
            for n, (legend, text) in enumerate(panel.show.items())
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel.kind),
        "transformations": _columns(panel) if panel.kind is Kind.TABLE else [],
    }


def _target(number: int, legend: str, expr: str, kind: Kind) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": expr,
        "legendFormat": legend or "__auto",
        "instant": kind.is_now,
        "range": not kind.is_now,
        "format": "table" if kind is Kind.TABLE else "time_series",
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "text", "value": None}]
    if panel.warn is not None or panel.bad is not None:
        steps = [{"color": GREEN, "value": None}]
        if panel.warn is not None:
            steps.append({"color": ORANGE, "value": panel.warn})
        if panel.bad is not None:
            steps.append({"color": RED, "value": panel.bad})
    found: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind in (Kind.NUMBER, Kind.TABLE):
        return {**found, "color": {"mode": "thresholds"}}
    bars = panel.kind is Kind.BARS
    stacked = panel.kind is not Kind.LINES
    custom = {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 60 if bars else 20 if stacked else 5,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    return {**found, "min": 0, "color": {"mode": "palette-classic"}, "custom": custom}


def _options(kind: Kind) -> dict[str, Any]:
    if kind is Kind.TABLE:
        return {"showHeader": True}
    if kind is Kind.NUMBER:
        calculated = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": calculated, "colorMode": "value", "graphMode": "none"}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _columns(panel: Panel) -> list[dict[str, Any]]:
    """Return the transformations that make a table of the panel's queries: one row for equal
    labels, and the legends as names of the columns. Grafana calls the column of a single query
    `Value`, those of several `Value #A`, `Value #B`."""
    single = len(panel.show) == 1
    names = {
        "Value" if single else f"Value #{chr(ord('A') + n)}": legend
        for n, legend in enumerate(panel.show)
    }
    organize = {"excludeByName": {"Time": True}, "renameByName": names}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]


def files() -> dict[str, str]:
    """Return the content of each dashboard file of the chart, by file name."""
    return {
        f"{one.name}.json": json.dumps(grafana(one), indent=1, ensure_ascii=False) + "\n"
        for one in dashboards()
    }


def main() -> int:
    DASHBOARDS.mkdir(exist_ok=True)
    made = files()
    for path in DASHBOARDS.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (DASHBOARDS / name).write_text(text)
        print((DASHBOARDS / name).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
