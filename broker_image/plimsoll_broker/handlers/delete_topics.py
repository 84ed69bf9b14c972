"""DeleteTopics, by name or by id: decided by the controller, answered once this broker sees it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import ask, behalf_of, timeout_ms_of
from plimsoll_broker.handlers.large_messages import things
from plimsoll_broker.handlers.mutation_quota import (
    OVER_QUOTA,
    OVER_QUOTA_TEXT,
    charge_made,
    within_quota,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import DeleteTopics, TopicAnswer
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_STRICT_VERSION = 5
"""From this version on a client understands the quota's refusal (KIP-599)."""
_IDS_VERSION = 6

_Target = tuple[str | None, UUID | None]


def delete_topics(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        aside = view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
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
    """`answers`: by target, in the client's order; None: the controller is asked. `wanted`: the
    targets to ask it for."""

    answers: dict[_Target, TopicAnswer | None]
    wanted: list[_Target]
    names: tuple[str, ...]
    ids: tuple[UUID, ...]


def _told(image: ClusterImage, request: Any, version: int) -> _Told:
    """Find the targets that are refused here: each topic may be named once, by name or by id."""
    answers: dict[_Target, TopicAnswer | None] = {}
    times = Counter(_targets(request, version))
    for target in times:
        name, topic_id = target
        answers[target] = None
        if times[target] > 1 or (name is None) == (topic_id is None):
            message = "Each topic once, either by name or by id."
            answers[target] = TopicAnswer(
                name=name or "", code=Code.INVALID_REQUEST, message=message
            )
    by_id = {topic_id for name, topic_id in answers if name is None}
    for name, topic_id in answers:
        if name is not None and topic_id is None and (found := image.topic_ids.get(name)) in by_id:
            message = f"The request names topic {name} by its name and by its id."
            for target in ((name, None), (None, found)):
                answers[target] = TopicAnswer(
                    name=target[0] or "", code=Code.INVALID_REQUEST, message=message
                )
    wanted = [target for target, answer in answers.items() if answer is None]
    names = tuple(name for name, _ in wanted if name is not None)
    ids = tuple(topic_id for name, topic_id in wanted if name is None and topic_id is not None)
    return _Told(answers, wanted, names, ids)


def _deleted(told: _Told, sizes: dict[_Target, int]) -> int | None:
    """Return the number of partitions deleted, or None if the outcome is not known."""
    answers = [(one, told.answers[one]) for one in told.wanted]
    if any(found is None or found.code == Code.REQUEST_TIMED_OUT for _, found in answers):
        return None
    return sum(sizes[one] for one, found in answers if found is not None and not found.code)


def _sizes(image: ClusterImage, told: _Told) -> dict[_Target, int]:
    """Return the number of partitions of each topic."""

    def partitions(target: _Target) -> int:
        name, topic_id = target
        if name is not None:
            topic_id = image.topic_ids.get(name)
        topic = None if topic_id is None else image.topics.get(topic_id)
        return 0 if topic is None else topic.partitions

    return {target: partitions(target) for target in told.wanted}


def _within_quota(context: RequestContext, told: _Told, sizes: dict[_Target, int]) -> _Told:
    """Keep the targets that the quota allows, and answer the rest."""
    if context.charges is None:
        return told
    counted = list(sizes.items())
    taken = within_quota(context, counted, _STRICT_VERSION)
    for target in told.wanted[len(taken) :]:
        told.answers[target] = TopicAnswer(
            name=target[0] or "", code=OVER_QUOTA, message=OVER_QUOTA_TEXT
        )
    names = tuple(name for name, _ in taken if name is not None)
    ids = tuple(topic_id for name, topic_id in taken if name is None and topic_id is not None)
    return _Told(told.answers, taken, names, ids)


def _answer(version: int, told: _Told) -> bytes:
    results = [_result(target, answer) for target, answer in told.answers.items() if answer]
    return encode_response(ApiKey.DELETE_TOPICS, version, {"responses": results})


async def _delete(view: ClusterView, context: RequestContext, told: _Told, timeout_ms: int) -> None:
    """Add the controller's answers, once this broker sees the deletions."""
    command = DeleteTopics(names=told.names, ids=told.ids, behalf=behalf_of(view, context))
    got = await ask(view, command, told.names, timeout_ms)
    answers = await view.aside.some(len(told.wanted), partial(_matched, got, told))
    told.answers.update(answers)
    gone = [answer.topic_id for answer in got if not answer.code]
    await view.watch.wait_for(
        lambda image: all(topic_id not in image.topics for topic_id in gone), timeout_ms
    )


def _matched(got: tuple[TopicAnswer, ...], told: _Told) -> dict[_Target, TopicAnswer]:
    """Return the answer of each requested topic."""
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


def _result(target: _Target, answer: TopicAnswer) -> dict[str, Any]:
    name, topic_id = target
    return {
        "name": name if name is not None else (answer.name or None),
        "topic_id": topic_id if topic_id is not None else answer.topic_id,
        "error_code": answer.code,
        "error_message": answer.message or None,
    }
