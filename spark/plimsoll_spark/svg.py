"""Draws plots as SVG text: an area over time, lines over time, bars per partition, a strip of
coloured spans.

Called by `report`. Pure; knows only pixels, nothing of verifications. Colours come from the page's
style sheet, so that the plots follow its light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 30
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
STRIP_HEIGHT = 44
TICKS = 4
BANDS_OPACITY, LEAST_OPACITY = 0.36, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a plot: a value for each of the plot's `seconds`. `style`: a class of the style
    sheet."""

    name: str
    style: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A time span that is shaded in a plot, in seconds since the start, with its tooltip."""

    begin_s: float
    end_s: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment, in seconds since the start, with its tooltip. `style`: a class of the style
    sheet."""

    at_s: float
    title: str
    style: str = "mark"


def after_start(second: float) -> str:
    """Return the label of a time: the seconds since the start."""
    return f"{second:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot over time. `seconds`: the times of all lines' values; `filled`: True to fill the area
    below the lines; `label`: returns the label of a time; `until_s`: the plot reaches at least so
    far."""

    title: str
    unit: str
    seconds: Sequence[float]
    lines: Sequence[Line]
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    filled: bool = False
    label: Callable[[float], str] = after_start
    until_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span of a strip, in seconds since the start. `style`: a class of the style sheet."""

    begin_s: float
    end_s: float
    style: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Spans beside each other. `label`: returns the label of a time."""

    title: str
    spans: Sequence[Span]
    marks: Sequence[Mark]
    label: Callable[[float], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a bar chart. `title`: its tooltip."""

    label: str
    value: float
    title: str


def over_time(plot: Plot) -> str:
    """Return the plot as SVG text."""
    last_s = max([*plot.seconds, *(band.end_s for band in plot.bands), plot.until_s, 1e-3])
    last_s = max([last_s, *(mark.at_s for mark in plot.marks)])
    top = nice_ceiling(max((v for line in plot.lines for v in line.values), default=0.0))

    def x(second: float) -> float:
        return LEFT + INNER_WIDTH * second / last_s

    def y(value: float) -> float:
        return TOP + INNER_HEIGHT * (1 - value / top)

    parts = [_open(plot.title), _grid(top, plot.unit)]
    # Bands of many partitions lie above each other: together they stay pale.
    shade = BANDS_OPACITY / max(1, len(plot.bands))
    for band in plot.bands:
        width = max(1.5, x(band.end_s) - x(band.begin_s))
        parts.append(
            f'<rect class="band" x="{x(band.begin_s):.1f}" y="{TOP}" width="{width:.1f}" '
            f'height="{INNER_HEIGHT}" style="opacity:{max(LEAST_OPACITY, shade):.3f}">'
            f"<title>{escape(band.title)}</title></rect>"
        )
    parts += [_mark(x(mark.at_s), mark, INNER_HEIGHT) for mark in plot.marks]
    for line in plot.lines:
        points = " ".join(
            f"{x(s):.1f},{y(v):.1f}" for s, v in zip(plot.seconds, line.values, strict=True)
        )
        if plot.filled and points:
            base = f"{x(plot.seconds[-1]):.1f},{y(0):.1f} {x(plot.seconds[0]):.1f},{y(0):.1f}"
            parts.append(f'<polygon class="area {line.style}" points="{points} {base}"/>')
        parts.append(f'<polyline class="line {line.style}" points="{points}"/>')
    return "".join([*parts, *_times(last_s, plot.label, HEIGHT - 10), "</svg>"])


def strip(shown: Strip) -> str:
    """Return the strip as SVG text."""
    last_s = max([*(span.end_s for span in shown.spans), 1e-3])
    last_s = max([last_s, *(mark.at_s for mark in shown.marks)])
    parts = [_open(shown.title, TOP + STRIP_HEIGHT + BOTTOM)]
    for span in shown.spans:
        begin, end = (LEFT + INNER_WIDTH * at / last_s for at in (span.begin_s, span.end_s))
        parts.append(
            f'<rect class="span {span.style}" x="{begin:.1f}" y="{TOP}" '
            f'width="{max(1.0, end - begin - 1):.1f}" height="{STRIP_HEIGHT}">'
            f"<title>{escape(span.title)}</title></rect>"
        )
    parts += [
        _mark(LEFT + INNER_WIDTH * mark.at_s / last_s, mark, STRIP_HEIGHT) for mark in shown.marks
    ]
    labels = _times(last_s, shown.label, TOP + STRIP_HEIGHT + BOTTOM - 10)
    return "".join([*parts, *labels, "</svg>"])


def _mark(x: float, mark: Mark, height: float) -> str:
    return (
        f'<g class="{mark.style}"><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + height}"/>'
        f'<path d="M{x:.1f} {TOP + 7} l-5 -8 h10 z"/><title>{escape(mark.title)}</title></g>'
    )


def _times(last_s: float, label: Callable[[float], str], y: float) -> list[str]:
    seconds = [last_s * step / TICKS for step in range(TICKS + 1)]
    # The last label would reach beyond the picture.
    return [
        _text(
            LEFT + INNER_WIDTH * second / last_s,
            y,
            label(second),
            "end" if second == last_s else "middle",
        )
        for second in seconds
    ]


def bars(title: str, unit: str, shown: Sequence[Bar], limit: float | None) -> str:
    """Return a bar chart as SVG text, with a dashed line at `limit` (None: no line)."""
    highest = max([*(bar.value for bar in shown), limit or 0.0])
    top = nice_ceiling(highest)
    slot = INNER_WIDTH / max(1, len(shown))
    every = max(1, math.ceil(len(shown) / 30))
    parts = [_open(title), _grid(top, unit)]
    for index, bar in enumerate(shown):
        height = INNER_HEIGHT * bar.value / top
        left = LEFT + slot * index + slot * 0.15
        parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{TOP + INNER_HEIGHT - height:.1f}" '
            f'width="{slot * 0.7:.1f}" height="{height:.1f}" rx="2">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
        if index % every == 0:
            parts.append(_text(left + slot * 0.35, HEIGHT - 10, bar.label, "middle"))
    if limit is not None:
        at = TOP + INNER_HEIGHT * (1 - limit / top)
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
    return "".join([*parts, "</svg>"])


def nice_ceiling(value: float) -> float:
    """Return the smallest number of the form 1, 2, 2.5 or 5 times 10^n that is not below
    `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def short(value: float) -> str:
    """Return a number as a short text for the labels of an axis."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


def _open(title: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>"
    )


def _grid(top: float, unit: str) -> str:
    parts = []
    for step in range(TICKS + 1):
        y = TOP + INNER_HEIGHT * (1 - step / TICKS)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        label = short(top * step / TICKS) + (f" {unit}" if step == TICKS else "")
        parts.append(_text(LEFT - 6, y + 4, label, "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
