"""Computes the status of a LogBroker, and the figures of each broker. Pure.

Figures come from the committed image and from the broker's heartbeats, for LogBrokers and for
metrics. No decision depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import Broker, ClusterImage
from plimsoll_core.controller.kernel.decision import HoldBack
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logbroker import (
    BacklogStatus,
    BrokerState,
    DiskStatus,
    FencedStatus,
    LogBrokerStatus,
)
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.controller.controller_stats import Backlog
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.status.cluster_counts import margin


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBroker:
    """Figures of one broker, for its LogBroker and for metrics.

    `leaders`, `replicas` and `in_sync` are the numbers of partitions that it leads, hosts, and of
    which it is in the ISR. `lowest_margin` is the smallest |ISR| - min ISR of the partitions with
    the broker in their ISR, None if there are none. `backlog` and the fields after it are None,
    empty or False until the broker's first heartbeat of this term, and for a release that does not
    report them. `disk_free` and `disk_bytes` (the disk's size) are in bytes. `disk_short` is True
    if the broker reports that it refuses clients' records for lack of disk space.
    """

    leaders: int
    replicas: int
    in_sync: int
    lowest_margin: int | None
    backlog: Backlog | None
    release: str
    disk_free: int | None
    disk_bytes: int | None
    disk_short: bool


def view_of(controller: Controller, broker_id: BrokerId) -> ShownBroker:
    """Return the current figures of one broker. Visits each partition that the broker hosts."""
    image = controller.image
    leaders = in_sync = replicas = 0
    lowest: int | None = None
    for key in image.hosted.get(broker_id, ()):
        partition = image.partitions[key]
        replicas += 1
        leaders += partition.leader == broker_id
        if broker_id in partition.isr:
            in_sync += 1
            left = margin(partition)
            lowest = left if lowest is None else min(lowest, left)
    contact = controller.soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return ShownBroker(
        leaders=leaders,
        replicas=replicas,
        in_sync=in_sync,
        lowest_margin=lowest,
        backlog=backlog_of(controller, broker_id),
        release="" if contact is None else contact.release,
        disk_free=None if figures is None else figures.disk_free_bytes,
        disk_bytes=None if figures is None else figures.disk_bytes,
        disk_short=figures is not None and figures.disk_short,
    )


def backlog_of(controller: Controller, broker_id: BrokerId) -> Backlog | None:
    """Return the committed metadata that the broker had not carried out at its last heartbeat.
    Return None if no heartbeat has arrived in this term. A broker that is still loading its logs
    has carried out nothing; for it, return the metadata that it has not applied."""
    contact = controller.soft.contacts.get(broker_id)
    if contact is None or contact.applied_offset is None:
        return None
    done: int = contact.applied_offset
    if contact.figures is not None and contact.figures.completed_offset is not None:
        done = min(done, contact.figures.completed_offset)
    return controller.stats.backlog(done, contact.last_ms)


def copies_of(controller: Controller) -> tuple[BrokerId, ...]:
    """Return the active brokers, in order of their ids, that hold a copy of the metadata log on
    disk, as their last heartbeats of this term report."""
    image = controller.image
    heard = controller.soft.contacts
    return tuple(b for b in sorted(image.brokers) if b in heard and _copied(image, controller, b))


def _copied(image: ClusterImage, controller: Controller, broker_id: BrokerId) -> bool:
    figures = controller.soft.contacts[broker_id].figures
    taking_part = image.brokers[broker_id].active
    return taking_part and figures is not None and figures.copied_offset is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSeen:
    """Facts about a broker that are not in the committed image, for its LogBroker's status.

    `fenced`: since when and why it is fenced, None if that is unknown. `pool`: the name of its
    pool, None without pools. `node`: the node of its pod. `trouble`: why the pod does not start,
    empty if unknown. `held_back`: why the broker may not join ISRs yet although it runs, None if it
    may. `waits`: a sentence on voluntary work about it that waits, empty if none does.
    """

    view: ShownBroker
    fenced: FencedStatus | None = None
    pool: str | None = None
    node: str | None = None
    trouble: str = ""
    held_back: HoldBack | None = None
    waits: str = ""


def broker_status(image: ClusterImage, broker_id: BrokerId, seen: BrokerSeen) -> LogBrokerStatus:
    """Return the status of the LogBroker of `broker_id`, a member or another registered broker."""
    view = seen.view
    broker, grant = image.brokers.get(broker_id), image.grants.get(broker_id)
    state = state_of(broker)
    backlog = view.backlog
    return LogBrokerStatus(
        state=state,
        fenced=seen.fenced if state == "Fenced" else None,
        leaving=True if broker_id in image.leaving else None,
        restarting=None if grant is None else grant.revision,
        pool=seen.pool,
        rack=None if broker is None else broker.rack,
        node=seen.node,
        revision=(broker.revision or None) if broker is not None else None,
        version=view.release or None,
        disk=_disk(view),
        leaders=view.leaders,
        replicas=view.replicas,
        in_sync=view.in_sync,
        lowest_isr_margin=view.lowest_margin,
        backlog=None
        if backlog is None
        else BacklogStatus(records=backlog.records, seconds=backlog.age_ms // 1000),
        conditions=(_ready(image, broker_id, state, seen), *_disk_pressure(broker_id, view)),
    )


def state_of(broker: Broker | None) -> BrokerState:
    """Return the state of a broker as defined in docs/protocol.md §3.2, or NotRegistered if
    `broker` is None."""
    if broker is None:
        return "NotRegistered"
    if broker.fenced:
        return "Fenced"
    return "ShuttingDown" if broker.shutting_down else "Active"


def _disk(view: ShownBroker) -> DiskStatus | None:
    if view.disk_free is None or view.disk_bytes is None:
        return None
    return DiskStatus(used=binary(view.disk_bytes - view.disk_free), free=binary(view.disk_free))


def _disk_pressure(broker_id: BrokerId, view: ShownBroker) -> tuple[Condition, ...]:
    """Return the condition DiskPressure in a tuple, if the broker refuses clients' records or has
    used the share of its disk that plans keep free. Return () otherwise, and while the disk's size
    is unknown."""
    if view.disk_free is None or not view.disk_bytes:
        return ()
    room = DiskRoom(free_bytes=view.disk_free, all_bytes=view.disk_bytes)
    if view.disk_short:
        text = (
            f"The disk of broker {broker_id} is short of space: {bytes_text(view.disk_free)} of"
            f" {bytes_text(view.disk_bytes)} are free. It refuses clients' records, first of the"
            " users whose topics take most of it, and hands over what it leads; delete records or"
            " topics, or enlarge storage.size."
        )
        return (condition("DiskPressure", True, "RefusesRecords", text),)
    if room.room_bytes >= 0:
        return ()
    text = (
        f"The disk of broker {broker_id} is nearly full: {room.sentence}. It gets no more "
        "replicas; increase storage.size, add brokers, or delete records."
    )
    return (condition("DiskPressure", True, "NearlyFull", text),)


def _joins_later(broker_id: BrokerId, held: HoldBack) -> str:
    return (
        f"Broker {broker_id} was fenced {held.times} times within ten minutes, so for "
        f"{held.wait_ms // 1000} s after the last time it joins only ISRs that would otherwise "
        "stay below min ISR. If this repeats, see the broker's log and its network."
    )


def _ready(
    image: ClusterImage, broker_id: BrokerId, state: BrokerState, seen: BrokerSeen
) -> Condition:
    if state == "Active":
        full = "".join(f" {one.message}" for one in _disk_pressure(broker_id, seen.view))
        later = "" if seen.held_back is None else f" {_joins_later(broker_id, seen.held_back)}"
        text = f"Broker {broker_id} is ready.{later}{full}"
        return condition("Ready", True, "Serving", f"{text} {seen.waits}".rstrip())
    more = f" {seen.trouble.rstrip('.')}." if seen.trouble else ""
    if state == "NotRegistered":
        text = f"Broker {broker_id} has not registered yet.{more}"
        return condition("Ready", False, "NotRegistered", text)
    if broker_id in image.grants:
        text = f"Broker {broker_id} is being restarted.{more}"
        return condition("Ready", False, "Restarting", text)
    if state == "ShuttingDown":
        text = f"Broker {broker_id} is shutting down and hands over its leaderships."
        return condition("Ready", False, "ShuttingDown", text)
    if (held := seen.held_back) is not None:
        text = (
            f"Broker {broker_id} was fenced {held.times} times within ten minutes, so it stays "
            f"fenced until {held.wait_ms // 1000} s after the last time, or until a partition "
            "needs it as leader or to reach min ISR. If this repeats, see the broker's log and its "
            f"network.{more}"
        )
        return condition("Ready", False, "HeldBack", text)
    why = f": {seen.fenced.why.rstrip('.')}" if seen.fenced is not None else ""
    text = f"Broker {broker_id} is not ready{why}.{more}"
    return condition("Ready", False, "Fenced", text)
