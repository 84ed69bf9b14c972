"""docs/observability.md has every metric of the code, by names that keep to the conventions."""

import re

from dev.metrics_table import DOCUMENT, SECTIONS, written

from plimsoll_broker.node import metric_rows as broker
from plimsoll_operator.status import metric_rows as operator

ROWS = {row.name: row for row in (*operator.ROWS, *broker.ROWS)}
CONVENTIONAL = re.compile(r"(plimsoll|process|python)_[a-z_]+")


def test_document_table_matches_the_rows():
    text = DOCUMENT.read_text()
    assert written(text) == text, "run: python dev/metrics_table.py --write"


def test_every_row_is_in_the_document_once():
    shown = [row.name for rows in SECTIONS.values() for row in rows]
    assert len(shown) == len(set(shown))
    assert set(shown) == set(ROWS)


def test_names_keep_to_prometheus_conventions():
    """Base units; `_total` is for counters, and the client library's to add."""
    for row in ROWS.values():
        assert CONVENTIONAL.fullmatch(row.name)
        assert not row.name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|kb|mb|minutes|percent)$", row.name)
        assert row.kind != "histogram" or row.name.endswith("_seconds")
