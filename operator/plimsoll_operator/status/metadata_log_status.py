"""What a LogCluster shows of its metadata log: how far it is, its size, its pace, its copies."""

from __future__ import annotations

from typing import Final

from plimsoll_core.phrasing import brokers_text, sentence_start
from plimsoll_operator.api.cluster_status import MetadataLogStatus
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.status.broker_figures import copies_of

DURABLE: Final = "MetadataDurable"
COPIES_ENOUGH = 3


def metadata_log_status(controller: Controller) -> MetadataLogStatus:
    """Objects and their size: where the log is made of objects."""
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
    """Whether brokers could tell what was committed, should the log itself be lost.  None: brokers
    that take part have not been heard of in this term, so nobody can say."""
    image = controller.image
    taking_part = [b for b in sorted(image.brokers) if image.brokers[b].active]
    if any(b not in controller.soft.contacts for b in taking_part):
        return None
    copies = copies_of(controller)
    where = f"{sentence_start(brokers_text(copies))} hold" + ("s" if len(copies) == 1 else "")
    text = f"{where} a copy of the metadata log." if copies else "No broker holds a copy."
    if len(copies) >= COPIES_ENOUGH:
        return condition(DURABLE, True, "ThreeCopies", text)
    if copies and set(copies) == set(image.members):
        return condition(DURABLE, True, "EveryBroker", text)
    return condition(DURABLE, False, "TooFewCopies", text)
