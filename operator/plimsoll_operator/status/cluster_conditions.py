"""Conditions of a LogCluster: Ready, Reconciling, MetadataDurable, open listeners. Pure.

The committed endpoints show which listeners are open. Brokers report in heartbeats why a listener
is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from plimsoll_core.cluster.listener_peers import for_clients
from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import NAMED_AT_MOST, brokers_text, sentence_start
from plimsoll_operator.api.cluster_status import (
    BrokersStatus,
    LogClusterStatus,
    MetadataLogStatus,
    PartitionsStatus,
)
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.status.broker_status import copies_of
from plimsoll_operator.status.cluster_counts import have, margin

WHY_MAX = 3
"""Maximum number of brokers for which a condition quotes, for each listener, why the broker has not
opened it."""

Told = Mapping[BrokerId, Mapping[str, str]]
"""Reasons why listeners are closed, as brokers report them, by broker id and listener name."""

NOTHING_TOLD: Told = {}


def told_by(contacts: Mapping[BrokerId, Contact]) -> Told:
    """Return, from the brokers' last heartbeats, the reason why each closed listener is closed, by
    broker id and listener name. A broker without figures is left out."""
    return {
        broker_id: contact.figures.closed_listeners
        for broker_id, contact in contacts.items()
        if contact.figures is not None
    }


def closed(image: ClusterImage) -> dict[str, list[BrokerId]]:
    """Return, for each listener that some active brokers have not opened, these brokers, by
    listener name. A broker for which an external listener has no address yet is left out;
    `without_address` reports it."""
    active = [broker for _, broker in sorted(image.brokers.items()) if broker.active]
    found = {
        one.name: [
            broker.id
            for broker in active
            if for_clients(broker, one) is None
            and not (one.external and one.advertised_of(broker.id) is None)
        ]
        for one in image.listeners
    }
    return {name: brokers for name, brokers in found.items() if brokers}


def without_address(image: ClusterImage, whys: Mapping[str, str]) -> str:
    """Return a sentence for each external listener that lacks an address for an active broker, or a
    bootstrap address. Return "" if there is none. `whys`: the known reasons for missing addresses,
    by listener name."""
    said = []
    for one in image.listeners:
        if not one.external:
            continue
        active = [broker for _, broker in sorted(image.brokers.items()) if broker.active]
        lacking = [b.id for b in active if one.advertised_of(b.id) is None]
        if active and not (lacking or one.bootstrap_servers):
            said.append(f"Listener {one.name} has no external bootstrap address yet.")
        if lacking:
            why = f": {whys[one.name]}" if whys.get(one.name) else ""
            who = brokers_text(lacking)
            said.append(f"Listener {one.name} has no external address for {who} yet{why}.")
    return " ".join(said)


def sentences(image: ClusterImage, told: Told) -> str:
    """Return a sentence for each listener that an active broker has not opened, with the broker's
    reason from `told`. Return "" if all listeners are open."""
    return " ".join(
        f"Listener {name} is not open on {brokers_text(brokers)}{_why(name, brokers, told)}."
        for name, brokers in closed(image).items()
    )


def _why(name: str, brokers: list[BrokerId], told: Told) -> str:
    known = [(one, told[one][name]) for one in brokers if name in told.get(one, {})]
    if not known:
        return ""
    return f" ({'; '.join(f'broker {one}: {why}' for one, why in known[:WHY_MAX])})"


DURABLE: Final = "MetadataDurable"
COPIES_ENOUGH = 3


def metadata_log_status(controller: Controller) -> MetadataLogStatus:
    """Return the part of a LogCluster's status about the metadata log. The number of its objects
    and their size are given only if the log is stored in Kubernetes objects."""
    image, usage = controller.image, controller.snapshotter.usage
    return MetadataLogStatus(
        offset=image.next_offset,
        controller_epoch=image.controller_epoch,
        objects=None if usage is None else usage.slots_used,
        objects_max=None if usage is None else usage.slots,
        size=None if usage is None else binary(usage.batch_bytes + usage.snapshot_bytes),
        commit_p99_milliseconds=controller.stats.commit_p99_ms,
        copies=copies_of(controller),
    )


def metadata_durable(controller: Controller) -> Condition | None:
    """Return the condition MetadataDurable: True if `COPIES_ENOUGH` brokers, or all members, hold a
    copy of the metadata log.

    Return None until every active broker has sent a heartbeat in this term.
    """
    image = controller.image
    taking_part = [b for b in sorted(image.brokers) if image.brokers[b].active]
    if any(b not in controller.soft.contacts for b in taking_part):
        return None
    copies = copies_of(controller)
    where = f"{sentence_start(brokers_text(copies))} hold" + ("s" if len(copies) == 1 else "")
    text = (
        f"{where} a full copy of the metadata log, from which it can be restored."
        if copies
        else (
            "No broker has a full copy of the metadata log: if its objects in Kubernetes are "
            "lost, the cluster cannot be restored from brokers. Brokers write their copies "
            "by themselves; if this lasts, look for disk errors in their logs."
        )
    )
    if len(copies) >= COPIES_ENOUGH:
        return condition(DURABLE, True, "ThreeCopies", text)
    if copies and set(copies) == set(image.members):
        return condition(DURABLE, True, "EveryBroker", text)
    return condition(DURABLE, False, "TooFewCopies", text)


NO_WHYS: Mapping[str, str] = {}


def cluster_conditions(
    image: ClusterImage,
    status: LogClusterStatus,
    troubles: str = "",
    told: Told = NOTHING_TOLD,
    whys: Mapping[str, str] = NO_WHYS,
) -> tuple[Condition, Condition]:
    """Return the conditions Ready and Reconciling of a LogCluster, from the image and the counts in
    `status`. A listener that is not open, or lacks an address, makes Ready False and Reconciling
    True. `troubles`: sentences about brokers' pods that do not start. `told`: why brokers have not
    opened listeners. `whys`: why external listeners lack an address, by listener name."""
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
        text = (
            f"The cluster has {len(image.members)} brokers, and the spec asks for "
            f"{brokers.desired}; the operator removes the others by itself. If it has to wait, "
            "status.blocked shows why."
        )
        return condition("Reconciling", True, "RemovingBrokers", text)
    if brokers.ready < brokers.desired:
        text = f"{brokers.ready} of {brokers.desired} brokers are ready."
        return condition("Reconciling", True, "WaitingForBrokers", text + why)
    return condition("Reconciling", False, "Done", "The cluster matches its spec.")


def _cluster_ready(
    image: ClusterImage, brokers: BrokersStatus, partitions: PartitionsStatus, why: str
) -> Condition:
    """Return the condition Ready, without regard to listeners. Brokers that join a cluster which
    serves already do not make it False. `why`: text appended to the message."""
    old = [b for b in image.members if b not in image.newcomers]
    missing = sum(b not in image.brokers for b in old) if old else brokers.desired
    if partitions.offline:
        few = _few(image, lambda p: p.leader is None)
        text = f"{partitions.offline} of {partitions.total} partitions have no leader{few}."
        if brokers.ready < brokers.desired:  # true for seconds after a start of all brokers
            text += f" {brokers.ready} of {brokers.desired} brokers are ready."
        return condition("Ready", False, "PartitionsOffline", text + why)
    if partitions.under_min_isr:
        few = _few(image, lambda p: p.leader is not None and margin(p) < 0)
        text = (
            f"{partitions.under_min_isr} of {partitions.total} partitions are below min ISR{few}."
        )
        return condition("Ready", False, "UnderMinISR", text + why)
    if brokers.ready == 0 or missing > 0:
        text = f"{brokers.ready} of {brokers.desired} brokers have joined so far."
        return condition("Ready", False, "WaitingForBrokers", text + why)
    text = f"{have(partitions.total)} a leader and at least min ISR."
    return condition("Ready", True, "Serving", text)


def _few(image: ClusterImage, concerns: Callable[[Partition], bool]) -> str:
    """Return the names of a few of the partitions, the first ones found, after their number."""
    found = islice(filter(concerns, image.partitions.values()), NAMED_AT_MOST)
    names = sorted(f"{image.topics[p.topic_id].name}-{p.index}" for p in found)
    return f", such as {', '.join(names)}" if names else ""
