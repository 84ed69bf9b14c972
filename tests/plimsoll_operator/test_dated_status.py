"""A LogCluster whose status an operator of an earlier release wrote: its scale says nothing yet."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster_body, an_image
from tests.plimsoll_operator.terms import Scene

from plimsoll_operator.reconcile.cluster import logcluster_status

EARLIER = {"desired": 3, "ready": 3, "fenced": 0, "ids": [0, 1, 2]}


@pytest.mark.parametrize(
    ("status", "pressing"),
    [
        ({"brokers": EARLIER}, True),
        ({"brokers": {**EARLIER, "active": 3}}, False),
        ({}, False),  # a new object: its first conditions are urgent anyway
    ],
)
def test_status_without_active_brokers_is_urgent(status: dict[str, Any], pressing: bool) -> None:
    scene = Scene(an_image())
    scene.objects.clusters.put({**a_cluster_body(), "status": status})
    draft = logcluster_status.render(scene.term, scene.term.key)
    assert draft is not None
    assert draft.status.brokers.active == 3  # type: ignore[union-attr]
    assert draft.pressing == pressing


def test_status_of_new_term_keeps_observed_generation() -> None:
    """Until the spec is looked at: 1, 0, 1 would tell whoever waits that it was not seen."""
    scene = Scene(an_image())
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "observedGeneration": 7,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    scene.objects.clusters.put({**a_cluster_body(), "status": {"conditions": [condition]}})
    draft = logcluster_status.render(scene.term, scene.term.key)
    assert draft is not None
    assert draft.generation == 7
