"""Runs the queries of a dashboard's panels against a Prometheus and returns the results, for tests.

Only `looked_up` sends requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dev.grafana import Dashboard, Kind, query
from dev.prometheus import Prometheus, Series

POINTS = 160
RATE_INTERVAL = "10s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The period that a dashboard shows, in Unix seconds."""

    begin_s: float
    end_s: float

    @property
    def step_s(self) -> float:
        return max(1.0, (self.end_s - self.begin_s) / POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one query of a panel, with its legend."""

    legend: str
    series: Sequence[Series]


def chosen(text: str, labels: Mapping[str, str]) -> str:
    """Return the query with the stated label values chosen, and with all values of the other
    labels."""
    text = text.replace("$__rate_interval", RATE_INTERVAL)
    return re.sub(r"\$(\w+)", lambda found: labels.get(found[1], ".*"), text)


def looked_up(
    prometheus: Prometheus, dashboard: Dashboard, labels: Mapping[str, str], window: Window
) -> dict[str, list[Found]]:
    """Return the results of each panel in that time, by `row/title`. Raises RuntimeError for a
    query that Prometheus refuses."""
    return {
        f"{row.title}/{panel.title}": [
            Found(
                legend=legend,
                series=prometheus.over_time(
                    chosen(query(text, dashboard.choose), labels),
                    window.begin_s,
                    window.end_s,
                    1.0 if panel.kind is Kind.TABLE else window.step_s,
                ),
            )
            for legend, text in panel.show.items()
        ]
        for row in dashboard.rows
        for panel in row.panels
    }
