"""Deletes a topic's data after its object is gone.  Called for TopicObjectGone.

Absence was proven before the request.  Even so the data stays for a grace period, measured in the
API server's time, in which the same object revives it; and when many objects vanish together,
nothing is removed until a human has said that it is meant.  Both are records, so that no restart
forgets them.
"""

from __future__ import annotations

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import PendingDeletion, Topic
from plimsoll_core.cluster.records import TopicBound, TopicOrphaned, TopicRemoved
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done, TopicObjectGone


def object_gone(turn: DecisionContext, request: TopicObjectGone) -> Answer | Refusal:
    """Asked again and again until the topic is gone; an object with another uid is another one."""
    topic = turn.image.topic_of(request.object)
    if topic is None:
        return Done()
    if topic.deletion_policy == "Retain":
        turn.add(
            TopicBound(
                cause="detached: its object is gone and its data is to be retained",
                topic_id=topic.id,
                object=None,
                deletion_policy="Retain",
            )
        )
        return Done()
    if topic.pending_deletion is None and request.grace_ms > 0:
        return _begin_grace(turn, topic, request)
    pending = topic.pending_deletion
    if pending is not None and request.server_now_ms < pending.until_ms:
        return Done()
    refusal = _too_many(turn, topic, request)
    if refusal:
        return refusal
    turn.add(
        TopicRemoved(
            cause="its object is gone and the grace has passed",
            topic_id=topic.id,
            now_ms=request.server_now_ms,
        )
    )
    return Done()


def _begin_grace(turn: DecisionContext, topic: Topic, request: TopicObjectGone) -> Answer:
    now = request.server_now_ms
    turn.add(
        TopicOrphaned(
            cause="its object is gone",
            topic_id=topic.id,
            pending=PendingDeletion(since_ms=now, until_ms=now + request.grace_ms),
        )
    )
    return Done()


def _too_many(turn: DecisionContext, topic: Topic, request: TopicObjectGone) -> Refusal | None:
    """Objects that vanish together are one event, whether removed already or still pending."""
    if request.acknowledged:
        return None
    since = topic.pending_deletion.since_ms if topic.pending_deletion else request.server_now_ms
    together = [
        other
        for other in turn.image.topics.values()
        if other.id != topic.id
        and other.pending_deletion is not None
        and abs(other.pending_deletion.since_ms - since) < HOUR_MS
    ]
    removed = [at for at in turn.image.removals_ms if at > request.server_now_ms - HOUR_MS]
    count = 1 + len(together) + len(removed)
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
