"""Pictures of dashboards: what is drawn of what a Prometheus has found."""

import math
import re
from html import unescape

import pytest
from dev.grafana import Dashboard, Kind, Panel, Row, dashboards
from dev.panels import Found, Window, chosen, drawn, filled_in, shortly
from dev.prometheus import Series

WINDOW = Window(begin_s=1_000, end_s=1_100)
EMPTY = [Found(legend="", series=[])]


def series(values: list[float], begin_s: int = 1_000, step_s: int = 10, **labels: str) -> Series:
    points = tuple((begin_s + step_s * n, value) for n, value in enumerate(values))
    return Series(labels=labels, points=points)


def picture(kind: Kind, found: list[Found], **more: float) -> str:
    panel = Panel(title="Replicas", kind=kind, about="All.", show={"": "x"}, width=12, **more)
    row = Row(title="Now", panels=(panel,))
    board = Dashboard(name="one", title="One", about="", choose=("namespace",), rows=(row,))
    return drawn(board, {"Now/Replicas": found}, WINDOW)


def words(svg: str) -> list[str]:
    return [unescape(one) for one in re.findall(r">([^<>\n]+)</text>", svg)]


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda one: one.name)
def test_dashboard_that_found_nothing_is_drawn_with_all_its_titles(dashboard: Dashboard) -> None:
    nothing = {
        f"{row.title}/{panel.title}": EMPTY for row in dashboard.rows for panel in row.panels
    }
    said = " ".join(words(drawn(dashboard, nothing, WINDOW)))
    assert all(panel.title in said for panel in dashboard.panels)


def test_number_is_what_it_was_at_the_end_in_the_colour_of_its_judgement() -> None:
    found = [Found(legend="", series=[series([5.0] * 10 + [3.0])])]
    assert re.search(r'fill="#dc2626"[^>]*>3</text>', picture(Kind.NUMBER, found, bad=3))
    assert re.search(r'fill="#059669"[^>]*>3</text>', picture(Kind.NUMBER, found, bad=4))
    gone = [Found(legend="", series=[series([5.0] * 3)])]
    assert "–" in words(picture(Kind.NUMBER, gone))


def test_line_has_a_gap_where_nothing_was_scraped() -> None:
    gap = Series(labels={}, points=((1_000, 1), (1_001, 1), (1_090, 2), (1_091, 2)))
    assert picture(Kind.LINES, [Found(legend="a", series=[gap])]).count("<polyline") == 2


def test_quantile_of_nothing_is_a_gap_and_never_the_highest_value() -> None:
    values = Series(labels={}, points=((1_000, math.nan), (1_001, 7.0), (1_002, math.nan)))
    svg = picture(Kind.LINES, [Found(legend="a", series=[values])])
    assert "8" in words(svg), "where the axis ends"
    assert "nan" not in svg


def test_stacked_series_reach_from_the_one_below_to_their_sum() -> None:
    both = [series([2.0] * 101, step_s=1, broker=one) for one in "01"]
    svg = picture(Kind.STACKED, [Found(legend="broker {{broker}}", series=both)])
    assert svg.count("<polygon") == 2
    assert {"broker 0", "broker 1", "4"} <= {*words(svg)}


def test_table_has_a_row_for_each_set_of_labels_and_a_column_for_each_legend() -> None:
    found = [
        Found(legend="topics", series=[series([7.0] * 11, cluster="main")]),
        Found(legend="brokers", series=[series([3.0] * 11, cluster="main")]),
    ]
    assert words(picture(Kind.TABLE, found))[-6:] == [
        "cluster",
        "main",
        "topics",
        "7",
        "brokers",
        "3",
    ]


def test_query_is_of_the_chosen_cluster_and_of_all_other_labels() -> None:
    text = 'rate(x{cluster=~"$cluster",broker=~"$broker"}[$__rate_interval])'
    found = chosen(text, {"cluster": "main"})
    assert found == 'rate(x{cluster=~"main",broker=~".*"}[10s])'
    assert filled_in("{{broker}}: {{cause}}", {"broker": "1"}) == "1: "


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (0.0214, "s", "21.4 ms"),
        (1_500_000, "Bps", "1.5 MB/s"),
        (12, "bytes", "12 B"),
        (0.125, "percentunit", "12.5 %"),
        (1_500, "short", "1500"),
        (math.nan, "short", "–"),
    ],
)
def test_values_are_told_with_their_unit(value: float, unit: str, text: str) -> None:
    assert shortly(value, unit) == text
