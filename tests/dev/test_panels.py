"""Queries of dashboards, as they are asked of a Prometheus."""

from dev.panels import chosen


def test_query_selects_the_chosen_cluster() -> None:
    text = 'rate(x{cluster=~"$cluster",broker=~"$broker"}[$__rate_interval])'
    found = chosen(text, {"cluster": "main"})
    assert found == 'rate(x{cluster=~"main",broker=~".*"}[10s])'
