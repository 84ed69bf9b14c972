"""Renders the sections of a report about its facts: faults, the run before, partitions, versions.
Called by `report`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from plimsoll_spark.svg import Mark
from plimsoll_spark.values import Facts, Findings, Outcome


def fault_marks(facts: Facts | None, start_ms: float) -> list[Mark]:
    """Return the marks of injected faults for a plot that begins at `start_ms`."""
    return [
        Mark(at_s=(one.at_ms - start_ms) / 1000, title=f"injected fault {one.fault}: {one.message}")
        for one in (facts.faults if facts is not None else ())
        if one.result == "Injected" and one.at_ms >= start_ms
    ]


def head(outcome: Outcome) -> str:
    """Return, as HTML, the line below the verdict: checks, rate of acks, brokers, topic id and
    versions; "" if the outcome has no facts."""
    facts = outcome.facts
    if facts is None:
        return ""
    told = [f"checks: {', '.join(facts.checks)}"]
    if facts.megabytes_per_second is not None:
        rate = outcome.timing.records_per_second
        told.append(f"{_number(rate)} acks and {facts.megabytes_per_second:,g} MB a second")
    told.append(f"brokers at {facts.bootstrap}")
    if facts.topic_id:
        told.append(f"topic id {facts.topic_id}")
    told += [f"{name} {number}" for name, number in sorted(facts.versions.items())]
    return f'<p class="about">{escape(" · ".join(told))}</p>'


def sections(outcome: Outcome, findings: Findings | None) -> Iterable[str]:
    """Yield, as HTML, the sections of a run's report that follow its plots. `findings`: None if the
    report has no plots."""
    facts = outcome.facts
    if facts is None:
        return
    start_ms = findings.pace[0].start_ms if findings is not None and findings.pace else None
    yield _capacity(facts)
    yield _faults(facts, start_ms)
    yield _before(outcome, facts)
    yield _partitions(facts)


_RESULTS = {"starved": "exceeded, but the driver's machine may be the cause"}


def budget(outcome: Outcome) -> str:
    """Return, as HTML, the table of the run's budget; "" if it has none."""
    facts = outcome.facts
    if facts is None:
        return ""
    rows = [
        (
            one.limit,
            _number(one.allowed),
            _number(one.measured),
            _RESULTS.get(one.result, one.result),
        )
        for one in facts.budget
    ]
    return section("Budget", ("limit", "allowed", "measured", "result"), rows)


def _capacity(facts: Facts) -> str:
    found = facts.capacity
    if found is None:
        return ""
    rows = [
        (
            f"{one.records_per_second:,}",
            _number(one.p99_milliseconds),
            "held" if one.held else "starved" if one.starved else "failed",
        )
        for one in found.steps
    ]
    title = (
        f"Highest rate with a p99 of at most {found.limit_milliseconds:g} ms: "
        f"{found.records_per_second:,} records a second (bound: {found.bound})"
    )
    return section(title, ("records a second", "p99 (ms)", "result"), rows)


def _faults(facts: Facts, start_ms: float | None) -> str:
    rows = [
        (
            "" if start_ms is None else f"{(one.at_ms - start_ms) / 1000:,.1f} s",
            _clock(one.at_ms),
            "" if one.until_ms is None else _clock(one.until_ms),
            one.fault,
            one.result,
            one.message,
        )
        for one in facts.faults
    ]
    return section("Faults of the drill", ("after", "at", "until", "fault", "result", "what"), rows)


def _clock(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")


def _before(outcome: Outcome, facts: Facts) -> str:
    before = facts.before
    if before is None:
        return ""
    timing, latency = outcome.timing, outcome.timing.ack_milliseconds
    figures = (
        ("acks a second", before.records_per_second, timing.records_per_second),
        ("p99 (ms)", before.p99_milliseconds, latency.p99 if latency is not None else None),
        (
            "longest stall (ms)",
            before.longest_stall_milliseconds,
            timing.longest_stall_milliseconds,
        ),
        ("lost", before.lost, outcome.counts.lost),
    )
    rows = [("verdict", before.verdict, outcome.verdict, "")]
    rows += [(name, _number(old), _number(new), _change(old, new)) for name, old, new in figures]
    return section(f"Compared with {before.name}", ("", "then", "now", "change"), rows)


def _partitions(facts: Facts) -> str:
    rows = [
        (str(one.partition), f"{one.acked:,}", f"{one.p99:,g}", f"{one.longest_stall:,g}")
        for one in facts.partitions
    ]
    left = facts.partitions_left_out
    title = "Partitions" + (f" ({left:,} with shorter stalls are left out)" if left else "")
    return section(title, ("partition", "acked", "p99 (ms)", "longest stall (ms)"), rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,g}"


def _change(old: float | None, new: float | None) -> str:
    return "" if not old or new is None else f"{100 * (new / old - 1):+.1f} %"


def section(title: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a section with a table, "" without rows."""
    if not rows:
        return ""
    styles = [
        ' class="n"' if all(_is_number(row[column]) for row in rows) else ""
        for column in range(len(titles))
    ]
    head_row = _cells("th", titles, styles)
    body = "".join(f"<tr>{_cells('td', row, styles)}</tr>" for row in rows)
    return f"<h2>{escape(title)}</h2><table><tr>{head_row}</tr>{body}</table>"


def _cells(tag: str, texts: Sequence[str], styles: Sequence[str]) -> str:
    pairs = zip(texts, styles, strict=True)
    return "".join(f"<{tag}{style}>{escape(text)}</{tag}>" for text, style in pairs)


def _is_number(text: str) -> bool:
    return all(one.isdigit() or one in "+-.,% s" for one in text)
