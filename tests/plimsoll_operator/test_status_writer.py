"""Status is written on change only, once for many changes, and survives what it meets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_core.cluster.model import Recovery
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    MembersChanged,
    RestartGranted,
)
from plimsoll_core.controller.partitions.unclean_recovery import UNCLEAN_CAUSES
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.rebalance import Progress, RebalanceStatus
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.clocks import wall_ms
from plimsoll_operator.kube.errors import ApiError, Unavailable, error
from plimsoll_operator.kube.resources import REBALANCES, TOPICS, Kind
from plimsoll_operator.status import writer
from plimsoll_operator.status.causes import word
from plimsoll_operator.status.metrics import Metrics
from plimsoll_operator.status.record_events import (
    IsrChange,
    isr_changes,
    occurrences,
    unclean_elections,
)
from plimsoll_operator.status.writer import WRITES_AT_ONCE, StatusDraft, StatusWriter, Target

TARGET = Target(TOPICS, "kafka", "orders")


def ready(status: str) -> Condition:
    return Condition(type="Ready", status=status, reason="Serving", message="")  # type: ignore


class Scene:
    def __init__(self) -> None:
        self.api = ScriptedKube()
        spec = {"clusterRef": {"name": "main"}}
        self.api.put(TOPICS, {"metadata": {"name": "orders", "namespace": "kafka"}, "spec": spec})
        self.partitions = 15
        self.uid = "u1"
        self.status = "True"
        self.writer = StatusWriter(self.api, self.render, wall_ms)

    def render(self, target: Target) -> StatusDraft | None:
        return StatusDraft(
            uid=self.uid,
            status=TopicStatus(partitions=self.partitions, conditions=(ready(self.status),)),
            generation=1,
            shown=(),
        )

    @property
    def writes(self) -> int:
        return sum(verb == "status" for verb, _, _ in self.api.calls)


async def test_equal_status_is_written_once():
    scene = Scene()
    assert await scene.writer.write(TARGET)
    assert not await scene.writer.write(TARGET)
    assert scene.writes == 1


async def test_status_writer_omits_unset_fields():
    scene = Scene()
    progress = Progress(replicas_moved=3)
    assert msgspec.to_builtins(progress)["etaSeconds"] is None
    status = RebalanceStatus(phase="Running", progress=progress)
    scene.render = lambda target: StatusDraft(uid="u1", status=status, generation=1, shown=())
    scene.writer = StatusWriter(scene.api, scene.render, wall_ms)
    spec = {"clusterRef": {"name": "main"}, "mode": "Full"}
    scene.api.put(REBALANCES, {"metadata": {"name": "fill", "namespace": "kafka"}, "spec": spec})
    await scene.writer.write(Target(REBALANCES, "kafka", "fill"))
    written = scene.api.find(REBALANCES, "kafka", "fill")["status"]["progress"]
    assert written["replicasMoved"] == 3
    assert "etaSeconds" not in written


async def test_object_that_was_made_again_gets_the_same_status_once_more():
    scene = Scene()
    await scene.writer.write(TARGET)
    scene.uid = "u2"
    assert await scene.writer.write(TARGET)
    assert scene.writes == 2


async def test_changed_status_is_written_again_with_its_own_transition_times():
    scene = Scene()
    await scene.writer.write(TARGET)
    first = scene.api.find(TOPICS, "kafka", "orders")["status"]["conditions"][0]
    scene.partitions = 16
    await scene.writer.write(TARGET)
    status = scene.api.find(TOPICS, "kafka", "orders")["status"]
    assert status["partitions"] == 16
    assert status["conditions"][0]["lastTransitionTime"] == first["lastTransitionTime"]


async def test_failed_write_is_not_taken_for_done():
    scene = Scene()
    scene.api.fail = [Unavailable(0, "no answer")]
    await scene.writer.write(TARGET)
    assert await scene.writer.write(TARGET)
    assert scene.api.find(TOPICS, "kafka", "orders")["status"]["partitions"] == 15


async def test_object_that_is_gone_is_forgotten():
    scene = Scene()
    scene.api.drop(TOPICS, "kafka", "orders")
    await scene.writer.write(TARGET)
    assert scene.writes == 1


class SlowApi:
    """Answers a write when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.changed = asyncio.Event()
        self.fail: list[ApiError] = []

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: dict[str, Any]
    ) -> dict[str, Any]:
        assert name not in self.waiting, "two writes of one object at a time"
        self.begun.append(name)
        self.waiting[name] = asyncio.get_running_loop().create_future()
        self.changed.set()
        try:
            await self.waiting[name]
        finally:
            del self.waiting[name]
            self.changed.set()
        if self.fail:
            raise self.fail.pop()
        return {}

    async def answer(self, name: str) -> None:
        self.waiting[name].set_result(None)
        await self.until(lambda: name not in self.waiting)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Crowd:
    """Many topics, and a writer that runs."""

    def __init__(self) -> None:
        self.api = SlowApi()
        self.statuses: dict[str, TopicStatus] = {}
        self.writer = StatusWriter(self.api, self.render, wall_ms)
        self.running = asyncio.ensure_future(self.writer.run())

    def render(self, target: Target) -> StatusDraft | None:
        return StatusDraft(uid="u", status=self.statuses[target.name], generation=1, shown=())

    def show(self, name: str, status: str, partitions: int = 1, *, urgent: bool = False) -> None:
        self.statuses[name] = TopicStatus(partitions=partitions, conditions=(ready(status),))
        self.writer.mark(Target(TOPICS, "kafka", name), urgent=urgent)

    async def settle(self, *names: str) -> None:
        """These are Ready, and show it."""
        for name in names:
            self.show(name, "True")
            await self.api.until(lambda name=name: name in self.api.waiting)
            await self.api.answer(name)
        self.api.begun.clear()


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    yield made
    made.running.cancel()
    await asyncio.wait([made.running])
    assert made.running.cancelled()


async def test_first_statuses_are_written_several_at_a_time(crowd: Crowd):
    for number in range(20):
        crowd.show(f"t{number}", "True")
    await crowd.api.until(lambda: len(crowd.api.waiting) == WRITES_AT_ONCE)
    await crowd.api.answer("t0")
    await crowd.api.until(lambda: len(crowd.api.begun) == WRITES_AT_ONCE + 1)


async def test_refreshes_are_written_one_at_a_time(crowd: Crowd):
    await crowd.settle("a", "b", "c")
    for name in ("a", "b", "c"):
        crowd.show(name, "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    for _ in range(20):
        await asyncio.sleep(0)
    assert list(crowd.api.waiting) == ["a"]


async def test_changed_condition_does_not_wait_behind_refreshes(crowd: Crowd):
    await crowd.settle("a", "b", "c")
    for name in ("a", "b"):
        crowd.show(name, "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("c", "False", urgent=True)
    await crowd.api.until(lambda: crowd.api.begun == ["a", "c"])


async def test_urgent_mark_whose_conditions_are_as_they_were_becomes_a_refresh(crowd: Crowd):
    await crowd.settle("a", "b")
    crowd.show("a", "True", partitions=2)
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("b", "True", partitions=2, urgent=True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert list(crowd.api.waiting) == ["a"]


async def test_object_that_changes_while_it_is_written_is_written_again(crowd: Crowd):
    crowd.show("a", "True")
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    crowd.show("a", "False")
    await crowd.api.answer("a")
    await crowd.api.until(lambda: crowd.api.begun == ["a", "a"])


async def test_write_that_the_api_server_throttles_is_made_again(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "THROTTLED_SECONDS", 0)
    monkeypatch.setattr(writer, "RETRY_MS", 0)
    crowd.api.fail = [error(429, "too many requests")]
    crowd.show("a", "True")
    await crowd.api.until(lambda: crowd.api.begun == ["a"])
    await crowd.api.answer("a")
    await crowd.api.until(lambda: crowd.api.begun == ["a", "a"])


def test_causes_have_few_words():
    assert word("fenced after 6012 ms of silence") == "fenced"
    assert word("fenced on proof: connection closed by the peer") == "fenced"
    assert word("IsrShrinkLag") == "lag"
    assert word("anything else") == "other"


def test_isr_changes_count_partitions_by_direction():
    image = with_topic(an_image(), ((0, 1, 2), (0, 2, 1)))
    records = (isr_changed(0, (0, 1)), isr_changed(0, (0, 1, 2), cause="IsrExpand"))
    changes = list(isr_changes(image, records))
    assert [(c.cause, c.shrank, c.grew) for c in changes] == [("lag", 1, 0), ("caught-up", 0, 1)]


def granted(broker: int) -> RestartGranted:
    return RestartGranted(
        cause="asked for", broker_id=broker, broker_epoch=broker, pod_uid="p", revision="r"
    )


@pytest.mark.parametrize(
    ("committed", "planned"),
    [
        pytest.param((), False, id="evicted, preempted, or its pod deleted by hand"),
        pytest.param((granted(1),), False, id="another broker is restarted by grant"),
        pytest.param((granted(2),), True, id="restarted by grant"),
        pytest.param((BrokersLeaving(cause="x", broker_ids=(2,)),), True, id="drained"),
        pytest.param((MembersChanged(cause="x", broker_ids=(0, 1)),), True, id="removed"),
    ],
)
def test_shrink_is_planned_only_by_what_is_committed_about_that_broker(committed, planned):
    """A SIGTERM says nothing of who wanted it."""
    image = replay(with_topic(an_image(), ((0, 1, 2),)), *committed)
    (change,) = isr_changes(image, (isr_changed(0, (0, 1), cause="shutdown"),))
    assert (change.shrank, change.planned) == (1, int(planned))


def test_shrink_of_what_is_moved_off_is_planned_for_that_partition_alone():
    image = with_topic(an_image((0, 1, 2, 3)), ((0, 1, 2), (0, 1, 2)))
    move = {"replicas": (0, 1, 2, 3), "adding": (3,), "removing": (2,)}
    image = replay(image, isr_changed(0, (0, 1, 2), cause="reassignment", **move))
    cancel = {"replicas": (0, 1, 2), "adding": (), "removing": (), "cause": "reassignment"}
    joined = replay(image, isr_changed(0, (0, 1, 2, 3), cause="IsrExpand"))
    (change,) = isr_changes(joined, (isr_changed(0, (0, 1, 2), **cancel),))
    assert (change.shrank, change.planned) == (1, 1)
    records = (isr_changed(0, (0, 1)), isr_changed(1, (0, 1)))
    assert [(c.shrank, c.planned) for c in isr_changes(image, records)] == [(1, 1), (1, 0)]


def test_dead_broker_is_one_event_however_many_partitions_it_led():
    old = with_topic(an_image(), ((0, 1, 2),) * 5)
    records = (
        isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause="fenced on proof"),
        BrokerFenced(
            cause="fenced on proof: gone",
            broker_id=BrokerId(0),
            broker_epoch=old.brokers[BrokerId(0)].broker_epoch,
        ),
    )
    (event,) = occurrences(old, replay(old, *records), records)
    assert (event.reason, event.warning) == ("BrokerFenced", True)
    assert "1 leaderships moved, 0 partitions offline" in event.message


@pytest.mark.parametrize("cause", UNCLEAN_CAUSES)
def test_unclean_election_is_a_warning_that_names_what_may_be_lost_and_is_counted(cause):
    old = with_topic(an_image(), ((0, 1, 2),) * 3)
    records = (
        isr_changed(1, (), leader=None, leader_epoch_step=1, cause="registration"),
        isr_changed(
            1,
            (2,),
            leader=BrokerId(2),
            leader_epoch_step=1,
            recovery=Recovery.RECOVERING,
            cause=cause,
        ),
    )
    (event,) = occurrences(old, replay(old, *records), records)
    assert (event.reason, event.warning) == ("UncleanElection", True)
    assert "Topic orders: broker 2 leads" in event.message
    assert "acknowledged records may be lost" in event.message
    assert "possible data loss" in event.message
    assert event.message.endswith("Partitions 1.")
    assert unclean_elections(records) == 1


class Sees:
    """A process that sees these clusters and leads none."""

    def __init__(self, *keys):
        self.keys = list(keys)

    def known(self):
        return self.keys

    def controllers(self):
        return []

    def blocked(self):
        return []

    def failures(self):
        return {}


def test_process_that_leads_nothing_shows_zeros_of_every_cluster_that_it_sees():
    """So that the first shrink after it takes over is an increase."""
    sees, metrics = Sees(("kafka", "main")), Metrics()
    metrics.watch(sees)
    shrinks = (
        'plimsoll_isr_changes_total{cause="fenced",change="shrink",cluster="main",'
        'namespace="kafka",planned="false"}'
    )
    assert f"{shrinks} 0.0" in metrics.render().decode()
    change = IsrChange(cause="fenced", shrank=3, planned=1, grew=0)
    metrics.isr_changed(("kafka", "main"), change)
    text = metrics.render().decode()
    assert f"{shrinks} 2.0" in text
    assert f"{shrinks.replace('false', 'true')} 1.0" in text
    sees.keys.clear()
    assert 'cluster="main"' not in metrics.render().decode()


def test_count_of_unclean_elections_starts_at_zero_and_grows_by_partitions():
    metrics = Metrics()
    metrics.watch(Sees(("kafka", "main")))
    sample = 'plimsoll_unclean_elections_total{cluster="main",namespace="kafka"}'
    assert f"{sample} 0.0" in metrics.render().decode()
    metrics.elected_uncleanly(("kafka", "main"), 3)
    assert f"{sample} 3.0" in metrics.render().decode()


def test_clean_election_is_not_called_unclean():
    records = (isr_changed(0, (1, 2), leader=BrokerId(1), leader_epoch_step=1, cause="shutdown"),)
    assert unclean_elections(records) == 0
