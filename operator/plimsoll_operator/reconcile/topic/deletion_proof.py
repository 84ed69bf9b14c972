"""Proves that the object of a committed topic was deleted, and reports that to the controller,
which deletes the topic after a grace period.

Absence is proven only if a read of the object itself answers 404 and a complete fresh list made
after it lacks the object, while its LogCluster (the same object) and its namespace exist and are
not being deleted, and the Topic CRD is the one under which the object was known. So nothing is
deleted because a CRD was removed, a list covered too few namespaces, or a namespace is being
deleted. An object recreated under the same name keeps the topic that it declares. If it declares
another topic, it proves that the earlier object is deleted.

A topic that a live object of the list declares is never removed. An object in the same namespace as
the deleted one takes the topic over; one in another namespace does so once its annotation names the
topic's id. An object that may not declare topics of that name is ignored. An object with an
unreadable spec counts if its cluster and name can be read.

A mass deletion is reported as soon as it happens, with the way to acknowledge it. The controller
counts the objects and removes no data of them (`topic_deletion` of the core). The same holds for
each object that is missing since the metadata log was restored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import ClusterImage, Topic, TopicObject
from plimsoll_core.controller.topics.topic_deletion import (
    LOST_WITH_STORAGE,
    missing_since_restore,
    most_vanished,
)
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Refused, TopicObjectGone
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.acknowledgement import acknowledged_until_ms, way_out
from plimsoll_operator.api.cluster_ids import from_kafka_id
from plimsoll_operator.api.cluster_topics import (
    GRACE_SECONDS_DEFAULT,
    REMOVALS_PER_HOUR_DEFAULT,
    TopicDeletion,
    Topics,
)
from plimsoll_operator.api.labels import ADOPT, TOPICS_CRD
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import ClusterRef, ObjectMeta
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import Object, list_watched
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared import object_absence
from plimsoll_operator.reconcile.shared.object_absence import namespace_stands
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.topic.topic_declaration import namespace_labels, namespace_refusal
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence

logger = logging.getLogger("plimsoll.deletion_proof")

CRD_NAME = "topics.plimsoll.dev"
LOOK_AGAIN_MS_MAX = 30_000
NAMES_MAX = 5


async def reconcile(term: Term, _: Key) -> PassResult:
    """Check each committed topic with an object that the watches no longer see, and report proven
    absences to the controller."""
    with PassResult() as result:
        await _reconcile(term, result)
    return result


async def _reconcile(term: Term, result: PassResult) -> None:
    if "topics" in term.missing:
        return  # the spec states topics' deletion, but is unreadable
    suspects = [t for t in term.image.topics.values() if t.object and not _is_seen(term, t)]
    if not suspects:
        _no_mass_deletion(term, result)
    try:
        if suspects:
            await _examine(term, result, suspects)
        else:
            await object_absence.note(term, CRD_NAME, TOPICS_CRD)
    except ApiError as error:
        text = (
            "the operator cannot confirm that missing Topic objects are gone, so it keeps their "
            f"topics; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error


async def _examine(term: Term, result: PassResult, suspects: list[Topic]) -> None:
    if not await _cluster_stands(term):
        return
    since = await object_absence.counts_since(term, CRD_NAME, TOPICS_CRD)
    if since is None:
        logger.warning(
            "the Topic CRD is being deleted: the operator keeps topics even if their Topic objects "
            "are "
            "gone; to manage these topics again, install the CRDs and apply the Topic objects"
        )
        return
    absent = await _absent(term, suspects, since)
    listed = await list_watched(term.kube, TOPICS, term.options.namespaces)
    if listed.server_ms is not None:
        refusals: list[str] = []
        found = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in listed.items}
        for topic in absent:
            holder = topic.object
            assert holder is not None
            if _is_due(topic, listed.server_ms) and not _stands_for(
                term, found.get((holder.namespace, holder.name)), topic
            ):
                claims = await claims_on(term, topic, listed.items)
                refusals += await _report(term, result, topic, listed.server_ms, claims)
        _say(term, result, refusals, listed.server_ms)
    _look_again(term, result)


async def _absent(term: Term, suspects: list[Topic], since: str) -> list[Topic]:
    """Return those of `suspects` for which a report is due and a read finds no object, in
    namespaces that exist. `since` is the result of `counts_since`."""
    now_ms = term.server_ms()
    due = [topic for topic in suspects if _is_due(topic, now_ms)]
    found = []
    for namespace in sorted({t.object.namespace for t in due if t.object}):
        if not await namespace_stands(term, namespace):
            logger.info(
                "namespace %s is being deleted or is gone: the operator keeps the topics of its "
                "Topic objects; delete these topics with a Kafka client if you do not need them",
                namespace,
            )
            continue
        for topic in due:
            holder = topic.object
            if holder is None or holder.namespace != namespace:
                continue
            if await _is_proven(term, topic, holder, since):
                found.append(topic)
    return found


def _is_due(topic: Topic, now_ms: int) -> bool:
    """Return True if the controller needs a proof of absence now: before the grace period begins,
    and at its end. In between no proof is made, since each costs a read."""
    return topic.pending_deletion is None or now_ms >= topic.pending_deletion.until_ms


async def _is_proven(term: Term, topic: Topic, holder: TopicObject, since: str) -> bool:
    """Return True if the topic's object `holder` was created under the present CRD, so that it was
    not deleted with an earlier CRD, and a read of the API server does not find it. `since`: the
    result of `counts_since`."""
    if term.seen_uids.get(holder.uid, "") < since:
        logger.warning(
            "topic %s and its data are kept although its Topic object is gone, because the Topic "
            "CRD was deleted and created again; apply the Topic object again to manage the topic "
            "by it",
            topic.name,
        )
        return False
    return await _is_absent(term, topic, holder)


async def _report(
    term: Term, result: PassResult, topic: Topic, server_ms: int, claims: TopicClaims
) -> list[str]:
    """Report the absence of the topic's object to the controller. Return the controller's refusal
    for a mass deletion in a list of one, as a sentence that says how to acknowledge it. Return []
    otherwise."""
    assert topic.object is not None
    cluster = term.cluster
    if cluster is None:
        return []
    grace_s, per_hour = _limits(cluster)
    answer = await term.ask(
        TopicObjectGone(
            object=topic.object,
            server_now_ms=server_ms,
            grace_ms=1000 * grace_s,
            removals_per_hour_max=per_hour,
            acknowledged=is_acknowledged(topic, cluster, server_ms),
            heir=claims.heir,
            claimed=claims.any,
        )
    )
    result.mark_cluster()
    if (heir := claims.heir) is not None:
        result.add(Work(Task.TOPIC, (heir.namespace, heir.name)))
    if isinstance(answer, Refused) and answer.known_reason is Reason.MassDeletion:
        return [f"{answer.message} {way_out(cluster, server_ms)}"]
    return []


def _limits(cluster: LogCluster) -> tuple[int, int]:
    """Return (grace period in seconds, maximum number of removals within an hour) of the
    LogCluster's spec."""
    deletion = (cluster.spec.topics or Topics()).deletion or TopicDeletion()
    grace_s, per_hour = deletion.grace_seconds, deletion.max_per_hour
    return (
        GRACE_SECONDS_DEFAULT if grace_s is None else grace_s,
        REMOVALS_PER_HOUR_DEFAULT if per_hour is None else per_hour,
    )


def _say(term: Term, result: PassResult, refusals: list[str], server_ms: int) -> None:
    """Set the stall cause about a mass deletion as soon as one happens, not at the end of the grace
    period. Clear it if there is none."""
    cluster = term.cluster
    if cluster is None:
        return
    _, most = _limits(cluster)
    until_ms = acknowledged_until_ms(cluster)
    mass = mass_deletion(term.image, most, until_ms, server_ms)
    lost = missing_since_restore(term.image, until_ms)
    if mass:
        text = sentence(mass, cluster, most)
    else:
        text = _lost_text(lost, cluster) if lost else next(iter(refusals), "")
    if not text:
        _no_mass_deletion(term, result)
        return
    reason = Reason.MassDeletion.name
    newest_ms = mass.newest_ms if mass else lost[-1][0] if lost else server_ms
    key = f"mass-deletion-{newest_ms}"
    event = Occurrence(key=key, reason=reason, message=text[:LENGTH_MAX], warning=True)
    result.stall(StallSource.ABSENT_TOPICS, Cause(reason=reason, message=text), event)


def _no_mass_deletion(term: Term, result: PassResult) -> None:
    result.unstall(StallSource.ABSENT_TOPICS)


def _look_again(term: Term, result: PassResult) -> None:
    """Queue another pass if a topic is pending deletion: after the grace period, at most after
    `LOOK_AGAIN_MS_MAX`."""
    if any(t.pending_deletion for t in term.image.topics.values()):
        deletion = (
            term.cluster.spec.topics.deletion if term.cluster and term.cluster.spec.topics else None
        )
        grace_s = deletion.grace_seconds if deletion else None
        wait_ms = LOOK_AGAIN_MS_MAX if grace_s is None else min(LOOK_AGAIN_MS_MAX, 1000 * grace_s)
        result.add_later(Work(Task.ABSENT_TOPICS, term.key), max(wait_ms, 1_000))


def _is_seen(term: Term, topic: Topic) -> bool:
    holder = topic.object
    assert holder is not None
    found = term.objects.topics.get((holder.namespace, holder.name))
    if found is None or found.metadata.uid == holder.uid:
        return found is not None
    return (found.cluster_key, found.topic_name) == (term.key, topic.name)


def _stands_for(term: Term, found: Object | None, topic: Topic) -> bool:
    """Return True if `found`, the object under the name of the topic's object, keeps the topic: it
    is that object, or another one that declares the topic too."""
    if found is None:
        return False
    if topic.object is None or found["metadata"]["uid"] == topic.object.uid:
        return True
    return declares(term, found, topic.name)


async def _cluster_stands(term: Term) -> bool:
    """Return True if the LogCluster of this term exists with the same uid, and is not being
    deleted."""
    cluster = term.cluster
    if cluster is None:
        return False
    try:
        found = await term.kube.get(LOG_CLUSTERS, *term.key)
    except NotFound:
        return False
    meta = found["metadata"]
    return meta["uid"] == cluster.metadata.uid and not meta.get("deletionTimestamp")


async def _is_absent(term: Term, topic: Topic, holder: TopicObject) -> bool:
    try:
        found = await term.kube.get(TOPICS, holder.namespace, holder.name)
    except NotFound:
        return True
    return not _stands_for(term, found, topic)


# --- other objects that declare the topic --------------------------------------------------------


def declares(term: Term, found: Object, topic_name: str) -> bool:
    """Return True if the object names this cluster and `topic_name`. Only these fields of its spec
    are read."""
    meta, spec = found["metadata"], found.get("spec") or {}
    ref = spec.get("clusterRef") or {}
    cluster = (ref.get("namespace") or meta["namespace"], ref.get("name"))
    return (cluster, spec.get("topicName") or meta["name"]) == (term.key, topic_name)


class TopicClaims(NamedTuple):
    """Objects that declare a topic after its own object was deleted. `heir`: the oldest object that
    takes the topic over, None if there is none. `any`: True if any object declares the topic."""

    heir: TopicObject | None
    any: bool


async def claims_on(term: Term, topic: Topic, objects: Iterable[Object]) -> TopicClaims:
    """Return which of `objects` declare the topic. Objects that are being deleted, or that may not
    declare topics here, are left out."""
    cluster = term.cluster
    if cluster is None:
        return TopicClaims(None, any=False)
    claimed = False
    others = [
        one
        for one in objects
        if not one["metadata"].get("deletionTimestamp") and declares(term, one, topic.name)
    ]
    for one in sorted(others, key=_age):
        stated = _identity(one, cluster, topic.name)
        labels = await namespace_labels(term, stated, cluster)
        if namespace_refusal(stated, cluster, labels) is not None:
            continue
        claimed, meta = True, stated.metadata
        own = topic.object is not None and topic.object.namespace == meta.namespace
        if own or from_kafka_id(meta.annotations.get(ADOPT, "")) == topic.id:
            heir = TopicObject(namespace=meta.namespace, name=meta.name, uid=meta.uid)
            return TopicClaims(heir, any=True)
    return TopicClaims(None, any=claimed)


def _age(found: Object) -> tuple[str, str, str]:
    meta = found["metadata"]
    return meta.get("creationTimestamp") or "", meta["namespace"], meta["name"]


def _identity(found: Object, cluster: LogCluster, topic_name: str) -> api.Topic:
    """Return the object as a Topic with only its metadata, its cluster and its topic's name."""
    namespace, name = cluster.key
    return api.Topic(
        metadata=msgspec.convert(found["metadata"], ObjectMeta),
        spec=api.TopicSpec(
            cluster_ref=ClusterRef(name=name, namespace=namespace), topic_name=topic_name
        ),
    )


# --- mass deletions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mass:
    """A mass deletion: `count` Topic objects disappeared within an hour. `names`: the topics that
    are pending deletion and not acknowledged. `newest_ms`: when the newest of them disappeared
    (wall clock)."""

    count: int
    names: tuple[str, ...]
    newest_ms: int


def mass_deletion(image: ClusterImage, most: int, acknowledged_ms: int, now_ms: int) -> Mass | None:
    """Return the mass deletion, if the controller counts more than `most` objects that disappeared
    within an hour. Return None otherwise. Objects that disappeared up to `acknowledged_ms` do not
    count."""
    count = most_vanished(image, acknowledged_ms, now_ms)
    if count <= most:
        return None
    waiting = sorted(
        (topic.pending_deletion.since_ms, topic.name)
        for topic in image.topics.values()
        if topic.pending_deletion and topic.pending_deletion.since_ms > acknowledged_ms
    )
    return Mass(
        count=count,
        names=tuple(name for _, name in waiting),
        newest_ms=waiting[-1][0],
    )


def sentence(mass: Mass, cluster: LogCluster, most: int) -> str:
    """Return the sentence that reports a mass deletion and names both remedies: acknowledge it, or
    raise the maximum `most`."""
    namespace, name = cluster.key
    names = ", ".join(mass.names[:NAMES_MAX])
    more = len(mass.names) - NAMES_MAX
    return (
        f"{mass.count} Topic objects disappeared within an hour "
        f"({names}{(f' and {more} more' if more > 0 else '')}). More than {most} look like an "
        f"accident, so no data is removed. {way_out(cluster, mass.newest_ms)} Or set "
        f"spec.topics.deletion.maxPerHour of {namespace}/{name} to {mass.count} or more for "
        "good."
    )


def _lost_text(lost: list[tuple[int, str]], cluster: LogCluster) -> str:
    """Return the sentence that reports the result `lost` of `missing_since_restore`."""
    names = ", ".join(name for _, name in lost[:NAMES_MAX])
    more = len(lost) - NAMES_MAX
    text = LOST_WITH_STORAGE.format(names + (f" and {more} more" if more > 0 else ""))
    return f"{text} {way_out(cluster, lost[-1][0])}"


def is_acknowledged(topic: Topic, cluster: LogCluster, now_ms: int) -> bool:
    """Return True if the LogCluster's annotation acknowledges the deletion of this topic's object.
    If the topic is not pending deletion yet, the time of the deletion is unknown; an
    acknowledgement of a time within an hour of `now_ms` then counts."""
    until_ms = acknowledged_until_ms(cluster)
    if topic.pending_deletion is None:
        return until_ms >= 0 and now_ms - HOUR_MS <= until_ms <= now_ms + HOUR_MS
    return topic.pending_deletion.since_ms <= until_ms
