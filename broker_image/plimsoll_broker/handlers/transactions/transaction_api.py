"""TransactionApi and TransactionHandler: the common part of the APIs that ask transaction
coordinators.

A `TransactionApi` describes one API: the operations that a request asks of the coordinators, and
the response made from their answers. `plimsoll_core.transactions.step` makes the decisions. A short
request is decided in the call itself. What walks along a long request, or along long answers, runs
in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside, in_turns, is_short
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.transactions.operations import (
    ListTransactions,
    PartitionsVerified,
    TransactionOperation,
)
from plimsoll_core.transactions.records import TransactionStored
from plimsoll_wire.messages import encode_response

Asks = Callable[["TransactionRequest"], Iterable[TransactionOperation]]
Tells = Callable[["TransactionRequest", list[object]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A parsed request. `image`: the newest metadata that the broker has applied."""

    context: RequestContext
    value: Any
    image: ClusterImage

    @property
    def version(self) -> int:
        return self.context.api_version


@dataclass(frozen=True, slots=True)
class TransactionApi:
    """The description of one API. `asks`: returns the operations of a request; each names its
    transactional id. `tells`: returns the response's values from the answers, in the order of the
    operations. Both may run in a thread."""

    asks: Asks
    tells: Tells


class TransactionHandler:
    """The handler of one API; `__call__` serves a request."""

    def __init__(
        self, api: TransactionApi, coordinators: TransactionCoordinators, aside: Aside
    ) -> None:
        self._api = api
        self._coordinators = coordinators
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply]:
        if not is_short(context):
            return _begun(context, self._later(context))
        request = self._request(context, context.decoded())
        ops = self._operations(request)
        if len(ops) > THINGS_AT_ONCE:
            return _begun(context, self._in_slices(request, ops, 0))
        askers = [self._ask(op) for op in ops]
        answers = [one.answer_value for one in askers]
        if None not in answers and sum(map(_partitions_in, answers)) <= THINGS_AT_ONCE:
            return self._reply(request, answers)
        return _begun(context, self._when_answered(request, askers, 0))

    def _request(self, context: RequestContext, value: Any) -> TransactionRequest:
        image = self._coordinators.manager.image
        assert image is not None, "it serves"
        return TransactionRequest(context, value, image)

    def _operations(self, request: TransactionRequest) -> list[TransactionOperation]:
        return list(self._api.asks(request))

    def _ask(self, op: TransactionOperation) -> Asker:
        assert not isinstance(op, ListTransactions), "it names no transactional id"
        return self._coordinators.ask(op.transactional_id, op)

    async def _later(self, context: RequestContext) -> Reply:
        value, named = await self._aside.received(context)
        request = self._request(context, value)
        ops = await self._aside.some(named, partial(self._operations, request))
        return await self._in_slices(request, ops, named)

    async def _in_slices(
        self, request: TransactionRequest, ops: list[TransactionOperation], named: int
    ) -> Reply:
        askers = [self._ask(op) async for op in in_turns(ops)]
        return await self._when_answered(request, askers, named)

    async def _when_answered(
        self, request: TransactionRequest, askers: list[Asker], named: int
    ) -> Reply:
        """Return the reply once all askers have their answers. `named`: the most items that the
        request names, if it is long."""
        answers = [one.answer_value or await one.future() async for one in in_turns(askers)]
        rows = named + len(answers) + sum(map(_partitions_in, answers))
        return await self._aside.some(rows, partial(self._reply, request, answers))

    def _reply(self, request: TransactionRequest, answers: list[object]) -> Reply:
        values = self._api.tells(request, answers)
        return encode_response(request.context.api_key, request.version, values)


def _begun(context: RequestContext, work: Coroutine[Any, Any, Reply]) -> asyncio.Future[Reply]:
    return asyncio.ensure_future(in_steps(context.charges, work))


def _partitions_in(answer: object) -> int:
    """Return the number of partitions that an answer names."""
    if isinstance(answer, TransactionStored | PartitionsVerified):
        return len(answer.partitions)
    return 0


def code_for(answer: object, version: int, knows_fenced: int) -> Code:
    """Return the error code of an answer, NONE if it refuses nothing. Before the request version
    `knows_fenced` clients know an older code for a fenced producer."""
    if not isinstance(answer, RefusedAsWhole):
        return Code.NONE
    if answer.code is Code.PRODUCER_FENCED and version < knows_fenced:
        return Code.INVALID_PRODUCER_EPOCH
    return answer.code
