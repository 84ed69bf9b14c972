"""DeleteTopics, by name or by id: decided by the controller, answered once this broker sees it."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from plimsoll_broker.dispatch import Handler, RequestContext
from plimsoll_broker.handlers import view as shared
from plimsoll_broker.handlers.forward import ask, timeout_ms_of
from plimsoll_broker.handlers.view import ClusterView
from plimsoll_core.messages import DeleteTopics, TopicAnswer
from plimsoll_wire.messages import decode_request, encode_response
from plimsoll_wire.versions import ApiKey

_IDS_VERSION = 6

_Target = tuple[str | None, UUID | None]


def delete_topics(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        version = context.api_version
        request = decode_request(ApiKey.DELETE_TOPICS, version, context.body)
        context.body.release()
        results = await _delete(view, _targets(request, version), timeout_ms_of(request))
        return encode_response(ApiKey.DELETE_TOPICS, version, {"responses": results})

    return handle


def _targets(request: Any, version: int) -> list[_Target]:
    if version >= _IDS_VERSION:
        return [(topic.name, topic.topic_id) for topic in request.topics]
    return [(name, None) for name in request.topic_names]


async def _delete(
    view: ClusterView, targets: list[_Target], timeout_ms: int
) -> list[dict[str, Any]]:
    """Every target is resolved against this broker's image only to tell names from ids apart."""
    refused: dict[_Target, TopicAnswer] = {}
    wanted: list[_Target] = []
    times = Counter(targets)
    for target in times:
        name, topic_id = target
        if times[target] > 1 or (name is None) == (topic_id is None):
            message = "Each topic once, either by name or by id."
            answer = TopicAnswer(name=name or "", code=shared.INVALID_REQUEST, message=message)
            refused[target] = answer
        else:
            wanted.append(target)
    answers = await _ask(view, wanted, timeout_ms) if wanted else {}
    gone = [answer.topic_id for answer in answers.values() if not answer.code]
    await view.watch.wait_for(
        lambda image: all(topic_id not in image.topics for topic_id in gone), timeout_ms
    )
    return [_result(target, refused.get(target) or answers[target]) for target in times]


async def _ask(
    view: ClusterView, wanted: list[_Target], timeout_ms: int
) -> dict[_Target, TopicAnswer]:
    names = tuple(name for name, _ in wanted if name is not None)
    ids = tuple(topic_id for name, topic_id in wanted if name is None and topic_id is not None)
    got = await ask(view, DeleteTopics(names=names, ids=ids), names, timeout_ms)
    by_name = {answer.name: answer for answer in got}
    by_id: dict[UUID | None, TopicAnswer] = {
        answer.topic_id: answer for answer in got if answer.topic_id is not None
    }
    unanswered = TopicAnswer(name="", code=shared.UNKNOWN_TOPIC_ID)
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
