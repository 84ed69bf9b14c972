"""What one broker has and lacks, in numbers: read from the committed image and from its heartbeats.

Called for LogBrokers and for metrics; nothing is decided by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_operator.controller.controller_stats import Backlog
from plimsoll_operator.controller.controller_term import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBroker:
    """`lowest_margin`: the smallest |ISR| - min ISR of the partitions in whose ISR it is, None when
    it is in none.  `backlog` and what follows: None while it was not heard of in this term, or is
    of a release that does not say.  `disk_short`: it said that it refuses clients' records."""

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
    """As of now: goes through the partitions of this one broker."""
    image = controller.image
    leaders = in_sync = replicas = 0
    lowest: int | None = None
    for key in image.hosted.get(broker_id, ()):
        partition = image.partitions[key]
        replicas += 1
        leaders += partition.leader == broker_id
        if broker_id in partition.isr:
            in_sync += 1
            margin = len(partition.isr) - partition.effective_min_isr
            lowest = margin if lowest is None else min(lowest, margin)
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
    """What it had not carried out when it was last heard of; None while it was not.

    A broker that loads its logs carries nothing out yet: what it has applied counts until then.
    """
    contact = controller.soft.contacts.get(broker_id)
    if contact is None or contact.applied_offset is None:
        return None
    done: int = contact.applied_offset
    if contact.figures is not None and contact.figures.completed_offset is not None:
        done = min(done, contact.figures.completed_offset)
    return controller.stats.backlog(done, contact.last_ms)


def copies_of(controller: Controller) -> tuple[BrokerId, ...]:
    """The brokers whose volumes hold a copy of the metadata log, by their last heartbeats."""
    image = controller.image
    heard = controller.soft.contacts
    return tuple(b for b in sorted(image.brokers) if b in heard and _copied(image, controller, b))


def _copied(image: ClusterImage, controller: Controller, broker_id: BrokerId) -> bool:
    figures = controller.soft.contacts[broker_id].figures
    taking_part = image.brokers[broker_id].active
    return taking_part and figures is not None and figures.copied_offset is not None
