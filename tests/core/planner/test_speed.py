"""10,000 partitions over 30 brokers are planned while somebody waits for it."""

import time

import pytest
from bench.planner import Case, cases, request_of
from tests.core.planner.clusters import planned

SECONDS_MAX = 5


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.name in ("add 10 to 20, 3 racks", "remove 10")],
    ids=lambda case: case.name,
)
def test_a_large_cluster_is_planned_in_seconds(case: Case) -> None:
    request = request_of(case)
    began = time.process_time()
    answer = planned(request)
    assert time.process_time() - began < SECONDS_MAX
    assert answer.moved_replicas == answer.lower_bound >= 10_000
    assert answer.relaxations == ()
