"""A LogCluster beyond a published limit says so in its status, with what to do."""

from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.terms import Scene

from plimsoll_core import published_limits
from plimsoll_core.published_limits import CLUSTERS_OF_OPERATOR, PARTITIONS_OF_TOPIC
from plimsoll_operator.reconcile.cluster.logcluster_status import render
from plimsoll_operator.status import limits_condition as limits
from plimsoll_operator.status.limits_condition import limits_condition

IMAGE = with_topic(an_image(), ((0, 1, 2),) * 6)


def test_cluster_within_limits_has_no_such_condition() -> None:
    assert limits_condition(IMAGE, CLUSTERS_OF_OPERATOR.most) is None
    assert limits_condition(an_image(), 1) is None


@pytest.mark.parametrize(
    ("name", "most", "begin"),
    [
        ("PARTITIONS_OF_TOPIC", 5, "Topic orders has 6 partitions"),
        ("PARTITIONS_OF_CLUSTER", 5, "The cluster has 6 partitions"),
        ("TOPICS_OF_CLUSTER", 0, "The cluster has 1 Topic objects"),
        ("BROKERS_OF_CLUSTER", 2, "The cluster has 3 brokers"),
        ("CLUSTERS_OF_OPERATOR", 6, "This operator has 7 LogClusters"),
    ],
)
def test_size_beyond_limit_is_shown(
    name: str, most: int, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: published_limits.SizeLimit = getattr(published_limits, name)
    lower = replace(known, most=most)
    monkeypatch.setattr(limits, name, lower)
    shown = limits_condition(IMAGE, 7)
    assert shown is not None
    assert (shown.type, shown.status, shown.reason) == ("WithinLimits", "False", "BeyondLimits")
    assert f"{begin}; Plimsoll is made and tested for at most {most}" in shown.message
    assert ("Nothing is refused" in shown.message) == (known.beyond == "said")
    assert known.remedy in shown.message


def test_status_of_large_cluster_has_the_condition() -> None:
    rows: Any = ((0, 1, 2),) * (PARTITIONS_OF_TOPIC.most + 1)
    draft = render(Scene(with_topic(an_image(), rows)).term, ("kafka", "main"))
    assert draft is not None
    found: Any = draft.status
    assert "BeyondLimits" in [one.reason for one in found.conditions]
