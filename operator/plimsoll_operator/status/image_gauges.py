"""Gauges of what is committed, of every cluster that this process leads; read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from plimsoll_core.cluster.isr_shrinks import covered_as_broker
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.broker_figures import backlog_of
from plimsoll_operator.status.cluster_counts import brokers_status
from plimsoll_operator.status.copy_meter import copied
from plimsoll_operator.status.metric_rows import IMAGE_ROWS, TABLE
from plimsoll_operator.status.partition_counts import MARGINS, PartitionCounts


class ImageGauges:
    """One family for all clusters: `add` each, then `families`."""

    def __init__(self) -> None:
        self._families = {row.name: TABLE.gauges(row.name) for row in IMAGE_ROWS}

    def families(self) -> Iterator[Metric]:
        yield from self._families.values()

    def add(self, key: Key, controller: Controller, counts: PartitionCounts) -> None:
        """A cluster whose controller is active."""
        image = controller.image
        for name, value in _of_cluster(image, counts).items():
            self._family(name).add_metric(key, value)
        left = _left_bytes(controller)
        self._family("move_left_bytes").add_metric(key, left)
        for margin in MARGINS:
            labels = (*key, margin)
            self._family("partitions_by_margin").add_metric(labels, counts.by_margin[margin])
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
    """And who is on its way out."""
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
        "reassignments_running": sum(r.phase == "Running" for r in image.reassignments.values()),
        "rebalances_running": sum(r.phase == "Running" for r in image.rebalances.values()),
        "moves_paused": sum(move.paused for move in running),
        "brokers_desired": brokers.desired,
        "brokers_ready": brokers.ready,
        "brokers_fenced": brokers.fenced,
    }


def _left_bytes(controller: Controller) -> int:
    """Only partitions that move were told of."""
    image, copies = controller.image, controller.soft.copies
    left = 0
    for key, sizes in copies.items():
        partition = image.partitions.get(PartitionKey(*key))
        found = None if partition is None else copied(partition, sizes)
        if found is not None:
            left += max(0, found.total - found.copied)
    return left
