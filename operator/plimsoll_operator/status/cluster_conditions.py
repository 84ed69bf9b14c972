"""The conditions of a LogCluster: when it is Ready and Reconciling.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.phrasing import brokers_text, sentence_start
from plimsoll_operator.api.cluster_status import (
    BrokersStatus,
    LogClusterStatus,
    PartitionsStatus,
)
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.status.closed_listeners import (
    NOTHING_TOLD,
    Told,
    sentences,
    without_address,
)
from plimsoll_operator.status.partition_health import have

NO_WHYS: Mapping[str, str] = {}


def cluster_conditions(
    image: ClusterImage,
    status: LogClusterStatus,
    troubles: str = "",
    told: Told = NOTHING_TOLD,
    whys: Mapping[str, str] = NO_WHYS,
) -> tuple[Condition, Condition]:
    """Ready and Reconciling, by what the cluster is doing.  `troubles`: sentences about what keeps
    brokers away, for a condition that waits for brokers.  `told`: why they lack listeners;
    `whys`: why a listener has no address outside."""
    brokers, partitions = status.brokers, status.partitions
    assert brokers is not None
    assert partitions is not None
    why = f" {troubles}" if troubles else ""
    ready = _cluster_ready(image, brokers, partitions, why)
    reconciling = _reconciling(image, brokers, why)
    waits = (
        (sentences(image, told), "ListenerNotOpen", "OpeningListeners"),
        (without_address(image, whys), "ListenerWithoutAddress", "WaitingForAddresses"),
    )
    for text, reason, doing in waits:
        if text and ready.status == "True":
            ready = condition("Ready", False, reason, text)
        if text and reconciling.status != "True":
            reconciling = condition("Reconciling", True, doing, text)
    return ready, reconciling


def _reconciling(image: ClusterImage, brokers: BrokersStatus, why: str) -> Condition:
    going = sorted({*image.leaving} | (set(image.brokers) - set(image.members)))
    if image.newcomers or brokers.desired > len(image.members) > 0:
        verb = "joins" if len(image.newcomers) == 1 else "join"
        who = f"The spec asks for {brokers.desired} brokers"
        if image.newcomers:
            who = f"{sentence_start(brokers_text(image.newcomers))} {verb}"
        text = f"{who}: {brokers.ready} of {len(image.members)} brokers are ready."
        return condition("Reconciling", True, "AddingBrokers", text + why)
    if going and image.members:
        left = sum(len(image.hosted.get(b, ())) for b in going)
        verb, are = ("leaves", "it is") if len(going) == 1 else ("leave", "they are")
        what = f"{left} replicas remain" if left else f"{are} empty and being removed"
        text = f"{sentence_start(brokers_text(going))} {verb}: {what}."
        return condition("Reconciling", True, "RemovingBrokers", text)
    if len(image.members) > brokers.desired:
        text = f"The cluster has {len(image.members)} brokers, the spec asks for {brokers.desired}."
        return condition("Reconciling", True, "RemovingBrokers", text)
    if brokers.ready < brokers.desired:
        text = f"{brokers.ready} of {brokers.desired} brokers are ready."
        return condition("Reconciling", True, "WaitingForBrokers", text + why)
    return condition("Reconciling", False, "Done", "The cluster matches its spec.")


def _cluster_ready(
    image: ClusterImage, brokers: BrokersStatus, partitions: PartitionsStatus, why: str
) -> Condition:
    """Brokers that join a serving cluster do not make it less ready."""
    old = [b for b in image.members if b not in image.newcomers]
    missing = sum(b not in image.brokers for b in old) if old else brokers.desired
    if partitions.offline:
        text = f"{partitions.offline} of {partitions.total} partitions have no leader."
        if brokers.ready < brokers.desired:  # so for seconds after all of them were started
            text += f" {brokers.ready} of {brokers.desired} brokers are ready."
        return condition("Ready", False, "PartitionsOffline", text + why)
    if partitions.under_min_isr:
        text = f"{partitions.under_min_isr} of {partitions.total} partitions are below min ISR."
        return condition("Ready", False, "UnderMinISR", text + why)
    if brokers.ready == 0 or missing > 0:
        text = f"{brokers.ready} of {brokers.desired} brokers have joined so far."
        return condition("Ready", False, "WaitingForBrokers", text + why)
    text = f"{have(partitions.total)} a leader and at least min ISR."
    return condition("Ready", True, "Serving", text)
