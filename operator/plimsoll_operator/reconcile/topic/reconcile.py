"""A Topic object: its request to the controller, and the refusal."""

from __future__ import annotations

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.elections import ElectionsAnswer
from plimsoll_core.messages.requests import DetachTopic, Refused, TopicsAnswer
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.topic.heirs import namespace_labels
from plimsoll_operator.reconcile.topic.leaders_to_elect import named_leaders
from plimsoll_operator.reconcile.topic.topic_declaration import declare, object_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen
from plimsoll_operator.status.status_writer import Target


async def reconcile(term: Term, key: Key) -> None:
    topic, cluster = term.objects.topics.get(key), term.cluster
    if topic is None:
        term.refusals.pop(key, None)
        term.observed.pop(Target(TOPICS, *key), None)
        term.add(Work(Task.ABSENT_TOPICS, term.key))
        return
    if cluster is None or topic.metadata.deletion_timestamp or topic.cluster_key != term.key:
        return
    if why := _not_followed(term, key):
        if term.bound_topic(topic) is None:
            term.refusals[key] = condition("Ready", False, INVALID_SPEC, why)
        _observe(term, topic)
        return
    labels = await namespace_labels(term, topic, cluster)
    request = declare(topic, cluster, labels, term.topic_named(topic.topic_name))
    if isinstance(request, Refusal):
        await _detach(term, topic, request)
        _refuse(term, topic, request.reason.name, request.message)
        return
    answer = await term.ask(request)
    if isinstance(answer, Refused):
        _refuse(term, topic, answer.reason, answer.message)
        raise Retry(answer.message)
    assert isinstance(answer, TopicsAnswer), answer
    await _name_leaders(term, topic)
    if (before := term.refusals.pop(key, None)) is not None:
        _tell_accepted(term, topic, before)
    _observe(term, topic)


def _not_followed(term: Term, key: Key) -> str:
    """Return why the object requests nothing: a part of the specs that it needs is unreadable."""
    if term.objects.topics.missing(key):
        unread = term.objects.topics.unread(key)
        return unread.sentence if unread else ""
    if term.missing.intersection(("topics", "brokers")):
        return f"LogCluster {term.key[0]}/{term.key[1]}: its spec.topics cannot be read."
    return ""


async def _name_leaders(term: Term, topic: Topic) -> None:
    """Elect the named leaders. A refusal may be temporary (a broker has not reported its log yet),
    so it is retried."""
    request = named_leaders(topic)
    if request is None:
        return
    answer = await term.ask(request)
    assert isinstance(answer, ElectionsAnswer), answer
    refused = [one for one in answer.partitions if one.code]
    if not refused:
        return
    more = f" And {len(refused) - 1} more." if len(refused) > 1 else ""
    _refuse(term, topic, refused[0].reason, refused[0].message + more)
    raise Retry(refused[0].message)


def _refuse(term: Term, topic: Topic, reason: str, message: str) -> None:
    before, said = term.refusals.get(topic.key), condition("Ready", False, reason, message)
    term.refusals[topic.key] = said
    if before != said:
        told = Occurrence(
            key=f"refused-{topic.metadata.uid}-{reason}",
            undoes=f"accepted-{topic.metadata.uid}",
            reason="TopicRefused",
            message=f"Topic {topic.topic_name}: {reason}: {message}"[:LENGTH_MAX],
            warning=True,
            about=about_seen(TOPICS.kind, topic.metadata),
        )
        term.tell(told)
    _observe(term, topic)


def _tell_accepted(term: Term, topic: Topic, before: Condition) -> None:
    told = Occurrence(
        key=f"accepted-{topic.metadata.uid}",
        undoes=f"refused-{topic.metadata.uid}-{before.reason}",
        reason="TopicAccepted",
        message=f"Topic {topic.topic_name} now matches its spec; before: {before.reason}.",
        about=about_seen(TOPICS.kind, topic.metadata),
    )
    term.tell(told)


def _observe(term: Term, topic: Topic) -> None:
    target = Target(TOPICS, *topic.key)
    term.observed[target] = topic.metadata.generation
    term.mark(target)
    term.mark_cluster()


async def _detach(term: Term, topic: Topic, refusal: Refusal) -> None:
    """Detach the topics of a namespace that is no longer allowed; their data stays."""
    if refusal.reason is not Reason.NotAllowed:
        return
    bound = term.bound_topic(topic)
    if bound is None:
        return
    answer = await term.ask(DetachTopic(object=object_of(topic)))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
    namespace, name = topic.key
    text = (
        f"Topic {bound.name} is detached from the object {namespace}/{name}, because its "
        "namespace may no longer declare topics in this cluster. The topic and its data stay, "
        "as a topic without an object; the same object owns it again once its namespace is "
        "allowed again."
    )
    key = f"detached-{bound.id}"
    term.tell(
        Occurrence(
            key=key,
            reason="TopicDetached",
            message=text,
            warning=True,
            about=about_seen(TOPICS.kind, topic.metadata),
        )
    )
