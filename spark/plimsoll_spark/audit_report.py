"""Renders the report of an audit: verdict, amounts, and a table of findings, in one HTML file that
loads nothing. Called by `audit`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from plimsoll_spark.audit_settings import AuditSettings
from plimsoll_spark.audit_verdict import AuditFindings
from plimsoll_spark.report import STYLE
from plimsoll_spark.values import Example, Outcome

ROWS_MAX = 500
_LABELS = ("topics", "partitions", "replicas", "batches", "records", "markers", "bytes")


def render(settings: AuditSettings, outcome: Outcome, findings: AuditFindings) -> str:
    """Return the report as one HTML page, with at most `ROWS_MAX` findings."""
    source = settings.source
    rate = source.bytes_per_second
    about = (
        f"topics {source.existing_topics.match_pattern} · checks {', '.join(settings.checks)}"
        f" · reads {source.reads} · {f'{rate:,} bytes a second' if rate else 'no limit'}"
    )
    times = f"{outcome.timing.start_time} to {outcome.timing.completion_time}"
    audited = findings.audited
    amounts = "".join(
        f"<div><b>{getattr(audited, name):,}</b>{name}</div>"
        for name in _LABELS
        if name != "markers" or audited.markers
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Audit {escape(settings.name)}</title><style>{STYLE}</style></head><body>",
            f'<h1>Audit {escape(settings.name)}</h1><p class="about">{escape(about)}'
            f' · <span class="whole">{escape(times)}</span></p>',
            f'<p class="verdict {escape(outcome.verdict)}">{escape(outcome.verdict)}</p>',
            f"<p>{escape(outcome.message)} ({escape(outcome.reason)})</p>",
            f'<div class="counts">{amounts}</div>',
            _table(findings),
            "</body></html>",
        ]
    )


def _table(findings: AuditFindings) -> str:
    if not findings.examples:
        return ""
    rows = "".join(
        f"<tr><td>{escape(e.topic)}</td><td>{e.partition}</td><td>{e.offset}</td>"
        f"<td>{e.offset if e.last_offset is None else e.last_offset}</td>"
        f"<td>{_brokers(e.brokers, e)}</td><td>{_brokers(e.valid_brokers, e)}</td>"
        f'<td class="kind">{escape(e.kind)}: {escape(e.detail)}</td></tr>'
        for e in findings.examples[:ROWS_MAX]
    )
    names = ("topic", "partition", "first offset", "last", "damaged on", "valid on", "finding")
    head = "".join(f"<th>{name}</th>" for name in names)
    total = sum(findings.counts.values())
    shown = min(len(findings.examples), ROWS_MAX)
    return f"<h2>Findings ({shown} of {total})</h2><table><tr>{head}</tr>{rows}</table>"


def _brokers(ids: Sequence[int], example: Example) -> str:
    return ", ".join(f"{one} (leader)" if one == example.leader else str(one) for one in ids)
