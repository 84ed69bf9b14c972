"""Counters of what commits do: there from the start, bounded, and right about who was evicted."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.shown import Shows, metrics_of, sample

from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause
from plimsoll_core.ids import BrokerId
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.isr_departures import (
    Eviction,
    IsrDepartures,
    eviction_of,
)
from plimsoll_operator.status.commit_counters import (
    SHRINK_SERIES,
    CommitCounters,
    FencedBroker,
    Fencing,
    LeaderChange,
)
from plimsoll_operator.status.operator_metrics import Metrics

KEY = ("kafka", "main")
WHERE = {"namespace": "kafka", "cluster": "main"}
SHRINKS = "plimsoll_isr_shrinks_total"
FENCED = Left(broker_id=BrokerId(2), cause=ShrinkCause.FENCED)
STOPPED = Left(broker_id=BrokerId(2), cause=ShrinkCause.RESTART)


def shrinks(metrics: Metrics, cause: str, planned: str = "false", broker: int = 2) -> float | None:
    labels = {**WHERE, "broker": str(broker), "cause": cause, "planned": planned}
    return sample(metrics, SHRINKS, **labels)


def test_process_that_leads_nothing_shows_zeros():
    """So that the first shrink after it takes over is an increase."""
    metrics = metrics_of(Shows(main={0, 1, 2}))
    for broker in range(3):
        for cause, planned in SHRINK_SERIES:
            assert shrinks(metrics, cause, planned, broker) == 0
    assert sample(metrics, "plimsoll_unclean_elections_total", **WHERE) == 0
    assert sample(metrics, "plimsoll_isr_expands_total", **WHERE) == 0
    for change in LeaderChange:
        name = "plimsoll_leader_elections_total"
        assert sample(metrics, name, **WHERE, cause=change.value) == 0


def test_deleted_cluster_or_broker_has_no_series():
    shows = Shows(main={0, 1, 2})
    metrics = metrics_of(shows)
    metrics.commits.left_isrs(KEY, FENCED, 4)
    assert shrinks(metrics, "fenced") == 4
    shows.seen = {KEY: frozenset({0, 1})}
    assert shrinks(metrics, "fenced") is None
    assert shrinks(metrics, "fenced", broker=1) == 0
    shows.seen = {}
    assert shrinks(metrics, "fenced", broker=1) is None
    assert b'"main"' not in metrics.render()


def test_broker_that_comes_back_counts_from_zero_again():
    shows = Shows(main={2})
    metrics = metrics_of(shows)
    metrics.commits.left_isrs(KEY, FENCED, 4)
    shows.seen = {KEY: frozenset()}
    metrics.render()
    shows.seen = {KEY: frozenset({BrokerId(2)})}
    assert shrinks(metrics, "fenced") == 0


def test_every_cause_is_planned_or_unplanned():
    by_cause: dict[str, set[str]] = {}
    for cause, planned in SHRINK_SERIES:
        by_cause.setdefault(cause, set()).add(planned)
    assert set(by_cause) == {
        "restart", "roll", "reassign", "lag", "fenced", "evicted", "disk", "unknown"
    }  # fmt: skip
    assert by_cause.pop("evicted") == {"true", "false"}
    planned = {cause for cause, words in by_cause.items() if words == {"true"}}
    assert planned == {"roll", "reassign"}


def test_fencings_and_elections_are_counted_by_why():
    metrics = metrics_of(Shows(main={2}))
    metrics.commits.fenced(KEY, FencedBroker(BrokerId(2), Fencing.SILENCE))
    metrics.commits.elected(KEY, Counter({LeaderChange.FENCED: 3, LeaderChange.UNCLEAN: 1}), 1)
    found = sample(metrics, "plimsoll_fencings_total", **WHERE, broker="2", reason="silence")
    assert found == 1
    elections = "plimsoll_leader_elections_total"
    assert sample(metrics, elections, **WHERE, cause="fenced") == 3
    assert sample(metrics, "plimsoll_unclean_elections_total", **WHERE) == 1


# --- evictions ------------------------------------------------------------------------------------


def a_pod(uid: str, **condition: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}, condition] if condition else []
    return {"metadata": {"uid": uid}, "status": {"conditions": conditions}}


TARGET = {"type": "DisruptionTarget", "status": "True"}


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param(a_pod("u"), None, id="deleted by hand, or killed by its probe"),
        pytest.param(
            a_pod("u", **TARGET, reason="TerminationByKubelet"), Eviction(False), id="node pressure"
        ),
        pytest.param(
            a_pod("u", **TARGET, reason="PreemptionByScheduler"), Eviction(False), id="preempted"
        ),
        pytest.param(
            a_pod("u", **TARGET, reason="DeletionByTaintManager"), Eviction(False), id="tainted"
        ),
        pytest.param(
            a_pod("u", **TARGET, reason="EvictionByEvictionAPI"), Eviction(True), id="kubectl drain"
        ),
        pytest.param(a_pod("u", type="DisruptionTarget", status="False"), None, id="taken back"),
        pytest.param(a_pod("other", **TARGET), None, id="another pod of that name"),
        pytest.param({"metadata": {"uid": "u"}}, None, id="no status yet"),
    ],
)
def test_eviction_is_read_from_that_pods_condition(pod, found):
    assert eviction_of(pod, "u") == found


class Pods:
    """Answers looks from a list, the last one again and again."""

    def __init__(self, *answers: Eviction | None) -> None:
        self.answers = list(answers)
        self.looks: list[tuple[str, str, str | None]] = []

    async def look(self, namespace: str, name: str, uid: str | None) -> Eviction | None:
        self.looks.append((namespace, name, uid))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Counting(CommitCounters):
    """Says when something was counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counted = asyncio.Event()
        super().__init__(self.registry)

    def left_isrs(self, key: Key, left: Left, count: int, *, asked_for: bool = False) -> None:
        super().left_isrs(key, left, count, asked_for=asked_for)
        self.counted.set()

    def read(self, cause: str, planned: str) -> float | None:
        labels = {**WHERE, "broker": "2", "cause": cause, "planned": planned}
        return self.registry.get_sample_value(SHRINKS, labels)


@pytest.mark.parametrize(
    ("answers", "series"),
    [
        pytest.param((Eviction(False),), ("evicted", "false"), id="at once"),
        pytest.param((None, Eviction(False)), ("evicted", "false"), id="a moment later"),
        pytest.param((Eviction(True),), ("evicted", "true"), id="asked for"),
        pytest.param((None,), ("restart", "false"), id="never"),
    ],
)
async def test_stopped_broker_is_counted_by_its_pod(answers, series):
    counters, pods = Counting(), Pods(*answers)
    departures = IsrDepartures(KEY, counters, pods.look)
    task = asyncio.create_task(departures.run())
    departures.add(with_topic(an_image(), ((0, 1, 2),)), Counter({STOPPED: 3}))
    async with asyncio.timeout(30):
        await counters.counted.wait()
    task.cancel()
    await asyncio.wait([task])
    assert {pair: n for pair in SHRINK_SERIES if (n := counters.read(*pair))} == {series: 3}
    assert pods.looks[0][:2] == ("kafka", "main-broker-2-0")


async def test_uninspected_departures_are_counted_at_term_end():
    metrics = metrics_of(Shows(main={2}))
    hangs = asyncio.Event()

    async def look(*_: Any) -> Eviction | None:
        hangs.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    departures = IsrDepartures(KEY, metrics.commits, look)
    task = asyncio.create_task(departures.run())
    departures.add(an_image(), Counter({STOPPED: 3}))
    await hangs.wait()
    departures.add(an_image(), Counter({FENCED: 2}))
    task.cancel()
    await asyncio.wait([task])
    assert (shrinks(metrics, "restart"), shrinks(metrics, "fenced")) == (3, 2)


def test_record_without_pod_counts_at_once():
    metrics = metrics_of(Shows(main={2}))
    IsrDepartures(KEY, metrics.commits, None).add(an_image(), Counter({STOPPED: 3}))
    assert shrinks(metrics, "restart") == 3
    lagging = Left(broker_id=BrokerId(2), cause=ShrinkCause.LAG)
    departures = IsrDepartures(KEY, metrics.commits, Pods(None).look)
    departures.add(an_image(), Counter({lagging: 1}))
    assert shrinks(metrics, "lag") == 1
