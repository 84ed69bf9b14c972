"""Deletes a topic's data after its object is gone, unless too many vanished at once.

Called for TopicObjectGone.  The request comes only after the object's absence was proven.  The data
still stays for a grace period, measured in the API server's time, in which the same object revives
it.  If more objects disappeared within an hour than allowed, no data is removed until a user
acknowledges the deletions, up to a time; the operator shows that as soon as objects vanish.  So is
a single one after a restore of the metadata log, which may know more topics than objects.  Grace
and acknowledgement are records, so that they survive a restart.  A topic that another object
declares is never removed: an object of its namespace takes it over, an object of another namespace
once it names the topic's id.
"""

from __future__ import annotations

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import ClusterImage, PendingDeletion, Topic
from plimsoll_core.cluster.records import TopicBound, TopicOrphaned, TopicRemoved
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done, TopicObjectGone

LOST_WITH_STORAGE = (
    "The metadata log was restored, and these Topic objects are missing since: {}. The storage of "
    "the API server may have lost them, so their topics are kept with all records until you apply "
    "the objects again or acknowledge their deletion."
)


def refuse_mass_deletion(
    image: ClusterImage, topic: Topic, request: TopicObjectGone
) -> Refusal | None:
    """Return a refusal if more than `request.removals_per_hour_max` Topic objects vanished within
    an hour of this one or were removed in the last hour, or a restore of the metadata may explain
    its absence, so that the data of `topic` may not be removed now. Return None if the deletion is
    acknowledged, or none of this holds."""
    if request.acknowledged:
        return None
    since = topic.pending_deletion.since_ms if topic.pending_deletion else request.server_now_ms
    if image.restored is not None and image.restored.may_explain(since):
        return Refusal(reason=Reason.MassDeletion, message=LOST_WITH_STORAGE.format(topic.name))
    together = _together(_pending_since_ms(image), since)
    if topic.pending_deletion is None:
        together += 1  # this one, without a grace
    count = together + _removed_lately(image, request.server_now_ms)
    if count <= request.removals_per_hour_max:
        return None
    return Refusal(
        reason=Reason.MassDeletion,
        message=(
            f"{count} Topic objects disappeared within an hour. More than "
            f"{request.removals_per_hour_max} look like an accident, so no data is removed until "
            "you apply the objects again or acknowledge their deletion."
        ),
    )


def most_vanished(image: ClusterImage, after_ms: int, now_ms: int) -> int:
    """Return the number of vanished Topic objects that may count as one mass deletion.

    For each object that vanished after `after_ms`, count the objects that vanished within an hour
    before or after it and still have data. Return the greatest count plus the number of topics
    removed in the hour before `now_ms`, or 0 if no object vanished after `after_ms`.
    """
    pending = _pending_since_ms(image)
    waiting = {since for since in pending if since > after_ms}
    if not waiting:
        return 0
    return max(_together(pending, since) for since in waiting) + _removed_lately(image, now_ms)


def missing_since_restore(image: ClusterImage, after_ms: int) -> list[tuple[int, str]]:
    """Return (time in ms, topic's name) of each object that vanished after `after_ms`, and that the
    restore of the metadata log may explain."""
    if (row := image.restored) is None:
        return []
    waiting = ((t.pending_deletion, t.name) for t in image.topics.values())
    found = [(one.since_ms, name) for one, name in waiting if one and row.may_explain(one.since_ms)]
    return sorted(one for one in found if one[0] > after_ms)


def _pending_since_ms(image: ClusterImage) -> list[int]:
    """Return, for each topic that is to be deleted, the time in ms at which its object vanished."""
    return [t.pending_deletion.since_ms for t in image.topics.values() if t.pending_deletion]


def _together(pending: list[int], since_ms: int) -> int:
    return sum(abs(other - since_ms) < HOUR_MS for other in pending)


def _removed_lately(image: ClusterImage, now_ms: int) -> int:
    """Return the number of topics that were removed with their data in the hour before `now_ms`,
    because their objects were gone."""
    return sum(at > now_ms - HOUR_MS for at in image.removals_ms)


def object_gone(turn: DecisionContext, request: TopicObjectGone) -> Answer | Refusal:
    """Advance the deletion of the topic that the missing object declared: begin its grace period;
    after that remove the topic, unless another object claims it (`request.claimed`), or refuse a
    mass deletion. If `request.heir` is given, only bind the topic to that object; if its deletion
    policy is Retain, only detach it. It is called repeatedly until the topic is gone. Do nothing if
    no topic belongs to the object with this uid."""
    topic = turn.image.topic_of(request.object)
    if topic is None:
        return Done()
    if request.heir is not None:
        turn.add(
            TopicBound(
                cause="the Topic object is gone; another one that declares the topic takes it over",
                topic_id=topic.id,
                object=request.heir,
                deletion_policy=topic.deletion_policy,
            )
        )
        return Done()
    if topic.deletion_policy == "Retain":
        turn.add(
            TopicBound(
                cause="the Topic object is gone; the topic and its data are retained",
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
    hold = hour_hold(turn.settings.hours, VoluntaryWork.DELETE_TOPIC)
    refusal = refuse_mass_deletion(turn.image, topic, request) or (hold and hold.refusal)
    if refusal:
        return refusal
    turn.add(
        TopicRemoved(
            cause="the Topic object is gone and the grace period has ended",
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
