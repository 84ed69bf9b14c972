"""Renders the report of a verification: verdict, counts and three plots, in one HTML file that
loads nothing.

Called by `run`. Stays under `MAX_BYTES`, so that it fits in a ConfigMap beside the verdict. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from plimsoll_spark import report_facts, report_windows, svg
from plimsoll_spark.report_windows import Windows
from plimsoll_spark.settings import Settings
from plimsoll_spark.svg import Band, Bar, Line, Mark, Plot
from plimsoll_spark.values import Counts, Example, Findings, Outcome, Stall

MAX_BYTES = 900_000
MAX_BARS = 120
NOTABLE_STALL_MS = 250.0

# Counts that are wrong unless 0.
_BAD = (
    *("lost", "misplaced", "mismatched", "duplicated", "rewritten"),
    *("out_of_order", "gaps", "expired"),
)
_LABELS = (
    ("sent", "sent"),
    ("acked", "acked"),
    ("unknown", "no answer in time"),
    ("failed", "refused"),
    ("read", "read back"),
    ("lost", "acked and lost"),
    ("duplicated", "duplicated"),
    ("rewritten", "written twice by a producer"),
    ("out_of_order", "out of order"),
    ("gaps", "offset gaps"),
    ("mismatched", "other content at the acked offset"),
    ("misplaced", "at another offset"),
    ("expired", "removed by retention"),
    ("foreign", "written by others"),
    ("markers", "markers of transactions"),
    ("unreported", "of lost drivers or executors"),
)

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --rule: #dfe3e8; --page: #fff;
  --card: #f6f7f9; --main: #2a6fb0; --second: #c2571a; --good: #1d7a46; --bad: #b3261e;
  --doubt: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b3; --rule: #323a45;
  --page: #14181d; --card: #1d2229; --main: #6aaee8; --second: #f0955a; --good: #5cc98a;
  --bad: #ff8a80; --doubt: #e2b755; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 900px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p.about, td.kind { color: var(--soft); } p { margin: .3rem 0; }
.verdict { font-size: 1.25rem; font-weight: 600; margin-top: 1rem; }
.Passed { color: var(--good); } .Violated { color: var(--bad); }
.Inconclusive { color: var(--doubt); }
.counts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .6rem;
  margin: 1rem 0; }
.counts div { background: var(--card); border-radius: 6px; padding: .5rem .7rem; }
.counts b { display: block; font-size: 1.2rem; font-variant-numeric: tabular-nums; }
.counts .bad b { color: var(--bad); }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif;
  fill: var(--soft); }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 1.6; }
.line.main { stroke: var(--main); } .line.second { stroke: var(--second); }
.area { fill: var(--main); opacity: .18; } .bar { fill: var(--main); }
.mark line { stroke: var(--bad); } .mark path { fill: var(--bad); }
.mark.driver line { stroke: var(--ink); } .mark.driver path { fill: var(--ink); }
.span.Passed { fill: var(--good); } .span.Violated { fill: var(--bad); }
.span.Inconclusive { fill: var(--doubt); } .span { opacity: .8; }
.band { fill: var(--second); } .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .35em; background: var(--main); } .key.second::before { background: var(--second); }
.key.fault::before { background: var(--bad); } .key.driver::before { background: var(--ink); }
table { border-collapse: collapse; } td, th { padding: .25rem 1.6rem .25rem 0; text-align: left; }
tr + tr { border-top: 1px solid var(--rule); } td { vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.whole { white-space: nowrap; }
"""


def render(
    settings: Settings,
    outcome: Outcome,
    findings: Findings | None,
    windows: Windows | None = None,
) -> str:
    """Return the report as HTML. `findings`: None if the run ended before its checks; the plots are
    then left out; `windows`: those of a continuous run."""
    about = _about(settings)
    times = f"{outcome.timing.start_time} to {outcome.timing.completion_time or 'now'}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Verification {escape(settings.name)}</title><style>{STYLE}</style></head><body>",
        f'<h1>Verification {escape(settings.name)}</h1><p class="about">{escape(about)}'
        f' · <span class="whole">{escape(times)}</span></p>',
        f'<p class="verdict {escape(outcome.verdict)}">{escape(outcome.verdict)}</p>',
        report_windows.acknowledged(windows) if windows is not None else "",
        f"<p>{escape(outcome.message)} ({escape(outcome.reason)})</p>",
        report_facts.head(outcome),
        _evidence(outcome),
        _counts(outcome.counts),
        report_facts.budget(outcome),
        report_windows.windows(windows) if windows is not None else "",
    ]
    if findings is not None and findings.pace:
        marks = report_facts.fault_marks(outcome.facts, findings.pace[0].start_ms)
        parts += [_throughput(findings, marks), _latency(findings, marks)]
        parts.append(_stalls(findings, settings.budget.max_stall_milliseconds))
    parts += report_facts.sections(outcome, findings)
    parts += [_examples(outcome), "</body></html>"]
    page = "\n".join(parts)
    assert len(page.encode()) < MAX_BYTES, "bins, bars and examples are bounded"
    return page


def _about(settings: Settings) -> str:
    """Return the request in one line."""
    produce, rate = settings.produce, settings.produce.records_per_second
    speed = f"{rate:,} a second" if rate else "as fast as possible"
    if produce.load is not None:
        steps = [f"{one.for_} at {one.records_per_second:,}" for one in produce.load.profile]
        speed = f"{', '.join(steps)} a second" if steps else "a search for the highest rate"
    number = f"{produce.total:,} records"
    if settings.mode == "Continuous":
        number = f"continuous, a verdict every {settings.window} · records"
    return (
        f"topic {settings.topic} · {number} of {produce.record_bytes:,} bytes"
        f" · {speed} · {produce.keys:,} keys"
        f" · acks {produce.acks} · {'idempotent' if produce.is_idempotent else 'not idempotent'}"
    )


def _counts(counts: Counts) -> str:
    cells = []
    for name, label in _LABELS:
        value = getattr(counts, name)
        if name == "markers" and not value:
            continue
        style = ' class="bad"' if value and name in _BAD else ""
        cells.append(f"<div{style}><b>{value:,}</b>{escape(label)}</div>")
    return f'<div class="counts">{"".join(cells)}</div>'


def _throughput(findings: Findings, marks: Sequence[Mark]) -> str:
    start_ms = findings.pace[0].start_ms
    bins = {round((b.start_ms - start_ms) / findings.bin_ms): b.acked for b in findings.pace}
    # A bin without acks is a zero, not a line between its neighbours.
    numbers = range(max(bins) + 1)
    per_second = [bins.get(number, 0) * 1000 / findings.bin_ms for number in numbers]
    plot = Plot(
        title="Acks per second over time",
        unit="/s",
        seconds=[number * findings.bin_ms / 1000 for number in numbers],
        lines=[Line(name="acks", style="main", values=per_second)],
        bands=_bands(findings, start_ms),
        marks=marks,
        filled=True,
    )
    about = f'<p class="about">{_bin(findings)}; shaded: some partition got no ack</p>'
    return f"<h2>Throughput (acks per second)</h2>{about}{svg.over_time(plot)}"


def _latency(findings: Findings, marks: Sequence[Mark]) -> str:
    start_ms = findings.pace[0].start_ms
    plot = Plot(
        title="Ack latency over time",
        unit="ms",
        seconds=[(b.start_ms - start_ms) / 1000 for b in findings.pace],
        lines=[
            Line(name="p99", style="second", values=[b.p99 for b in findings.pace]),
            Line(name="p50", style="main", values=[b.p50 for b in findings.pace]),
        ],
        marks=marks,
    )
    whole = findings.latency
    told = (
        f"whole run: p50 {whole.p50:,g} · p90 {whole.p90:,g} · p99 {whole.p99:,g}"
        f" · p99.9 {whole.p999:,g} · worst {whole.worst:,g} ms"
    )
    keys = '<span class="key">p50</span> &nbsp; <span class="key second">p99</span>'
    return (
        f'<h2>Ack latency (milliseconds)</h2><p class="about">{keys} &nbsp; {told}</p>'
        f"{svg.over_time(plot)}"
    )


def _stalls(findings: Findings, limit: int | None) -> str:
    """Return the bars of the longest stalls, with a line at the budget's limit, if it has one."""
    worst = sorted(findings.stalls, key=lambda stall: -stall.milliseconds)[:MAX_BARS]
    start_ms = findings.pace[0].start_ms
    shown = [
        Bar(
            label=str(stall.partition),
            value=stall.milliseconds,
            title=f"writes to partition {stall.partition} stood still: {_told(stall, start_ms)}",
        )
        for stall in sorted(worst, key=lambda stall: stall.partition)
    ]
    told = ""
    if worst:
        told = f"longest: partition {worst[0].partition}, {_told(worst[0], start_ms)}"
    return (
        "<h2>How long writes to each partition stood still (milliseconds)</h2>"
        f'<p class="about">the longest time without an ack while records waited; {told}</p>'
        f"{svg.bars('Longest stall of each partition', 'ms', shown, limit)}"
    )


def _bands(findings: Findings, start_ms: float) -> list[Band]:
    return [
        Band(
            begin_s=max(0.0, (stall.from_ms - start_ms) / 1000),
            end_s=max(0.0, (stall.to_ms - start_ms) / 1000),
            title=f"writes to partition {stall.partition} stood still: {_told(stall, start_ms)}",
        )
        for stall in sorted(findings.stalls, key=lambda stall: -stall.milliseconds)[:MAX_BARS]
        if stall.milliseconds >= NOTABLE_STALL_MS
    ]


def _told(stall: Stall, start_ms: float) -> str:
    begin_s = (stall.from_ms - start_ms) / 1000
    return f"{stall.milliseconds:,.0f} ms, from {begin_s:.1f} s on"


def _bin(findings: Findings) -> str:
    return f"counted in steps of {findings.bin_ms} ms"


def _evidence(outcome: Outcome) -> str:
    kept = outcome.evidence
    if kept is None or kept.place is None:
        return ""
    missing = f"; {kept.missing}" if kept.missing else ""
    return (
        f'<p class="about">evidence of run {escape(kept.run)}: {escape(kept.place + missing)}</p>'
    )


def _examples(outcome: Outcome) -> str:
    if not outcome.examples:
        return ""
    rows = "".join(
        f"<tr><td>{escape(e.topic)}</td><td>{e.partition}</td><td>{e.offset}</td>"
        f"{''.join(f'<td>{_cell(one)}</td>' for one in (e.key, e.producer, e.sequence))}"
        f'<td class="kind">{escape(_what(e))}</td></tr>'
        for e in outcome.examples
    )
    titles = ("topic", "partition", "offset", "key", "producer", "sequence", "what")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<h2>Examples</h2><table><tr>{head}</tr>{rows}</table>"


def _what(example: Example) -> str:
    """Return the kind of a fault, with the brokers on which it was found if they are known."""
    brokers = ", ".join(str(one) for one in example.brokers)
    return f"{example.kind} on broker {brokers}" if brokers else example.kind


def _cell(value: str | int | None) -> str:
    return "" if value is None else escape(str(value))
