"""GroupApi and GroupHandler: the common part of all group APIs.

A `GroupApi` describes one API: the operations that a request asks of the group coordinators, and
the response made from their answers. `GroupHandler` serves its requests. A short request is decided
in the call itself, so that requests of a connection are decided in the order in which they were
sent. A longer one waits in its connection's line, and later ones wait behind it.
`plimsoll_core.groups.step` makes the decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeVar

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_broker.handlers.long_work import Aside, ConnectionLines, Served, in_turns
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_broker.server.requests_and_replies import ReplyRoom
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.membership import CloseRequest, GroupJoined, JoinGroup, MembersLeft
from plimsoll_core.groups.operations import (
    AllOffsetsFetched,
    GroupDescribed,
    GroupShrunk,
    GroupsListed,
    ListGroups,
    OffsetsCommitted,
    OffsetsFetched,
    Operation,
)
from plimsoll_core.security.acl import AclOperation
from plimsoll_wire.messages import encode_response

T = TypeVar("T")

BYTES_AT_ONCE = 8 * 1024
"""The largest request body, in bytes, that is parsed on the event loop, within a few
milliseconds."""
ASKED_AT_ONCE = 4
"""The most operations that are decided in one turn of the event loop; each takes a few milliseconds
at most."""
PARTITIONS_AT_ONCE = 500
"""The most partitions, or leaving members, in one operation of a coordinator."""
ROWS_AT_ONCE = 500
"""The most partitions, members or groups in a reply that is encoded on the event loop."""
TOLD_AT_ONCE = 64 * 1024
"""The largest reply, in bytes, that is encoded without taking memory for it first."""
_ROW_BYTES = 512
"""The memory, in bytes, that the values of one row take while the reply is encoded."""


Awaited = Callable[[], Awaitable[RefusedAsWhole | None]]
"""Waits for something, and returns the refusal of the request that waited for it, None if it may
be decided."""
Waits = Callable[[Coordinators, "GroupRequest"], Awaited | None]


class GroupRequest(NamedTuple):
    """A parsed request of a group API. `value`: the request as the kio library parses it.
    `refused`: the topics that the client has no right to. `group_refused`: True if the client has
    no right to the group, so that all topics are refused."""

    context: RequestContext
    value: Any
    refused: frozenset[str] = frozenset()
    group_refused: bool = False

    @property
    def topic_code(self) -> Code:
        """The error code of each topic in `refused`."""
        if self.group_refused:
            return Code.GROUP_AUTHORIZATION_FAILED
        return Code.TOPIC_AUTHORIZATION_FAILED

    @property
    def version(self) -> int:
        return self.context.api_version


@dataclass(frozen=True, slots=True)
class GroupApi:
    """The description of one group API.

    `asks` yields the operations of a request; each operation is passed to its coordinator before
    the iterator is advanced to the next one. `tells` returns the response's values from the
    answers, which are in the order of the operations; it may run in a thread. `right`: the right
    that a client needs for each named group. `topics` returns the topics that a request names, and
    `topic_right` is the right that a client needs for each of them.

    `rows` returns the most rows of all answers to a request, for an API that tells of what the
    coordinators have, and not only of what its request names: room for so many is taken before the
    coordinators are asked."""

    asks: Callable[[GroupRequest], Iterator[Operation]]
    tells: Callable[[GroupRequest, list[object]], dict[str, Any]]
    right: AclOperation
    topics: Callable[[Any], Iterable[str]] | None = None
    topic_right: AclOperation = AclOperation.READ
    rows: Callable[[Coordinators], int] | None = None
    writes: bool = False
    """True if the request's bytes count for the quota `producer_byte_rate`."""
    waits_for: Waits | None = None
    """Returns what has to be awaited before a request is decided, or None. Later requests of the
    connection wait behind it."""

    def read(self, context: RequestContext) -> GroupRequest:
        """Parse a request, and check the client's rights to its topics, once, so that operations
        and reply agree. If the client has no right to the request's group, all of its topics are
        refused."""
        value = context.decoded()
        rights = context.rights
        if rights is None or self.topics is None:
            return GroupRequest(context, value)
        names = frozenset(self.topics(value))
        group = getattr(value, "group_id", None)
        if group is not None and not rights.group(self.right, group):
            return GroupRequest(context, value, names, group_refused=True)
        refused = frozenset(name for name in names if not rights.topic(self.topic_right, name))
        return GroupRequest(context, value, refused)

    def refuses(self, request: GroupRequest, op: Operation) -> bool:
        """Return True if the client has no right to this operation's group. ListGroups names no
        group and is never refused."""
        rights = request.context.rights
        if rights is None or isinstance(op, ListGroups):
            return False
        return not rights.group(self.right, op.group_id)


class _Question(NamedTuple):
    """One operation that was passed to a coordinator, and the asker that receives the answer."""

    op: Operation
    asker: Asker


class _Heard(NamedTuple):
    """The answers to a request. `rows`: the rows that they take in its reply; `size`: the most
    memory, in bytes, that these rows take while they are encoded."""

    answers: list[object]
    rows: int
    size: int


_NOTHING_HEARD = _Heard([], 0, 0)


class GroupHandler:
    """The handler of one group API; `__call__` serves a request."""

    def __init__(
        self, api: GroupApi, coordinators: Coordinators, aside: Aside, lines: ConnectionLines
    ) -> None:
        self._api = api
        self._coordinators = coordinators
        self._aside = aside
        self._lines = lines

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        if self._api.writes and context.charges is not None:
            context.charges.produced(len(context.body))
        if len(context.body) > BYTES_AT_ONCE or not self._lines.idle(context.connection):
            return self._lines.add(context, partial(self._in_line, context))
        request = self._api.read(context)
        if self._awaited(request) is not None:
            return self._lines.add(context, partial(self._in_slices, request, [], None))
        questions = self._ask(request, self._api.asks(request))
        asked = list(islice(questions, ASKED_AT_ONCE))
        if len(asked) < ASKED_AT_ONCE:
            return self._answered(request, asked)
        return self._lines.add(context, partial(self._in_slices, request, asked, questions))

    async def _in_line(self, context: RequestContext) -> Served:
        short = len(context.body) <= BYTES_AT_ONCE
        read = partial(self._api.read, context)
        request = read() if short else await self._aside.do(read)
        context.settled()
        if self._api.rows is not None:
            return self._later(request, self._gathered(request, self._api.rows))
        return await self._in_slices(request, [], None)

    def _awaited(self, request: GroupRequest) -> Awaited | None:
        """Return what the request waits for before it is decided, None if for nothing."""
        waits_for = self._api.waits_for
        return None if waits_for is None else waits_for(self._coordinators, request)

    async def _in_slices(
        self, request: GroupRequest, asked: list[_Question], rest: Iterator[_Question] | None
    ) -> Served:
        """Ask the coordinators in slices. `asked`: the questions that were asked before; `rest`:
        the others, None if none was asked."""
        if rest is None:
            awaited = self._awaited(request)
            refusal = None if awaited is None else await awaited()
            if refusal is None:
                rest = self._ask(request, self._api.asks(request))
            else:
                rest = (_Question(op, _refused_asker(refusal)) for op in self._api.asks(request))
        if self._api.rows is not None:
            asked.clear()
            return self._later(request, self._gathered(request, self._api.rows))
        asked += [one async for one in in_turns(rest)]
        return self._answered(request, asked)

    def _ask(self, request: GroupRequest, ops: Iterable[Operation]) -> Iterator[_Question]:
        """Yield the questions of a request, in order. Each operation is passed to its coordinator
        when the iterator is advanced to its question, or refused if the client has no right to its
        group."""
        return (_Question(op, asker) for op in ops for asker in self._askers(request, op))

    def _askers(self, request: GroupRequest, op: Operation) -> Iterable[Asker]:
        if isinstance(op, ListGroups):
            return self._coordinators.list_groups(op)
        if self._api.refuses(request, op):
            return (_refused_asker(_NOT_AUTHORIZED),)
        return (self._coordinators.ask(op.group_id, op),)

    def _answered(
        self, request: GroupRequest, asked: list[_Question]
    ) -> Reply | asyncio.Future[Reply | None]:
        """Return the reply if all answers are known and short; otherwise a future of the reply,
        which waits for the answers and encodes them in slices or a thread. Count the answers in the
        metrics."""
        if len(asked) <= ROWS_AT_ONCE:
            answers = [one.asker.answer_value for one in asked]
            if None not in answers and _is_short(answers):
                for (op, _), answer in zip(asked, answers, strict=True):
                    self._coordinators.stats.answered(op, answer)
                return self._reply(request, answers)
            if None not in answers and self._api.rows is not None:
                return self._later(request, self._gathered(request, self._api.rows))
        reply = self._later(request, self._when_answered(request, asked))
        # Not in the task itself: one that is cancelled before its first turn never runs.
        reply.add_done_callback(partial(self._close, asked))
        return reply

    def _later(
        self, request: GroupRequest, reply: Coroutine[Any, Any, Reply | None]
    ) -> asyncio.Task[Reply | None]:
        return asyncio.ensure_future(in_steps(request.context.charges, reply))

    async def _gathered(
        self, request: GroupRequest, rows: Callable[[Coordinators], int]
    ) -> Reply | None:
        """Take room for the most rows that the answers can have, ask the coordinators, and return
        the reply. If the answers are larger and there is no more room at once, drop them, wait for
        room, and ask again: waiting requests hold none."""
        with ReplyRoom(request.context.connection.account) as room:
            await room.take_estimate(rows(self._coordinators) * _ROW_BYTES)
            found = await self._gather(request, self._ask(request, self._api.asks(request)))
            if not room.settle(found.size):
                size, found = found.size, _NOTHING_HEARD
                room.give_back()
                await room.take(size)
                found = await self._gather(request, self._ask(request, self._api.asks(request)))
            return await self._made(request, found, room)

    async def _when_answered(self, request: GroupRequest, asked: list[_Question]) -> Reply | None:
        found = await self._gather(request, asked)
        with ReplyRoom(request.context.connection.account) as room:
            await room.take(found.size)
            return await self._made(request, found, room)

    async def _gather(self, request: GroupRequest, asked: Iterable[_Question]) -> _Heard:
        """Wait for the answers to these questions, and return them. Count them in the metrics."""
        answers: list[object] = []
        rows = size = 0
        async for one in in_turns(asked):
            answer = await _heard(one.asker)
            while isinstance(answer, GroupShrunk):
                (again,) = self._ask(request, (one.op,))
                answer = await _heard(again.asker)
            # The right may have been revoked meanwhile.
            answers.append(_NOT_AUTHORIZED if self._api.refuses(request, one.op) else answer)
            self._coordinators.stats.answered(one.op, answers[-1])
            rows += _rows(answers[-1])
            async for row_size in in_turns(_sizes(answers[-1])):
                size += row_size
        return _Heard(answers, rows, size)

    async def _made(self, request: GroupRequest, found: _Heard, room: ReplyRoom) -> Reply:
        reply = partial(self._reply, request, found.answers)
        short = found.rows <= ROWS_AT_ONCE
        return room.reply(reply() if short else await self._aside.do(reply))

    def _reply(self, request: GroupRequest, answers: list[object]) -> Reply:
        values = self._api.tells(request, answers)
        return encode_response(request.context.api_key, request.version, values)

    def _close(self, asked: list[_Question], reply: asyncio.Future[Reply | None]) -> None:
        """If the request was cancelled, because its client has disconnected, withdraw its pending
        joins, so that their groups do not wait for it. Otherwise do nothing."""
        for op, asker in asked if reply.cancelled() else ():
            if isinstance(op, JoinGroup) and not asker.answered:
                gone = CloseRequest(group_id=op.group_id, token=asker)
                self._coordinators.order(op.group_id, gone)


async def _heard(asker: Asker) -> object:
    """Return the asker's answer; wait for it if there is none yet."""
    return await asker.future() if asker.answer_value is None else asker.answer_value


_NOT_AUTHORIZED = RefusedAsWhole(Code.GROUP_AUTHORIZATION_FAILED)


def _refused_asker(refusal: RefusedAsWhole) -> Asker:
    """Return an asker with this answer, without asking a coordinator."""
    asker = Asker()
    asker.answer(refusal)
    return asker


def _rows(answer: object) -> int:
    """Return the number of rows that an answer takes in a response. Return a number above
    `ROWS_AT_ONCE` if the answer is not complete yet."""
    match answer:
        case OffsetsCommitted(rows) | OffsetsFetched(rows) | GroupsListed(rows) | MembersLeft(rows):
            return len(rows)
        case GroupDescribed(members=rows) | GroupJoined(members=rows):
            return len(rows)
        case AllOffsetsFetched(topics):
            return sum(len(partitions) for partitions in topics.values())
        case GroupShrunk():
            return ROWS_AT_ONCE + 1
    return 1


def _is_short(answers: list[object]) -> bool:
    """Return True if a reply with these answers has at most ROWS_AT_ONCE rows and is small enough
    to be encoded on the event loop, without memory taken for it first."""
    if sum(map(_rows, answers)) > ROWS_AT_ONCE:
        return False
    return sum(size for answer in answers for size in _sizes(answer)) <= TOLD_AT_ONCE + (
        ROWS_AT_ONCE * _ROW_BYTES
    )


def _sizes(answer: object) -> Iterator[int]:
    """Yield the most memory, in bytes, that each row of an answer takes while it is encoded."""
    match answer:
        case OffsetsFetched(rows):
            return (_text_bytes(row.topic, row.metadata) for row in rows)
        case AllOffsetsFetched(topics):
            return (
                _text_bytes(topic, committed.metadata)
                for topic, partitions in topics.items()
                for committed in partitions.values()
            )
        case GroupsListed(rows):
            return (_text_bytes(group.group_id) for group in rows)
        case GroupDescribed(members=rows):
            return (
                _text_bytes(one.member_id, one.client_id) + len(one.metadata) + len(one.assignment)
                for one in rows
            )
        case GroupJoined(members=rows):
            return (_text_bytes(one.member_id) + len(one.metadata) for one in rows)
    return iter((_ROW_BYTES * _rows(answer),))


def _text_bytes(*texts: str) -> int:
    """Return an upper bound, in bytes, of the memory of a reply's row with these texts in UTF-8."""
    return _ROW_BYTES + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)


# --- what several APIs are made of ----------------------------------------------------------------


def code_of(answer: object) -> Code:
    """Return the error code of an operation as a whole: NONE unless it was refused as a whole."""
    return answer.code if isinstance(answer, RefusedAsWhole) else Code.NONE


def codes_of(size: int, answer: object) -> list[Code]:
    """Return the error codes of the `size` partitions of a commit, or of a part of it."""
    if isinstance(answer, OffsetsCommitted):
        return [one.code for one in answer.partitions]
    return [code_of(answer)] * size


def portions(items: Iterator[T]) -> Iterator[tuple[T, ...]]:
    """Yield the items in portions of at most `PARTITIONS_AT_ONCE`. If there are no items, yield one
    empty portion."""
    portion = tuple(islice(items, PARTITIONS_AT_ONCE))
    yield portion
    while portion := tuple(islice(items, PARTITIONS_AT_ONCE)):
        yield portion


def by_topic(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Group (topic name, partition row) pairs into response entries, in order: one entry for each
    run of consecutive pairs with the same topic."""
    return [
        {"name": name, "partitions": [row for _, row in found]}
        for name, found in groupby(rows, key=lambda row: row[0])
    ]
