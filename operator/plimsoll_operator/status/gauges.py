"""Gauges of committed images and of users' objects, read at each scrape.

The lines of `IsrSizes` are rendered once per image and kept as bytes, because the client library
would escape each label again at every scrape. `object_gauges` shows the objects' own statuses. The
number of series is bounded; beyond it only the first by name are shown.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from plimsoll_core.cluster.isr_shrinks import covered_as_broker
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.controller.security.security_share import BOUNDS, pool_of
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key, Objects, ObjectShelf
from plimsoll_operator.status.broker_status import backlog_of
from plimsoll_operator.status.cluster_counts import MARGINS, PartitionCounts, brokers_status
from plimsoll_operator.status.copy_meter import copied
from plimsoll_operator.status.metric_rows import IMAGE_ROWS, ISR_SIZE, TABLE

PARTITIONS_SHOWN_MAX = 2_000
_HEAD = f"# HELP {ISR_SIZE.name} {ISR_SIZE.text}\n# TYPE {ISR_SIZE.name} {ISR_SIZE.kind}\n".encode()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Metric lines of one cluster, and the parts of the image from which they were made, to
    recognise an unchanged image."""

    partitions: object
    topics: object
    text: bytes


class IsrSizes:
    """Formats the metric of each partition's ISR size, for the clusters that this operator leads.
    Lines of an unchanged image are reused."""

    def __init__(self) -> None:
        self._made: dict[Key, _Lines] = {}

    def text(self, led: Iterable[tuple[Key, ClusterImage]]) -> bytes:
        """Return the metric of all clusters in `led`, in the Prometheus text format. Drop the
        stored lines of all other clusters."""
        self._made = {key: self._lines(key, image) for key, image in led}
        return b"".join((_HEAD, *(lines.text for lines in self._made.values())))

    def _lines(self, key: Key, image: ClusterImage) -> _Lines:
        made = self._made.get(key)
        if made and made.partitions is image.partitions and made.topics is image.topics:
            return made
        return _Lines(image.partitions, image.topics, _written(key, image))


def _written(key: Key, image: ClusterImage) -> bytes:
    """Return the metric lines of one cluster, or b"" if it has more than `PARTITIONS_SHOWN_MAX`
    partitions. Names of Kubernetes and Kafka contain no character that needs escaping."""
    if len(image.partitions) > PARTITIONS_SHOWN_MAX:
        return b""
    namespace, cluster = key
    begun = {
        topic_id: f'{ISR_SIZE.name}{{namespace="{namespace}",cluster="{cluster}",'
        f'topic="{topic.name}",partition="'
        for topic_id, topic in image.topics.items()
    }
    return "".join(
        f'{begun[partition.topic_id]}{partition.index}"}} {len(partition.isr)}.0\n'
        for partition in image.partitions.values()
        if partition.topic_id in begun
    ).encode()


class ImageGauges:
    """Gauges computed from the committed images, for one scrape. Call `add` for each cluster, then
    `families`."""

    def __init__(self) -> None:
        self._families = {row.name: TABLE.gauges(row.name) for row in IMAGE_ROWS}

    def families(self) -> Iterator[Metric]:
        yield from self._families.values()

    def add(self, key: Key, controller: Controller, counts: PartitionCounts) -> None:
        """Add the gauges of a cluster with an active controller. `counts` are the counts of its
        partitions."""
        image = controller.image
        for name, value in _of_cluster(image, counts).items():
            self._family(name).add_metric(key, value)
        hours = controller.settings.hours
        self._family("paused").add_metric(key, float(hours.paused))
        self._family("maintenance_window_open").add_metric(key, float(hours.window_open))
        left = _left_bytes(controller)
        self._family("move_left_bytes").add_metric(key, left)
        for margin in MARGINS:
            labels = (*key, margin)
            self._family("partitions_by_margin").add_metric(labels, counts.by_margin[margin])
        for kind in BOUNDS:
            pool, labels = pool_of(image, kind), (*key, kind)
            self._family("security_entries").add_metric(labels, pool.used)
            largest = pool.largest()
            most = 0 if largest is None else pool.held(largest)
            self._family("security_entries_largest").add_metric(labels, most)
        for broker_id in members_of(image):
            self._add_broker(key, broker_id, controller, counts)

    def _family(self, name: str) -> GaugeMetricFamily:
        return self._families[f"plimsoll_{name}"]

    def _add_broker(
        self, key: Key, broker_id: BrokerId, controller: Controller, counts: PartitionCounts
    ) -> None:
        image, labels = controller.image, (*key, str(broker_id))
        broker = image.brokers.get(broker_id)
        away = broker is None or not broker.active
        expected = broker_id in image.newcomers or covered_as_broker(image, broker_id) is not None
        fenced = away and not expected
        self._family("member_fenced").add_metric(labels, float(fenced))
        self._family("member_leaderships").add_metric(labels, counts.leaders[broker_id])
        replicas = len(image.hosted.get(broker_id, ()))
        self._family("member_replicas").add_metric(labels, replicas)
        contact = controller.soft.contacts.get(broker_id)
        if contact is None:
            return
        silent_ms = max(0, controller.now_ms - contact.last_ms)
        self._family("heartbeat_age_seconds").add_metric(labels, silent_ms / 1000)
        if (backlog := backlog_of(controller, broker_id)) is not None:
            self._family("metadata_backlog_records").add_metric(labels, backlog.records)
            self._family("metadata_backlog_seconds").add_metric(labels, backlog.age_ms / 1000)


def members_of(image: ClusterImage) -> list[BrokerId]:
    """Return the ids of all brokers of a cluster: members, leaving brokers and other registered
    ones."""
    return sorted({*image.members, *image.leaving, *image.brokers})


def _of_cluster(image: ClusterImage, counts: PartitionCounts) -> dict[str, float]:
    brokers = brokers_status(image)
    moves = [*image.reassignments.values(), *image.rebalances.values()]
    running = [move for move in moves if move.phase == "Running"]
    return {
        "controller_epoch": image.controller_epoch,
        "metadata_offset": image.next_offset,
        "topics": len(image.topics),
        "topics_pending_deletion": sum(
            topic.pending_deletion is not None for topic in image.topics.values()
        ),
        "partitions": counts.total,
        "partitions_offline": counts.offline,
        "partitions_under_replicated": counts.under_replicated,
        "partitions_under_min_isr": counts.under_min_isr,
        "partitions_at_min_isr": counts.at_min_isr,
        "partitions_reduced_to_min_isr": counts.reduced_to_min_isr,
        "partitions_moving": counts.moving,
        "partitions_not_led_by_preferred": counts.not_led_by_preferred,
        "restart_grants": len(image.grants),
        "metadata_restored_timestamp_seconds": (
            0.0 if image.restored is None else image.restored.at_ms / 1000
        ),
        "hibernated": image.hibernated,
        "reassignments_running": sum(r.phase == "Running" for r in image.reassignments.values()),
        "rebalances_running": sum(r.phase == "Running" for r in image.rebalances.values()),
        "moves_paused": sum(move.paused for move in running),
        "brokers_desired": brokers.desired,
        "brokers_ready": brokers.ready,
        "brokers_fenced": brokers.fenced,
    }


def _left_bytes(controller: Controller) -> int:
    """Return the bytes that moves still have to copy. Brokers report sizes for moving partitions
    only."""
    image, copies = controller.image, controller.soft.copies
    left = 0
    for key, sizes in copies.items():
        partition = image.partitions.get(PartitionKey(*key))
        found = None if partition is None else copied(partition, sizes)
        if found is not None:
            left += max(0, found.total - found.copied)
    return left


NAMED_MAX = 100
VERDICTS = ("", "Passed", "Violated", "Inconclusive")


def object_gauges(objects: Objects) -> Iterator[Metric]:
    """Yield the gauges computed from the users' objects: stalled ones, those not ready, and
    verdicts."""
    shelves: dict[str, ObjectShelf[Any]] = {
        "LogCluster": objects.clusters,
        "Topic": objects.topics,
        "Reassignment": objects.reassignments,
        "Rebalance": objects.rebalances,
        "Verification": objects.verifications,
        "VerificationSchedule": objects.verification_schedules,
        "User": objects.users,
        "LogBroker": objects.log_brokers,
    }
    stalled: dict[tuple[str, ...], float] = {}
    not_ready: Counter[str] = Counter()
    for kind, shelf in shelves.items():
        for (namespace, name), conditions in shelf.all_conditions():
            for shown in conditions:
                if shown.type == "Stalled" and shown.status == "True":
                    stalled[namespace, kind, name, shown.reason] = 1
                elif shown.type == "Ready" and shown.status == "False":
                    not_ready[kind] += 1
        for namespace, name in shelf.unread_keys():
            stalled[namespace, kind, name, INVALID_SPEC] = 1
    yield TABLE.gauges("plimsoll_stalled", dict(islice(sorted(stalled.items()), NAMED_MAX)))
    counts = {(kind,): float(not_ready[kind]) for kind in shelves}
    yield TABLE.gauges("plimsoll_not_ready_objects", counts)
    yield from _verifications(objects.verifications)
    yield _judged(objects.verifications)
    yield _schedules(objects.verification_schedules)


def _judged(shelf: ObjectShelf[Any]) -> Metric:
    """Return the gauge of the end of each continuous Verification's newest window, or of its start
    before the first one, for the first `NAMED_MAX` that run, by name."""
    found: dict[tuple[str, ...], float] = {}
    for one in shelf:
        shown = shelf.choices(one.key)
        state = shown.get("continuous") or {}
        stamp = (state.get("window") or {}).get("end") or state.get("since")
        if shown.get("phase") == "Running" and isinstance(stamp, str):
            with contextlib.suppress(ValueError):
                found[one.key] = milliseconds(stamp) / 1000
    named = dict(islice(sorted(found.items()), NAMED_MAX))
    return TABLE.gauges("plimsoll_verification_judged_time_seconds", named)


def _schedules(shelf: ObjectShelf[Any]) -> Metric:
    """Return the gauge of each schedule's `periodsWithoutVerdict`, for the first `NAMED_MAX`
    schedules by name."""
    found = {
        one.key: float(shelf.choices(one.key).get("periodsWithoutVerdict") or 0) for one in shelf
    }
    named = dict(islice(sorted(found.items()), NAMED_MAX))
    return TABLE.gauges("plimsoll_verification_schedule_periods_without_verdict", named)


def _verifications(shelf: ObjectShelf[Any]) -> Iterator[Metric]:
    """Yield the number of Verifications by namespace and verdict, and the violated ones by name. A
    namespace with any Verification shows every verdict."""
    verdicts: dict[tuple[str, ...], float] = {}
    violated: dict[tuple[str, ...], float] = {}
    for found in shelf:
        namespace, name = found.key
        for verdict in VERDICTS:
            verdicts.setdefault((namespace, verdict), 0)
        verdict = shelf.verdict(found.key)
        if (namespace, verdict) in verdicts:
            verdicts[namespace, verdict] += 1
        if verdict == "Violated":
            violated[namespace, name] = 1
    yield TABLE.gauges("plimsoll_verifications", verdicts)
    named = dict(islice(sorted(violated.items()), NAMED_MAX))
    yield TABLE.gauges("plimsoll_verification_violated", named)
