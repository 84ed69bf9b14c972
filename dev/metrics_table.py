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
    "Operator: certificates of listeners": operator.CERTIFICATE_ROWS,
    "Operator: objects and what waits": operator.OBJECT_ROWS,
    "Operator: reconcilers": operator.RECONCILE_ROWS,
    "Operator: the process": (*operator.PROCESS, *loop_rows(operator.PREFIX)),
    "Broker: serving": (*broker.SERVING_ROWS, *loop_rows(broker.PREFIX)),
    "Broker: traffic, ISRs, disk writes, moves": broker.TRAFFIC_ROWS,
    "Broker: partitions, followers, volume": broker.PARTITION_ROWS,
    "Broker: state changes asked of it": broker.STATE_CHANGE_ROWS,
    "Broker: topics, on request": broker.TOPIC_ROWS,
    "Broker: compaction": broker.CLEANER_ROWS,
    "Broker: groups that it coordinates": broker.GROUP_ROWS,
    "Broker: logins and rights": broker.SECURITY_ROWS,
    "Broker: quotas": broker.QUOTA_ROWS,
    "Broker: lag of groups": broker.LAG_ROWS,
    "Both: the process, by the client library": PROCESS_ROWS,
}


def tables() -> str:
    """Return the text between the marks."""
    parts = [_table(title, rows) for title, rows in SECTIONS.items()]
    return "\n".join([*parts, _recorded()])


def _table(title: str, rows: Iterable[MetricRow]) -> str:
    lines = [f"### {title}", ""]
    for row in rows:
        name = f"`{row.shown_name}`" + (" (histogram)" if row.kind == "histogram" else "")
        series = _series(row)
        lines.append(f"- {name}: {row.text}" + (f" ({series})" if series else ""))
    return "\n".join([*lines, ""])


def _series(row: MetricRow) -> str:
    """Return labels and number of series of a metric as text, without what the page says of all
    rows."""
    labels = row.labels[2:] if row.labels[:2] == operator.CLUSTER else row.labels
    shown = ", ".join(f"`{label}`" for label in labels)
    number = "" if row.series in ("1", operator.EACH_LED) else row.series
    return "; ".join(part for part in (shown, number) if part)


def _recorded() -> str:
    lines = ["### Recording rules", ""]
    return "\n".join([*lines, *(f"- `{rule['record']}`" for rule in _rules()), ""])


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
