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
    ("name", "sentence"),
    [
        ("PARTITIONS_OF_TOPIC", "Topic orders has 6 partitions, more than the 5"),
        ("PARTITIONS_OF_CLUSTER", "The cluster has 6 partitions, more than the 5"),
        ("TOPICS_OF_CLUSTER", "The cluster has 1 Topic objects, more than the 0"),
        ("BROKERS_OF_CLUSTER", "The cluster has 3 brokers, more than the 2"),
        ("CLUSTERS_OF_OPERATOR", "This operator has 7 LogClusters, more than the 6"),
    ],
)
def test_size_beyond_limit_is_shown(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: published_limits.SizeLimit = getattr(published_limits, name)
    lower = replace(known, most=int(sentence.split("the ")[1]))
    monkeypatch.setattr(limits, name, lower)
    shown = limits_condition(IMAGE, 7)
    assert shown is not None
    assert (shown.type, shown.status, shown.reason) == ("WithinLimits", "False", "BeyondLimits")
    assert sentence in shown.message
    assert known.remedy in shown.message


def test_status_of_large_cluster_has_the_condition() -> None:
    rows: Any = ((0, 1, 2),) * (PARTITIONS_OF_TOPIC.most + 1)
    draft = render(Scene(with_topic(an_image(), rows)).term, ("kafka", "main"))
    assert draft is not None
    found: Any = draft.status
    assert "BeyondLimits" in [one.reason for one in found.conditions]
