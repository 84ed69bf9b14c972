"""Compares what a process shows with the rows in which it states its metrics."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from plimsoll_process.metric_table import PROCESS_ROWS, MetricRow

SHOWN_BY_LIBRARY = {row.name for row in PROCESS_ROWS}


def unlike(families: Iterable[Metric], rows: dict[str, MetricRow]) -> list[str]:
    """What is shown otherwise than it is stated."""
    found = []
    for family in families:
        row = rows.get(family.name)
        if row is None:
            found.append(f"{family.name} is stated nowhere")
            continue
        if family.name not in SHOWN_BY_LIBRARY and family.documentation != row.text:
            found.append(f"{family.name} says: {family.documentation}")
        if family.type != row.kind:
            found.append(f"{family.name} is a {family.type}")
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        if family.samples and labels != set(row.labels):
            found.append(f"{family.name} has {sorted(labels)}")
    return found
