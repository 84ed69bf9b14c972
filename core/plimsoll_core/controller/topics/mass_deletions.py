"""Whether more Topic objects disappeared within an hour than may: then no data is removed.

Called before a topic's data is removed (`deletion_grace`), and by the operator as soon as objects
vanish, to say so.  Objects that vanish together are one event, whether removed already or still
pending; a human acknowledges them, up to a time.
"""

from __future__ import annotations

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import TopicObjectGone


def refuse_mass_deletion(
    image: ClusterImage, topic: Topic, request: TopicObjectGone
) -> Refusal | None:
    """Whether the data of `topic`, whose object is gone, may not be removed now."""
    if request.acknowledged:
        return None
    since = topic.pending_deletion.since_ms if topic.pending_deletion else request.server_now_ms
    together = _together(_pending_since_ms(image), since)
    if topic.pending_deletion is None:
        together += 1  # this one, without a grace
    count = together + _removed_lately(image, request.server_now_ms)
    if count <= request.removals_per_hour_max:
        return None
    return Refusal(
        reason=Reason.MassDeletion,
        message=(
            f"{count} Topic objects disappeared within an hour; more than"
            f" {request.removals_per_hour_max} look like an accident, so no data is removed."
            " Re-apply the objects, or acknowledge the deletion."
        ),
    )


def most_vanished(image: ClusterImage, after_ms: int, now_ms: int) -> int:
    """How many count together with one that vanished after that time; 0: none did."""
    pending = _pending_since_ms(image)
    waiting = {since for since in pending if since > after_ms}
    if not waiting:
        return 0
    return max(_together(pending, since) for since in waiting) + _removed_lately(image, now_ms)


def _pending_since_ms(image: ClusterImage) -> list[int]:
    """When the objects of the topics vanished whose data is still there."""
    return [t.pending_deletion.since_ms for t in image.topics.values() if t.pending_deletion]


def _together(pending: list[int], since_ms: int) -> int:
    return sum(abs(other - since_ms) < HOUR_MS for other in pending)


def _removed_lately(image: ClusterImage, now_ms: int) -> int:
    """How many topics' data were removed within the last hour."""
    return sum(at > now_ms - HOUR_MS for at in image.removals_ms)
