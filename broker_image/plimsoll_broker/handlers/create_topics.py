"""CreateTopics: checked for form here, decided by the controller, answered once the topics are
visible.

Topics created this way exist only in the metadata log. Source: the protocol's CreateTopics rules.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.describe_configs import topic_configs
from plimsoll_broker.handlers.forward import ask, behalf_of, timeout_ms_of
from plimsoll_broker.handlers.large_messages import things
from plimsoll_broker.handlers.mutation_quota import (
    OVER_QUOTA,
    OVER_QUOTA_TEXT,
    charge_made,
    within_quota,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_configs import client_configs
from plimsoll_core.errors import Code, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import CreateTopics, NewTopic, TopicAnswer
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_DEFAULTS_VERSION = 4
"""From this version on -1 stands for the cluster's default."""
_CONFIGS_EACH = 25
_STRICT_VERSION = 6
"""From this version on a client understands the quota's refusal (KIP-599)."""


class _BadForm(Exception):
    """A topic that is refused without asking the controller."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def create_topics(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
        wanted, answers = await aside.some(many, partial(_checked, request))
        if not request.validate_only:
            wanted, over = topics_within_quota(context, wanted)
            answers |= over
        made: int | None = None
        try:
            if not wanted:
                made = 0
            else:
                made = await _create(view, context, request, wanted, answers)
        finally:
            if not request.validate_only:
                charge_made(context, made)
        # The reply lists all configs of each created topic.
        told = _CONFIGS_EACH * sum(not answer.code for answer in answers.values())
        answered = partial(_answered, view, view.image, version, request, answers)
        return await aside.some(many + told, answered)

    return handle


def topics_within_quota(
    context: RequestContext, wanted: tuple[NewTopic, ...]
) -> tuple[tuple[NewTopic, ...], dict[str, TopicAnswer]]:
    """Return the topics that `controller_mutation_rate` allows, and the answers for the rest."""
    counted = [(topic, topic.partitions or len(topic.assignment or ()) or 1) for topic in wanted]
    taken = within_quota(context, counted, _STRICT_VERSION)
    return tuple(taken), {
        topic.name: TopicAnswer(name=topic.name, code=OVER_QUOTA, message=OVER_QUOTA_TEXT)
        for topic in wanted[len(taken) :]
    }


def _answered(
    view: ClusterView,
    image: ClusterImage,
    version: int,
    request: Any,
    answers: dict[str, TopicAnswer],
) -> bytes:
    topics = [_result(view, image, answers[each.name], each) for each in _once(request.topics)]
    return encode_response(ApiKey.CREATE_TOPICS, version, {"topics": topics})


def _once(topics: Any) -> list[Any]:
    """Return each name once, in the client's order."""
    return list({topic.name: topic for topic in topics}.values())


def _checked(request: Any) -> tuple[tuple[NewTopic, ...], dict[str, TopicAnswer]]:
    """Return the topics to ask the controller for, and the answers for the others."""
    answers: dict[str, TopicAnswer] = {}
    wanted: list[NewTopic] = []
    times = Counter(topic.name for topic in request.topics)
    for topic in _once(request.topics):
        try:
            if times[topic.name] > 1:
                raise _BadForm(Code.INVALID_REQUEST, "The request names this topic twice.")
            wanted.append(_new_topic(topic))
        except _BadForm as bad:
            answers[topic.name] = TopicAnswer(name=topic.name, code=bad.code, message=str(bad))
    return tuple(wanted), answers


async def _create(
    view: ClusterView,
    context: RequestContext,
    request: Any,
    wanted: tuple[NewTopic, ...],
    answers: dict[str, TopicAnswer],
) -> int | None:
    """Add the controller's answers once this broker sees the new topics. Return the number of
    partitions created, or None if the outcome is not known."""
    command = CreateTopics(
        topics=wanted, validate_only=request.validate_only, behalf=behalf_of(view, context)
    )
    names = tuple(topic.name for topic in wanted)
    timeout_ms = timeout_ms_of(request)
    for answer in await ask(view, command, names, timeout_ms):
        answers[answer.name] = answer
    made = [answers[name] for name in names if not answers[name].code]
    if made and not request.validate_only:
        await view.watch.wait_for(lambda image: _visible(image, made), timeout_ms)
    unknown = any(answers[name].code == Code.REQUEST_TIMED_OUT for name in names)
    return None if unknown else sum(answer.partitions for answer in made)


def _visible(image: ClusterImage, made: list[TopicAnswer]) -> bool:
    """Return True if every new topic is in this broker's image, with leaders."""
    for answer in made:
        topic = None if answer.topic_id is None else image.topics.get(answer.topic_id)
        if topic is None:
            return False
        for index in range(topic.partitions):
            partition = image.partitions.get(PartitionKey(topic.id, index))
            if partition is None or partition.leader is None:
                return False
    return True


def _new_topic(topic: Any) -> NewTopic:
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            message = f"Null value not supported for topic configs: {config.name}"
            raise _BadForm(Code.INVALID_CONFIG, message)
        configs[config.name] = config.value
    partitions, factor = topic.num_partitions, topic.replication_factor
    assignment = _assignment(topic)
    if assignment is not None and (partitions != -1 or factor != -1):
        message = "An assignment says it all: partitions and replication factor must be -1."
        raise _BadForm(Code.INVALID_REQUEST, message)
    return NewTopic(
        name=topic.name,
        partitions=None if partitions == -1 else partitions,
        replication_factor=None if factor == -1 else factor,
        assignment=assignment,
        configs=configs,
    )


def _assignment(topic: Any) -> tuple[tuple[BrokerId, ...], ...] | None:
    if not topic.assignments:
        return None
    by_index = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        message = "The assignment must name the partitions 0, 1, 2 and so on, each once."
        raise _BadForm(Code.INVALID_REPLICA_ASSIGNMENT, message)
    return tuple(by_index[index] for index in range(len(by_index)))


def _result(
    view: ClusterView, image: ClusterImage, answer: TopicAnswer, asked: Any
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": answer.name,
        "topic_id": answer.topic_id,
        "error_code": answer.code,
        "error_message": answer.message or None,
        "configs": None,
    }
    if not answer.code:
        given = {config.name: config.value for config in asked.configs}
        taken = client_configs(given)
        configs, min_isr = given if isinstance(taken, Refusal) else taken.kept, answer.min_isr
        topic = None if answer.topic_id is None else image.topics.get(answer.topic_id)
        if topic is not None:
            configs, min_isr = dict(topic.configs), topic.min_isr
        values["num_partitions"] = answer.partitions
        values["replication_factor"] = answer.replication_factor
        values["configs"] = topic_configs(configs, min_isr or 1, view.configs)
    return values
