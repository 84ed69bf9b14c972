"""How handlers ask coordinators: decided in the call, answered when all answers are there.

So two requests of one connection are decided in the order in which they were sent.  A request that
would take long to read is read in a thread instead, and may be overtaken by those behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.handlers.large_messages import Aside
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_wire.messages import decode_request, encode_response

T = TypeVar("T")

BYTES_AT_ONCE = 32 * 1024
"""Of a request's body: it names a thousand partitions, and is read in a few milliseconds."""
PARTITIONS_AT_ONCE = 500
"""In one operation of a shard: others have their turn after it."""
TOLD_AT_ONCE = 2_000
"""Partitions in an answer that is written in the event loop."""


def decided(
    context: RequestContext, aside: Aside, serve: Callable[[Any], Reply | Awaitable[Reply]]
) -> Reply | Awaitable[Reply]:
    """`serve` is given kio's request value, in this call unless the request is a long one."""
    if len(context.body) <= BYTES_AT_ONCE:
        return serve(decode_request(context.api_key, context.api_version, context.body))
    return _later(context, aside, serve)


async def _later(
    context: RequestContext, aside: Aside, serve: Callable[[Any], Reply | Awaitable[Reply]]
) -> Reply:
    work = partial(decode_request, context.api_key, context.api_version, context.body)
    reply = serve(await aside.do(work))
    return await reply if isinstance(reply, Awaitable) else reply


def once_answered(
    askers: list[Asker], make: Callable[[list[object]], Reply]
) -> Reply | Awaitable[Reply]:
    """What `make` says of the answers, in order."""
    if all(asker.answered for asker in askers):
        return make([asker.answer_value for asker in askers])
    # Each is listened to from now on: the answers may come in any order.
    futures = [asker.future() for asker in askers]

    async def wait() -> Reply:
        return make([await future for future in futures])

    return wait()


def encoded(context: RequestContext, values: dict[str, Any]) -> Reply:
    return encode_response(context.api_key, context.api_version, values)


def refusal_of(answer: object) -> RefusedAsWhole | None:
    return answer if isinstance(answer, RefusedAsWhole) else None


def portions(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """So many as one operation takes; one empty portion of nothing."""
    for start in range(0, max(len(items), 1), PARTITIONS_AT_ONCE):
        yield items[start : start + PARTITIONS_AT_ONCE]


def by_topic(rows: Iterable[tuple[str, T]]) -> list[tuple[str, list[T]]]:
    """Rows as responses show them: neighbours of one topic together."""
    topics: list[tuple[str, list[T]]] = []
    for topic, row in rows:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(row)
    return topics
