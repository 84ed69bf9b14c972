"""Deletes a topic's data after its object is gone.  Called for TopicObjectGone.

Absence was proven before the request.  Even so the data stays for a grace period, measured in the
API server's time, in which the same object revives it; and when many objects vanish together
(`mass_deletions`), nothing is removed until a human has said that it is meant.  Both are records,
so that no restart forgets them.  A topic that another object declares is never removed: one of its
namespace takes it over, and one of another namespace once it names the topic's id.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import PendingDeletion, Topic
from plimsoll_core.cluster.records import TopicBound, TopicOrphaned, TopicRemoved
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.topics.mass_deletions import refuse_mass_deletion
from plimsoll_core.errors import Refusal
from plimsoll_core.messages.requests import Answer, Done, TopicObjectGone


def object_gone(turn: DecisionContext, request: TopicObjectGone) -> Answer | Refusal:
    """Asked again and again until the topic is gone; an object with another uid is another one."""
    topic = turn.image.topic_of(request.object)
    if topic is None:
        return Done()
    if request.heir is not None:
        turn.add(
            TopicBound(
                cause="handed over: its object is gone and another one declares it",
                topic_id=topic.id,
                object=request.heir,
                deletion_policy=topic.deletion_policy,
            )
        )
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
    if topic.pending_deletion is None and (request.grace_ms > 0 or request.claimed):
        return _begin_grace(turn, topic, request)
    pending = topic.pending_deletion
    if pending is not None and request.server_now_ms < pending.until_ms:
        return Done()
    if request.claimed:
        return Done()
    refusal = refuse_mass_deletion(turn.image, topic, request)
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
