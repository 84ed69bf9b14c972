"""A dashboard as one SVG picture, from what a Prometheus answers to the queries of its panels.

It stands in for Grafana, which is in no package registry that the project builds from.  Positions
are those of the JSON that Grafana loads (`dev.grafana`), legends are filled in as Grafana does it.
Only `looked_up` asks; the rest draws what was found.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from dev.grafana import Dashboard, Kind, Panel, placed, query
from dev.prometheus import Prometheus, Series

COLUMN, ROW, GAP = 46, 34, 8
"""Pixels of Grafana's units, and between panels."""
HEAD = 58
HEADING, TITLE = 14, 18
POINTS = 160
SERIES_MAX, ROWS_MAX = 12, 7
RATE_INTERVAL = "10s"
INK, GREY, GRID, PAGE, CARD = "#1f2328", "#6b7280", "#e5e7eb", "#f3f4f6", "#ffffff"
PALETTE = (
    "#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2",
    "#ca8a04", "#db2777", "#4d7c0f", "#475569", "#7c3aed", "#0d9488",
)  # fmt: skip
LEFT, TOP, BOTTOM = 52, 30, 42
"""Margins of a plot within its panel: the axis, the title, times and legend."""
CHARACTER = 5.6
"""Width of one, at 10 pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that is shown, in Unix seconds."""

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
    """Return a query with these values chosen, and all values of the other labels."""
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


def drawn(dashboard: Dashboard, found: Mapping[str, Sequence[Found]], window: Window) -> str:
    """SVG; of numbers and tables what they were at the end."""
    parts, bottom = [], 0
    for row, panel, place in placed(dashboard):
        x, y = place.x * COLUMN, HEAD + place.y * ROW
        width, height = place.w * COLUMN - GAP, place.h * ROW - GAP
        bottom = max(bottom, y + height)
        if panel is None:
            parts.append(_text(x + 4, y + 20, row.title, size=HEADING))
            continue
        inner = _DRAW[panel.kind](
            panel, found[f"{row.title}/{panel.title}"], (width, height), window
        )
        parts.append(f'<g transform="translate({x} {y})">{_card(width, height)}{inner}</g>')
    width, height = 24 * COLUMN, bottom + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {width + 8} {height}"'
            ' font-family="Helvetica, Arial, sans-serif">',
            f'<rect x="-8" width="{width + 8}" height="{height}" fill="{PAGE}"/>',
            _text(4, 26, f"Plimsoll / {dashboard.title}", size=TITLE),
            _text(4, 46, dashboard.about, size=12, fill=GREY),
            *parts,
            "</svg>\n",
        ]
    )


# --- panels ---------------------------------------------------------------------------------------

Size = tuple[int, int]


def _number(panel: Panel, found: Sequence[Found], size: Size, window: Window) -> str:
    width, height = size
    lines = textwrap.wrap(panel.title, int((width - 20) / CHARACTER))
    parts = [_text(10, 20 + 13 * n, line, size=11) for n, line in enumerate(lines)]
    values = [(one.legend, series) for one in found for series in one.series]
    slot = width / max(1, len(values))
    for n, (legend, series) in enumerate(values):
        middle = slot * (n + 0.5)
        value = series.last if _is_there(series, window) else math.nan
        fill = _judged(panel, value)
        shown = shortly(value, panel.unit)
        size_px = 30 if len(values) == 1 else 22
        parts.append(
            _text(middle, height / 2 + 20, shown, size=size_px, fill=fill, anchor="middle")
        )
        parts.append(_text(middle, height - 10, legend, size=10, fill=GREY, anchor="middle"))
    return "".join(parts)


def _table(panel: Panel, found: Sequence[Found], size: Size, window: Window) -> str:
    width = size[0]
    there = [
        (one.legend, series) for one in found for series in one.series if _is_there(series, window)
    ]
    if not there:
        return _text(10, 20, panel.title, size=11) + _text(10, 48, "none", size=11, fill=GREY)
    names = sorted({name for _, series in there for name in series.labels})
    columns = [*names, *(one.legend for one in found)]
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for legend, series in there:
        key = tuple(series.labels.get(name, "") for name in names)
        rows.setdefault(key, {**series.labels})[legend] = shortly(series.last, panel.unit)
    slot = (width - 20) / max(1, len(columns))
    parts = [_text(10, 20, panel.title, size=11)]
    for n, column in enumerate(columns):
        at = 10 + slot * n
        parts.append(_text(at, 44, _cut(column, slot, 10), size=10, fill=GREY))
        for line, row in enumerate([*rows.values()][:ROWS_MAX]):
            y = 66 + 24 * line
            parts.append(_text(at, y, _cut(row.get(column, ""), slot, 11), size=11))
    for line in range(min(len(rows), ROWS_MAX) + 1):
        y = 50 + 24 * line
        parts.append(f'<line x1="10" x2="{width - 10}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
    return "".join(parts)


def _plot(panel: Panel, found: Sequence[Found], size: Size, window: Window) -> str:
    """Lines, or areas on top of each other."""
    width, height = size
    series = [
        (filled_in(one.legend, each.labels), each.points)
        for one in found
        for each in one.series
        if any(value for _, value in each.points) or panel.kind is not Kind.BARS
    ]
    series = sorted(series, key=lambda one: -_highest(v for _, v in one[1]))[:SERIES_MAX]
    series.sort(key=lambda one: one[0])
    lines = _stacked([points for _, points in series]) if panel.kind is not Kind.LINES else [
        ({}, dict(points)) for _, points in series
    ]  # fmt: skip
    top = _ceiling(max((_highest(upper.values()) for _, upper in lines), default=0.0))
    span_s, inner = window.end_s - window.begin_s, (width - LEFT - 12, height - TOP - BOTTOM)

    def x(at_s: float) -> float:
        return LEFT + inner[0] * (at_s - window.begin_s) / span_s

    def y(value: float) -> float:
        return TOP + inner[1] * (1 - value / top)

    parts = [_text(10, 20, panel.title, size=11), _axes(panel, top, (width, height), span_s)]
    for n, (lower, upper) in enumerate(lines):
        parts += _runs(lower, upper, PALETTE[n % len(PALETTE)], window.step_s, x, y)
    left = LEFT
    for n, (name, _) in enumerate(series):
        wide = 22 + CHARACTER * len(name)
        if left + wide > width - 8:
            break
        parts.append(
            f'<rect x="{left}" y="{height - 15}" width="10" height="4"'
            f' fill="{PALETTE[n % len(PALETTE)]}"/>'
        )
        parts.append(_text(left + 13, height - 9, name, size=10, fill=GREY))
        left += round(wide)
    return "".join(parts)


Points = dict[float, float]


def _stacked(series: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[Points, Points]]:
    """Return the lower and upper edge of each series."""
    ground: Points = {}
    layers = []
    for points in series:
        lower = {at: ground.get(at, 0.0) for at, _ in points}
        upper = {at: lower[at] + (0.0 if math.isnan(v) else v) for at, v in points}
        ground = {**ground, **upper}
        layers.append((lower, upper))
    return layers


def _runs(
    lower: Points,
    upper: Points,
    colour: str,
    step_s: float,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    """A line for each stretch without a gap; with `lower` it is the edge of an area."""
    parts: list[str] = []
    run: list[float] = []
    for at in sorted(upper):
        if math.isnan(upper[at]):
            continue
        if run and at - run[-1] > 1.5 * step_s:
            parts.append(_run(run, lower, upper, colour, x, y))
            run = []
        run.append(at)
    if run:
        parts.append(_run(run, lower, upper, colour, x, y))
    return parts


def _run(
    run: Sequence[float],
    lower: Points,
    upper: Points,
    colour: str,
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    over = " ".join(f"{x(at):.0f},{y(upper[at]):.1f}" for at in run)
    line = f'<polyline points="{over}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
    if not lower:
        return line
    under = " ".join(f"{x(at):.0f},{y(lower[at]):.1f}" for at in reversed(run))
    return f'<polygon points="{over} {under}" fill="{colour}" fill-opacity="0.35"/>{line}'


def _axes(panel: Panel, top: float, size: Size, span_s: float) -> str:
    width, height = size
    parts = []
    for step in range(5):
        y = TOP + (height - TOP - BOTTOM) * (1 - step / 4)
        parts.append(
            f'<line x1="{LEFT}" x2="{width - 12}" y1="{y:.0f}" y2="{y:.0f}" stroke="{GRID}"/>'
        )
        label = shortly(top * step / 4, panel.unit)
        parts.append(_text(LEFT - 6, y + 4, label, size=10, fill=GREY, anchor="end"))
        x = LEFT + (width - LEFT - 12) * step / 4
        at = f"{span_s * step / 4:.0f} s"
        parts.append(_text(x, height - 26, at, size=10, fill=GREY, anchor="middle"))
    return "".join(parts)


Draw = Callable[[Panel, Sequence[Found], Size, Window], str]
_DRAW: dict[Kind, Draw] = {
    Kind.NUMBER: _number,
    Kind.TABLE: _table,
    Kind.LINES: _plot,
    Kind.STACKED: _plot,
    Kind.BARS: _plot,
}


# --- words and colours ----------------------------------------------------------------------------


def filled_in(legend: str, labels: Mapping[str, str]) -> str:
    """A legend with the values of its labels."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend)


def shortly(value: float, unit: str) -> str:
    """A value as a panel tells it; of Grafana's units those that are used."""
    if math.isnan(value):
        return "–"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    behind = {"bytes": "B", "Bps": "B/s", "cps": "/s", "reqps": "/s"}.get(unit, "")
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and (behind or value >= 1e5):
            return f"{value / size:.3g} {letter}{behind}"
    return (
        f"{value:.6g} {behind}".strip() if value == int(value) else f"{value:.3g} {behind}".strip()
    )


def _judged(panel: Panel, value: float) -> str:
    if panel.bad is not None and value >= panel.bad:
        return PALETTE[4]
    if panel.warn is not None and value >= panel.warn:
        return PALETTE[1]
    return PALETTE[2] if panel.bad is not None or panel.warn is not None else INK


def _is_there(series: Series, window: Window) -> bool:
    """Return True if the series still existed at the end."""
    return series.points[-1][0] >= window.end_s - 2 * window.step_s


def _highest(values: Iterable[float]) -> float:
    """Without what is not a number: a quantile of nothing."""
    return max((one for one in values if not math.isnan(one)), default=0.0)


def _ceiling(value: float) -> float:
    """The smallest of 1, 2, 4, 6, 8 x 10^n that is not below the value."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * 0.999)


def _cut(text: str, width: float, size: int) -> str:
    room = max(3, int(width / (CHARACTER * size / 10)))
    return text if len(text) <= room else text[: room - 1] + "…"


def _card(width: int, height: int) -> str:
    return f'<rect width="{width}" height="{height}" rx="4" fill="{CARD}" stroke="{GRID}"/>'


def _text(x: float, y: float, text: str, *, size: int, fill: str = INK, anchor: str = "") -> str:
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += ' font-weight="600"' if size in (HEADING, TITLE) else ""
    place = f'x="{x:.0f}" y="{y:.0f}"'
    return f'<text {place} font-size="{size}" fill="{fill}"{more}>{escape(text)}</text>'
