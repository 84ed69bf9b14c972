"""What an operator shows: what it states, of what it leads, without holding its loop."""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.plimsoll_operator.builders import (
    a_cluster_body,
    an_image,
    isr_changed,
    replay,
    with_topic,
)
from tests.plimsoll_operator.shown import Shows, families_of, leading, many, metrics_of, sample
from tests.plimsoll_operator.test_group_commit import MemoryLog, a_controller
from tests.stated_metrics import unlike

from plimsoll_core.cluster.records import RestartGranted
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_operator.controller.controller_stats import Backlog, Commit, ControllerStats
from plimsoll_operator.kube.api_calls import ApiCalls
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_operator.pki.expiry import ListenerCertificate
from plimsoll_operator.reconcile.work_queue import ReconcileQueue, Retry
from plimsoll_operator.reconcile_times import ReconcileCounters, ReconcileTimes
from plimsoll_operator.status import gauges
from plimsoll_operator.status.cluster_counts import CountedImage, count
from plimsoll_operator.status.metric_rows import ROWS
from plimsoll_operator.status.operator_metrics import ShownBackup
from plimsoll_operator.status.unclean_recovery_condition import UncleanElections
from plimsoll_process.loop_watch import LoopHolds

WHERE = {"namespace": "kafka", "cluster": "main"}
ROWS_OF_THREE = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def shows_led(controller: Any) -> Shows:
    shows = Shows(main={0, 1, 2})
    shows.led = [(("kafka", "main"), controller)]
    return shows


def test_operator_shows_what_it_states_and_nothing_else():
    metrics = metrics_of(shows_led(a_controller(MemoryLog())))
    metrics.watch_loop(LoopHolds())
    families = families_of(metrics)
    assert unlike(families, {row.name: row for row in ROWS}) == []
    assert {row.name for row in ROWS} == {family.name for family in families}


def test_labels_of_led_clusters_are_as_stated():
    contact = Contact(broker_epoch=BrokerEpoch(1), last_ms=9_000, applied_offset=MetadataOffset(1))
    image = with_topic(an_image(), ROWS_OF_THREE)
    metrics = metrics_of(shows_led(leading(image, b1=contact)))
    assert unlike(families_of(metrics), {row.name: row for row in ROWS}) == []
    assert sample(metrics, "plimsoll_heartbeat_age_seconds", **WHERE, broker="1") == 1
    assert sample(metrics, "plimsoll_controller_queued_decisions", **WHERE) == 3


def test_isr_sizes_are_written_once_for_each_image():
    image = with_topic(an_image(), ROWS_OF_THREE)
    shows = shows_led(leading(image))
    metrics = metrics_of(shows)
    text = metrics.isr_sizes()
    assert metrics.render().endswith(text)
    line = 'plimsoll_partition_isr_size{namespace="kafka",cluster="main",topic="orders",'
    assert f'{line}partition="2"}} 3.0\n'.encode() in text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gauges, "_written", lambda *_: b"anew")
        assert metrics.isr_sizes() == text
        shows.led = [(("kafka", "main"), leading(replay(image, isr_changed(2, (0,)))))]
        assert metrics.isr_sizes().endswith(b"anew")
    shows.led = [(("kafka", "main"), leading(replay(image, isr_changed(2, (0,)))))]
    metrics = metrics_of(shows)
    assert f'{line}partition="2"}} 1.0\n'.encode() in metrics.isr_sizes()


def test_isr_sizes_of_large_cluster_are_hidden():
    shows = shows_led(leading(with_topic(an_image(), ((0, 1, 2),) * 2_001)))
    metrics = metrics_of(shows)
    assert b"orders" not in metrics.isr_sizes()
    shows.led = [(("kafka", "main"), leading(with_topic(an_image(), ROWS_OF_THREE)))]
    assert metrics.isr_sizes().count(b"orders") == 3
    shows.led = []
    assert b"orders" not in metrics.isr_sizes()


def test_backup_shows_its_age_and_its_proof():
    shows = Shows(main={0})
    figures = ShownBackup(
        behind_ms=2_000, stored_ms=7_000, bytes=99, proven_ms=5_000, overdue_ms=3_000
    )
    shows.backed_up = [(("kafka", "main"), figures)]
    metrics = metrics_of(shows)
    values = {"behind_": 2, "stored_time_": 7, "proven_time_": 5, "drill_overdue_": 3}
    for name, seconds in values.items():
        assert sample(metrics, f"plimsoll_backup_{name}seconds", **WHERE) == seconds
    assert sample(metrics, "plimsoll_backup_bytes", **WHERE) == 99


def test_certificates_and_the_history_show_how_they_do():
    shows = shows_led(leading(an_image()))
    key = ("kafka", "main")
    shows.kept = [(key, SimpleNamespace(behind_ms=61_000, dropped_rows=7))]
    shows.ends = [(key, [ListenerCertificate("tls", "own", 1_800_000_000_000)])]
    metrics = metrics_of(shows)
    assert sample(metrics, "plimsoll_history_behind_seconds", **WHERE) == 61
    assert sample(metrics, "plimsoll_history_rows_dropped_total", **WHERE) == 7
    labels = {**WHERE, "listener": "tls", "kind": "own"}
    ends = sample(metrics, "plimsoll_certificate_expiry_time_seconds", **labels)
    assert ends == 1_800_000_000
    assert unlike(families_of(metrics), {row.name: row for row in ROWS}) == []


def test_unclean_elections_of_a_day_show_loss():
    shows = shows_led(leading(an_image()))
    known = UncleanElections(partitions=6, certain=2, last_ms=1_800_000_000_000)
    shows.unclean = [(("kafka", "main"), known)]
    metrics = metrics_of(shows)
    name = "plimsoll_unclean_recovery_partitions"
    assert sample(metrics, name, **WHERE, loss="certain") == 2
    assert sample(metrics, name, **WHERE, loss="possible") == 4
    assert sample(metrics, "plimsoll_unclean_recovery_time_seconds", **WHERE) == 1_800_000_000
    assert unlike(families_of(metrics), {row.name: row for row in ROWS}) == []


def test_partitions_are_counted_by_health_and_margin():
    image = with_topic(an_image(), ROWS_OF_THREE)
    image = replay(
        image,
        isr_changed(0, (0, 1)),
        isr_changed(1, (1,)),
        isr_changed(2, (), leader=None, leader_epoch_step=1),
    )
    counts = count(image.partitions.values())
    assert (counts.total, counts.offline, counts.under_min_isr) == (3, 1, 1)
    assert (counts.at_min_isr, counts.reduced_to_min_isr, counts.under_replicated) == (1, 1, 3)
    assert dict(counts.by_margin) == {"0": 1, "-1": 2}
    assert dict(counts.leaders) == {0: 1, 1: 1}


def test_topic_always_at_min_isr_is_not_reduced():
    image = with_topic(an_image(), ((0, 1), (1, 2)))
    counts = count(image.partitions.values())
    assert (counts.at_min_isr, counts.reduced_to_min_isr) == (2, 0)


def test_absent_member_is_fenced_unless_granted():
    image = with_topic(an_image(), ROWS_OF_THREE)
    away = image.brokers[BrokerId(2)]
    image = replace(image, brokers=image.brokers.set(away.id, replace(away, fenced=True)))
    name = "plimsoll_member_fenced"
    metrics = metrics_of(shows_led(leading(image)))
    assert sample(metrics, name, **WHERE, broker="2") == 1
    assert sample(metrics, name, **WHERE, broker="1") == 0
    grant = RestartGranted(
        cause="restart",
        broker_id=BrokerId(2),
        broker_epoch=BrokerEpoch(2),
        pod_uid="p",
        revision="r",
    )
    metrics = metrics_of(shows_led(leading(replay(image, grant))))
    assert sample(metrics, name, **WHERE, broker="2") == 0
    assert sample(metrics, "plimsoll_restart_grants", **WHERE) == 1


def test_backlog_metric_is_committed_minus_applied():
    stats = ControllerStats()
    for end, at_ms in ((10, 1_000), (20, 2_000), (30, 3_000)):
        stats.committed(10, 5, Commit(end, at_ms))
    assert stats.backlog(30, 4_000) == Backlog(0, 0)
    assert stats.backlog(10, 4_000) == Backlog(20, 2_000)
    assert stats.backlog(15, 2_500) == Backlog(5, 500), "what was committed later does not count"
    assert stats.backlog(10, 500) == Backlog(0, 0)


# --- objects -------------------------------------------------------------------------------------


def test_stalled_objects_and_violated_verifications_are_named():
    shows = Shows()
    body = a_cluster_body()
    stalled = {"type": "Stalled", "status": "True", "reason": "MassDeletion", "message": "m"}
    body["status"] = {"conditions": [{**stalled, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    shows.objects.clusters.put(body)
    shows.objects.verifications.put(a_verification("bad", "Violated"))
    shows.objects.verifications.put(a_verification("good", "Passed"))
    metrics = metrics_of(shows)
    labels = {"namespace": "kafka", "kind": "LogCluster", "name": "main", "reason": "MassDeletion"}
    assert sample(metrics, "plimsoll_stalled", **labels) == 1
    name = "plimsoll_verification_violated"
    assert sample(metrics, name, namespace="kafka", name="bad") == 1
    assert sample(metrics, name, namespace="kafka", name="good") is None
    verdicts = "plimsoll_verifications"
    assert sample(metrics, verdicts, namespace="kafka", verdict="Passed") == 1
    assert sample(metrics, verdicts, namespace="kafka", verdict="Inconclusive") == 0
    shows.objects.verifications.drop(("kafka", "bad"))
    assert sample(metrics, name, namespace="kafka", name="bad") is None


def test_unreadable_object_waits_for_a_person():
    shows = Shows()
    body = a_cluster_body()
    body["spec"] = {"brokers": {"count": "many"}}
    shows.objects.clusters.put(body)
    labels = {"namespace": "kafka", "kind": "LogCluster", "name": "main", "reason": "InvalidSpec"}
    assert sample(metrics_of(shows), "plimsoll_stalled", **labels) == 1


def test_last_window_shows_its_time_while_running() -> None:
    shows, name = Shows(), "plimsoll_verification_judged_time_seconds"
    state = {"since": "2026-01-01T00:00:00Z", "window": {"end": "2026-01-01T00:01:00Z"}}
    for one, phase, shown in (
        ("runs", "Running", state),
        ("begins", "Running", {"since": state["since"]}),
        ("ended", "Completed", state),
    ):
        body = a_verification(one, "Passed")
        body["status"] |= {"phase": phase, "continuous": shown}
        shows.objects.verifications.put(body)
    metrics = metrics_of(shows)
    first = sample(metrics, name, namespace="kafka", name="begins")
    assert first is not None
    assert sample(metrics, name, namespace="kafka", name="runs") == first + 60
    assert sample(metrics, name, namespace="kafka", name="ended") is None


def a_verification(name: str, verdict: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "kafka", "name": name, "uid": name, "generation": 1},
        "spec": {"clusterRef": {"name": "main"}, "topic": "orders", "produce": {"records": 1}},
        "status": {"verdict": verdict},
    }


# --- reconcilers and the API server ---------------------------------------------------------------


async def test_hanging_pass_and_unfinished_object_are_visible():
    now = [100.0]
    times = ReconcileTimes(ReconcileCounters(CollectorRegistry()), lambda: now[0])
    hangs, begun, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(key: str) -> None:
        if key == "hangs":
            begun.set()
            await hangs.wait()
        else:
            failed.set()
            raise Retry("not yet", after_ms=60_000)

    queue = ReconcileQueue[str](handle, times=times)
    task = asyncio.create_task(queue.run())
    queue.add("hangs")
    queue.add("fails")
    assert times.waiting == 2
    await begun.wait()
    await failed.wait()
    await asyncio.sleep(0)
    now[0] = 130.0
    assert (times.longest_running_s, times.longest_failing_s, times.waiting) == (30, 30, 0)
    hangs.set()
    queue.forget("fails")
    queue.add("fails")  # behind it: when this one has begun, that one has ended
    failed.clear()
    await failed.wait()
    assert times.longest_running_s == 0
    task.cancel()
    await asyncio.wait([task])


async def test_api_requests_are_counted_by_status_class():
    registry = CollectorRegistry()

    class Answers:
        def __init__(self) -> None:
            self.left = [200, 409, None]

        async def send(self, request: HttpRequest) -> HttpResponse:
            status = self.left.pop(0)
            if status is None:
                raise Unavailable(0, "lost")
            return HttpResponse(status=status, body=b"")

    transport = ApiCalls(registry).around(Answers())  # type: ignore[arg-type]
    request = HttpRequest(method="PUT", path="/x")
    await transport.send(request)
    await transport.send(request)
    with contextlib.suppress(Unavailable):
        await transport.send(request)
    name = "plimsoll_operator_api_requests_total"
    counted = {
        answer: registry.get_sample_value(name, {"method": "PUT", "answer": answer})
        for answer in ("2xx", "4xx", "5xx", "none")
    }
    assert counted == {"2xx": 1, "4xx": 1, "5xx": 0, "none": 1}


# --- a hundred thousand partitions ----------------------------------------------------------------


async def test_hundred_thousand_partitions_are_counted_in_slices():
    image, counted = many(100_000), CountedImage()
    turns: list[float] = []

    async def ticks() -> None:
        while True:
            turns.append(time.thread_time())
            await asyncio.sleep(0)

    ticking = asyncio.create_task(ticks())
    await counted.prepare(image)
    ticking.cancel()
    assert len(turns) >= 100_000 // 2_500
    assert counted.read(image).total == 100_000
    before = counted.read(image)
    await counted.prepare(image)
    assert counted.read(image) is before


async def test_scrape_after_commit_recounts_unless_prepared():
    old, new = many(3), many(4)
    counted = CountedImage()
    assert counted.read(old).total == 3
    assert counted.read(new).total == 4
    await counted.prepare(old)
    assert counted.read(new).total == 3, "as of the moment at which the scrape came"
    assert counted.read(new).total == 4
