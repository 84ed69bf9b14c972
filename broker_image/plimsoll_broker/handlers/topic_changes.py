"""The APIs that create, extend and delete topics.

`CreateTopics`: checked for form here, decided by the controller, answered once the topics are
visible. Topics created this way exist only in the metadata log. Source: the protocol's CreateTopics
rules.

`CreatePartitions`: decided by the controller, answered once this broker sees the change. Source:
KIP-195; the protocol's rule for CreatePartitions.

DeleteTopics, by name or by id: decided by the controller, answered once this broker sees it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.configs import topic_configs
from plimsoll_broker.handlers.forward import ask, ask_for_changes, behalf_of, timeout_ms_of
from plimsoll_broker.handlers.mutation_quota import (
    OVER_QUOTA,
    OVER_QUOTA_TEXT,
    charge_made,
    within_quota,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_configs import client_configs, too_long
from plimsoll_core.errors import Code, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics, NewTopic, TopicAnswer
from plimsoll_core.messages.topics import AddPartitions, TopicChanged, TopicGrowth
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_CONFIGS_EACH = 25
_CREATE_STRICT_VERSION = 6
"""The request version from which on a client understands that the quota refuses a topic
(KIP-599)."""


class _BadForm(Exception):
    """Raised for a malformed new topic in a request, which is refused without asking the
    controller. The message says what is wrong."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def create_topics(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request, many = await aside.received(context)
        wanted, answers = await aside.some(many, partial(_checked, request))
        wanted, over = topics_within_quota(context, wanted)
        answers |= over
        made: int | None = None
        try:
            if not wanted:
                made = 0
            else:
                made = await _create(view, context, request, wanted, answers)
        finally:
            charge_made(context, made)
        # The reply lists all configs of each created topic.
        told = _CONFIGS_EACH * sum(not answer.code for answer in answers.values())
        answered = partial(_answered, view, view.image, version, request, answers)
        return await aside.some(many + told, answered)

    return handle


def topics_within_quota(
    context: RequestContext, wanted: tuple[NewTopic, ...]
) -> tuple[tuple[NewTopic, ...], dict[str, TopicAnswer]]:
    """Return the leading topics that the quota permits, with tokens reserved for them, and the
    answers that refuse the rest, by name."""
    counted = [(topic, topic.partitions or len(topic.assignment or ()) or 1) for topic in wanted]
    taken = within_quota(context, counted, _CREATE_STRICT_VERSION)
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
    topics = [
        _created_result(view, image, answers[each.name], each) for each in _once(request.topics)
    ]
    return encode_response(ApiKey.CREATE_TOPICS, version, {"topics": topics})


def _once(topics: Any) -> list[Any]:
    """Return the topics of the request, each name once, in the client's order."""
    return list({topic.name: topic for topic in topics}.values())


def _checked(request: Any) -> tuple[tuple[NewTopic, ...], dict[str, TopicAnswer]]:
    """Return the well-formed topics of the request, for the controller to create, and the answers
    that refuse malformed or repeated ones, by name."""
    answers: dict[str, TopicAnswer] = {}
    wanted: list[NewTopic] = []
    times = Counter(topic.name for topic in request.topics)
    for topic in _once(request.topics):
        try:
            if times[topic.name] > 1:
                raise _BadForm(
                    Code.INVALID_REQUEST,
                    "The request names this topic twice; name each topic once.",
                )
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
    """Have the controller create the topics, and add its answers to `answers`, by name. If any was
    created, return once this broker's image has them with leaders, or the timeout is over. Return
    the number of partitions created (or that would be, with validate_only), or None if no
    controller answered in time."""
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
    """Return True if the image has every created topic, with a leader of each partition."""
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
        if refusal := too_long(config.name, config.value):
            raise _BadForm(Code.INVALID_CONFIG, refusal.message)
        configs[config.name] = config.value
    partitions, factor = topic.num_partitions, topic.replication_factor
    assignment = _assignment(topic)
    if assignment is not None and (partitions != -1 or factor != -1):
        message = (
            "A request to create a topic with a replica assignment must state -1 as number of "
            "partitions and as replication factor."
        )
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
        message = (
            "The replica assignment of a new topic must name the partitions 0, 1, 2 and so on, "
            "each once."
        )
        raise _BadForm(Code.INVALID_REPLICA_ASSIGNMENT, message)
    return tuple(by_index[index] for index in range(len(by_index)))


def _created_result(
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


_EXTEND_STRICT_VERSION = 3
"""The request version from which on a client understands that the quota refuses a topic
(KIP-599)."""


def create_partitions(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version, aside = context.api_version, view.aside
        request, many = await aside.received(context)
        topics = await aside.some(many, partial(_growths, request))
        names = tuple(dict.fromkeys(one.topic for one in topics))
        counted = [(one, _added(view.image, one)) for one in topics]
        taken = within_quota(context, counted, _EXTEND_STRICT_VERSION)
        told = {
            one.topic: TopicChanged(topic=one.topic, code=OVER_QUOTA, message=OVER_QUOTA_TEXT)
            for one in topics[len(taken) :]
        }
        topics = tuple(taken)
        try:
            if topics:
                command = AddPartitions(
                    topics=topics,
                    validate_only=request.validate_only,
                    behalf=behalf_of(view, context),
                )
                asked = tuple(dict.fromkeys(one.topic for one in topics))
                told |= await ask_for_changes(view, command, asked, timeout_ms_of(request))
        finally:
            charge_made(context, _made(counted, told))
        return await aside.some(many, partial(_reply, version, names, told))

    return handle


def _added(image: ClusterImage, growth: TopicGrowth) -> int:
    topic_id = image.topic_ids.get(growth.topic)
    topic = None if topic_id is None else image.topics.get(topic_id)
    return max(growth.partitions - (0 if topic is None else topic.partitions), 0)


def _made(counted: list[tuple[TopicGrowth, int]], told: dict[str, TopicChanged]) -> int | None:
    """Return the number of partitions added, or None if no controller answered in time. `counted`:
    each topic with the number of its new partitions; a topic that is named twice counts once.
    `told`: the outcome by topic."""
    added = {one.topic: count for one, count in counted}
    if any(name not in told or told[name].code == Code.REQUEST_TIMED_OUT for name in added):
        return None
    return sum(n for name, n in added.items() if not told[name].code)


def _growths(request: Any) -> tuple[TopicGrowth, ...]:
    return tuple(
        TopicGrowth(
            topic=topic.name,
            partitions=topic.count,
            assignment=None
            if topic.assignments is None
            else tuple(tuple(row.broker_ids) for row in topic.assignments),
        )
        for topic in request.topics
    )


def _reply(version: int, names: tuple[str, ...], told: dict[str, TopicChanged]) -> bytes:
    results = [
        {
            "name": name,
            "error_code": told[name].code,
            "error_message": told[name].message or None,
        }
        for name in names
    ]
    return encode_response(ApiKey.CREATE_PARTITIONS, version, {"results": results})


_DELETE_STRICT_VERSION = 5
"""The request version from which on a client understands that the quota refuses a topic
(KIP-599)."""
_IDS_VERSION = 6

_Target = tuple[str | None, UUID | None]


def delete_topics(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request, many = await aside.received(context)
        told = await aside.some(many, partial(_told, view.image, request, version))
        sizes = _sizes(view.image, told)
        told = _within_quota(context, told, sizes)
        try:
            if told.wanted:
                await _delete(view, context, told, timeout_ms_of(request))
        finally:
            charge_made(context, _deleted(told, sizes))
        return await aside.some(many, partial(_answer, version, told))

    return handle


def _targets(request: Any, version: int) -> list[_Target]:
    if version >= _IDS_VERSION:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, None) for name in request.topic_names]


class _Told(NamedTuple):
    """The state of a DeleteTopics request. `answers`: the result of each target (name or id), in
    the client's order; None until the controller has answered. `wanted`: the targets that the
    controller is asked to delete; `names` and `ids`: the same, by kind."""

    answers: dict[_Target, TopicAnswer | None]
    wanted: list[_Target]
    names: tuple[str, ...]
    ids: tuple[UUID, ...]


def _told(image: ClusterImage, request: Any, version: int) -> _Told:
    """Return the state of a DeleteTopics request before the controller is asked: with a refusal of
    each target that is malformed, or that names a topic a second time (by name or by id), and all
    other targets in `wanted`."""
    answers: dict[_Target, TopicAnswer | None] = {}
    times = Counter(_targets(request, version))
    for target in times:
        name, topic_id = target
        answers[target] = None
        if times[target] > 1 or (name is None) == (topic_id is None):
            message = (
                "A request to delete topics must name each topic once, either by name or by id."
            )
            answers[target] = TopicAnswer(
                name=name or "", code=Code.INVALID_REQUEST, message=message
            )
    by_id = {topic_id for name, topic_id in answers if name is None}
    for name, topic_id in answers:
        if name is not None and topic_id is None and (found := image.topic_ids.get(name)) in by_id:
            message = f"The request names topic {name} by its name and by its id; name it once."
            for target in ((name, None), (None, found)):
                answers[target] = TopicAnswer(
                    name=target[0] or "", code=Code.INVALID_REQUEST, message=message
                )
    wanted = [target for target, answer in answers.items() if answer is None]
    names = tuple(name for name, _ in wanted if name is not None)
    ids = tuple(topic_id for name, topic_id in wanted if name is None and topic_id is not None)
    return _Told(answers, wanted, names, ids)


def _deleted(told: _Told, sizes: dict[_Target, int]) -> int | None:
    """Return the number of partitions of the topics that were deleted, or None if no controller
    answered in time. `sizes`: the number of partitions of each target."""
    answers = [(one, told.answers[one]) for one in told.wanted]
    if any(found is None or found.code == Code.REQUEST_TIMED_OUT for _, found in answers):
        return None
    return sum(sizes[one] for one, found in answers if found is not None and not found.code)


def _sizes(image: ClusterImage, told: _Told) -> dict[_Target, int]:
    """Return the number of partitions of each topic to be deleted; 0 if it does not exist."""

    def partitions(target: _Target) -> int:
        name, topic_id = target
        if name is not None:
            topic_id = image.topic_ids.get(name)
        topic = None if topic_id is None else image.topics.get(topic_id)
        return 0 if topic is None else topic.partitions

    return {target: partitions(target) for target in told.wanted}


def _within_quota(context: RequestContext, told: _Told, sizes: dict[_Target, int]) -> _Told:
    """Return the request with only the leading targets that the quota permits in `wanted`; the
    other ones get a refusal in `answers`. Without a quota return `told` itself."""
    if context.charges is None:
        return told
    counted = list(sizes.items())
    taken = within_quota(context, counted, _DELETE_STRICT_VERSION)
    for target in told.wanted[len(taken) :]:
        told.answers[target] = TopicAnswer(
            name=target[0] or "", code=OVER_QUOTA, message=OVER_QUOTA_TEXT
        )
    names = tuple(name for name, _ in taken if name is not None)
    ids = tuple(topic_id for name, topic_id in taken if name is None and topic_id is not None)
    return _Told(told.answers, taken, names, ids)


def _answer(version: int, told: _Told) -> bytes:
    results = [_deleted_result(target, answer) for target, answer in told.answers.items() if answer]
    return encode_response(ApiKey.DELETE_TOPICS, version, {"responses": results})


async def _delete(view: ClusterView, context: RequestContext, told: _Told, timeout_ms: int) -> None:
    """Have the controller delete the topics, and add its answers to `told`. Return once the topics
    are gone from this broker's image, or the timeout is over."""
    command = DeleteTopics(names=told.names, ids=told.ids, behalf=behalf_of(view, context))
    got = await ask(view, command, told.names, timeout_ms)
    answers = await view.aside.some(len(told.wanted), partial(_matched, got, told))
    told.answers.update(answers)
    gone = [answer.topic_id for answer in got if not answer.code]
    await view.watch.wait_for(
        lambda image: all(topic_id not in image.topics for topic_id in gone), timeout_ms
    )


def _matched(got: tuple[TopicAnswer, ...], told: _Told) -> dict[_Target, TopicAnswer]:
    """Return the controller's answer for each target that it was asked to delete. A topic id
    without an answer does not exist (UNKNOWN_TOPIC_ID), unless the whole request was refused; then
    it gets that refusal."""
    wanted, ids = told.wanted, told.ids
    by_name = {answer.name: answer for answer in got}
    by_id: dict[UUID | None, TopicAnswer] = {
        answer.topic_id: answer for answer in got if answer.topic_id is not None
    }
    unanswered = TopicAnswer(name="", code=Code.UNKNOWN_TOPIC_ID)
    if got and not by_id and ids and got[0].code:
        unanswered = got[0]  # the whole request was refused
    return {
        (name, topic_id): by_name[name] if name is not None else by_id.get(topic_id, unanswered)
        for name, topic_id in wanted
    }


def _deleted_result(target: _Target, answer: TopicAnswer) -> dict[str, Any]:
    name, topic_id = target
    return {
        "name": name if name is not None else (answer.name or None),
        "topic_id": topic_id if topic_id is not None else answer.topic_id,
        "error_code": answer.code,
        "error_message": answer.message or None,
    }
