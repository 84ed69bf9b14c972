"""Makes the tables of docs/observability.md from the rows in which the code states its metrics.

    python dev/metrics_table.py            # print them
    python dev/metrics_table.py --write    # between the document's marks

Tests compare the document with this output, and the metrics that processes export with the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dev import quick_yaml

from plimsoll_broker.node import metric_rows as broker
from plimsoll_operator.status import metric_rows as operator
from plimsoll_process.metric_table import PROCESS_ROWS, MetricRow, loop_rows

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "observability.md"
RULES = ROOT / "helm" / "plimsoll" / "files" / "recording.yaml"
MARKS = ("<!-- begin metrics -->", "<!-- end metrics -->")

SECTIONS: Mapping[str, tuple[MetricRow, ...]] = {
    "Operator: ISRs, leaders and brokers, counted": operator.COUNTER_ROWS,
    "Operator: unclean elections of the last day": operator.UNCLEAN_ROWS,
    "Operator: what is committed": (*operator.IMAGE_ROWS, operator.ISR_SIZE),
    "Operator: controllers and the metadata log": operator.CONTROLLER_ROWS,
    "Operator: the history's archive": operator.ARCHIVE_ROWS,
    "Operator: backups of the metadata": operator.BACKUP_ROWS,
    "Operator: certificates of listeners": operator.CERTIFICATE_ROWS,
    "Operator: objects and what waits": operator.OBJECT_ROWS,
    "Operator: reconcilers": operator.RECONCILE_ROWS,
    "Operator: the process": operator.PROCESS,
    "Broker: serving": broker.SERVING_ROWS,
    "Broker: traffic, ISRs, disk writes, moves": broker.TRAFFIC_ROWS,
    "Broker: partitions, followers, volume": broker.PARTITION_ROWS,
    "Broker: state changes asked of it": broker.STATE_CHANGE_ROWS,
    "Broker: topics, on request": broker.TOPIC_ROWS,
    "Broker: compaction": broker.CLEANER_ROWS,
    "Broker: groups that it coordinates": broker.GROUP_ROWS,
    "Broker: logins and rights": broker.SECURITY_ROWS,
    "Broker: quotas": broker.QUOTA_ROWS,
    "Broker: lag of groups": broker.LAG_ROWS,
    "Both: the event loop": (*loop_rows(operator.PREFIX), *loop_rows(broker.PREFIX)),
    "Both: the process, by the client library": PROCESS_ROWS,
}

LIMIT = "at most "
"""Begins the stated bound of a metric's series; the page shows only such numbers."""


def tables() -> str:
    """Return the text between the marks."""
    return "\n".join(
        [
            *(_section(title, rows) for title, rows in SECTIONS.items()),
            _names("Recording rules", (rule["record"] for rule in _rules())),
        ]
    )


def _section(title: str, rows: Iterable[MetricRow]) -> str:
    """Return a line for each meaning, since the operator and the brokers have metrics with the
    same; of the client library's metrics, which Prometheus' users know, only the names."""
    if rows is PROCESS_ROWS:
        return _names(title, (row.shown_name for row in rows))
    names: dict[str, list[str]] = {}
    for row in rows:
        kind = " (histogram)" if row.kind == "histogram" else ""
        series = _series(row)
        meaning = f"{kind}: {row.text}" + (f" ({series})" if series else "")
        names.setdefault(meaning, []).append(f"`{row.shown_name}`")
    lines = [f"- {', '.join(alike)}{meaning}" for meaning, alike in names.items()]
    return "\n".join([f"### {title}", "", *lines, ""])


def _names(title: str, names: Iterable[str]) -> str:
    return f"### {title}\n\n{', '.join(f'`{name}`' for name in names)}\n"


def _series(row: MetricRow) -> str:
    """Return labels of a metric, and the bound of its series if there is one."""
    labels = row.labels[2:] if row.labels[:2] == operator.CLUSTER else row.labels
    shown = ", ".join(f"`{label}`" for label in labels)
    _, found, bound = row.series.partition(LIMIT)
    number = found + bound
    return "; ".join(part for part in (shown, number) if part)


def _rules() -> list[dict[str, Any]]:
    groups = quick_yaml.load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def written(text: str) -> str:
    """Return the document with up-to-date tables."""
    begin, end = MARKS
    before, rest = text.split(begin, 1)
    _, after = rest.split(end, 1)
    return f"{before}{begin}\n{tables()}{end}{after}"


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(written(DOCUMENT.read_text()))
    else:
        sys.stdout.write(tables())


if __name__ == "__main__":
    main()
