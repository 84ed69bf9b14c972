"""Reconciles a Topic object: turns its spec into a request to the controller, and shows the refusal
if there is one."""

from __future__ import annotations

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.elections import ElectionsAnswer
from plimsoll_core.messages.requests import DetachTopic, Refused, TopicsAnswer
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_operator.kube.seen_objects import INVALID_SPEC, Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.topic.topic_declaration import (
    declare,
    named_leaders,
    namespace_labels,
    object_of,
)
from plimsoll_operator.reconcile.topic.topic_memory import bound_topic, topic_named, topics_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence, about_seen
from plimsoll_operator.status.status_writer import Target


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    topic, cluster, memory = term.objects.topics.get(key), term.cluster, topics_of(term)
    if topic is None:
        memory.refusals.pop(key, None)
        memory.observed.pop(key, None)
        result.add(Work(Task.ABSENT_TOPICS, term.key))
        return
    if cluster is None or topic.metadata.deletion_timestamp or topic.cluster_key != term.key:
        return
    if why := _not_followed(term, key):
        if bound_topic(term, topic) is None:
            memory.refusals[key] = condition("Ready", False, INVALID_SPEC, why)
        _observe(term, result, topic)
        return
    labels = await namespace_labels(term, topic, cluster)
    request = declare(topic, cluster, labels, topic_named(term, topic.topic_name))
    if isinstance(request, Refusal):
        await _detach(term, result, topic, request)
        _refuse(term, result, topic, request.reason.name, request.message)
        return
    answer = await term.ask(request)
    if isinstance(answer, Refused):
        _refuse(term, result, topic, answer.reason, answer.message)
        raise Retry(answer.message)
    assert isinstance(answer, TopicsAnswer), answer
    await _name_leaders(term, result, topic)
    if (before := memory.refusals.pop(key, None)) is not None:
        result.tell(_accepted(topic, before))
    _observe(term, result, topic)


def _not_followed(term: Term, key: Key) -> str:
    """Return a sentence that says why the object's spec is not followed, "" if it is. It is not
    followed while a part of it, or of the LogCluster's spec, cannot be decoded."""
    if term.objects.topics.missing(key):
        unread = term.objects.topics.unread(key)
        return unread.sentence if unread else ""
    if term.missing.intersection(("topics", "brokers")):
        return (
            "The operator cannot decode spec.topics or spec.brokers of LogCluster "
            f"{term.key[0]}/{term.key[1]}, so it does not apply this Topic. Correct the "
            "LogCluster."
        )
    return ""


async def _name_leaders(term: Term, result: PassResult, topic: Topic) -> None:
    """Ask the controller to elect the leaders that the spec names (unclean recovery). A refusal is
    shown and retried, since it may be temporary: a broker has not reported its log yet."""
    request = named_leaders(topic)
    if request is None:
        return
    answer = await term.ask(request)
    assert isinstance(answer, ElectionsAnswer), answer
    refused = [one for one in answer.partitions if one.code]
    if not refused:
        return
    more = f" And {len(refused) - 1} more." if len(refused) > 1 else ""
    _refuse(term, result, topic, refused[0].reason, refused[0].message + more)
    raise Retry(refused[0].message)


def _refuse(term: Term, result: PassResult, topic: Topic, reason: str, message: str) -> None:
    """Show the refusal `reason`, `message` in the object's status, and write an Event if the
    refusal is new."""
    refusals = topics_of(term).refusals
    before, said = refusals.get(topic.key), condition("Ready", False, reason, message)
    refusals[topic.key] = said
    if before != said:
        told = Occurrence(
            key=f"refused-{topic.metadata.uid}-{reason}",
            undoes=f"accepted-{topic.metadata.uid}",
            reason="TopicRefused",
            message=(f"The spec of Topic {topic.topic_name} is refused ({reason}): {message}")[
                :LENGTH_MAX
            ],
            warning=True,
            about=about_seen(TOPICS.kind, topic.metadata),
        )
        result.tell(told)
    _observe(term, result, topic)


def _accepted(topic: Topic, before: Condition) -> Occurrence:
    return Occurrence(
        key=f"accepted-{topic.metadata.uid}",
        undoes=f"refused-{topic.metadata.uid}-{before.reason}",
        reason="TopicAccepted",
        message=(
            f"Topic {topic.topic_name} now matches its spec, which was refused before "
            f"({before.reason})."
        ),
        about=about_seen(TOPICS.kind, topic.metadata),
    )


def _observe(term: Term, result: PassResult, topic: Topic) -> None:
    topics_of(term).observed[topic.key] = topic.metadata.generation
    result.mark(Target(TOPICS, *topic.key))
    result.mark_cluster()


async def _detach(term: Term, result: PassResult, topic: Topic, refusal: Refusal) -> None:
    """Detach the topic from its object if the object's namespace may no longer declare topics. The
    topic and its data stay. Does nothing for any other `refusal`."""
    if refusal.reason is not Reason.NotAllowed:
        return
    bound = bound_topic(term, topic)
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
    result.tell(
        Occurrence(
            key=key,
            reason="TopicDetached",
            message=text,
            warning=True,
            about=about_seen(TOPICS.kind, topic.metadata),
        )
    )
