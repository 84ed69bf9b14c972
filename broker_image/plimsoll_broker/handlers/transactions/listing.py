"""The APIs by which tools look at transactions: DescribeTransactions and ListTransactions.

A tool asks the coordinator of an id, and every broker for a list. Source: KIP-664.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Any

from plimsoll_broker.coordinator.transaction_coordinators import TransactionCoordinators
from plimsoll_broker.handlers.long_work import Aside, in_turns
from plimsoll_broker.handlers.transactions.transaction_api import (
    TransactionApi,
    TransactionRequest,
    code_for,
)
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import ResourceType
from plimsoll_core.transactions.operations import (
    DescribeTransaction,
    ListTransactions,
    TransactionsListed,
)
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_wire.messages import encode_response

_NO_FENCED_VERSION = 0


def _described(request: TransactionRequest) -> list[str]:
    """Return the ids that the request names, each once."""
    return list(dict.fromkeys(map(str, request.value.transactional_ids)))


def _describe_operations(request: TransactionRequest) -> Iterator[DescribeTransaction]:
    for name in _described(request):
        yield DescribeTransaction(transactional_id=name)


def _describe_values(request: TransactionRequest, answers: list[object]) -> dict[str, Any]:
    told = zip(_described(request), answers, strict=True)
    return {"transaction_states": [_state(request, name, answer) for name, answer in told]}


def undescribed(name: str, code: Code) -> dict[str, Any]:
    """Return the row of a transactional id that is answered with an error alone."""
    return {
        "error_code": code,
        "transactional_id": name,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }


def _state(request: TransactionRequest, name: str, answer: object) -> dict[str, Any]:
    nothing = undescribed(name, code_for(answer, request.version, _NO_FENCED_VERSION))
    if not isinstance(answer, TransactionStored):
        return nothing
    rights = request.context.rights
    topics: dict[str, list[int]] = {}
    for one in answer.partitions:
        if rights is None or rights.sees(ResourceType.TOPIC, one.topic):
            topics.setdefault(one.topic, []).append(one.partition)
    return {
        **nothing,
        "transaction_state": answer.status.kafka_name,
        "transaction_timeout": answer.timeout_ms,
        "transaction_start_time": answer.start_ms,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "topics": [{"topic": name, "partitions": ids} for name, ids in topics.items()],
    }


DESCRIBE_TRANSACTIONS = TransactionApi(_describe_operations, _describe_values)
_STATES = {one.kafka_name.lower() for one in Status}


def list_transactions(coordinators: TransactionCoordinators, aside: Aside) -> Handler:
    """Return the handler of ListTransactions. It lists the ids of the shards that are here, and
    refuses the request while one of them is loading. A client that may describe no id at all is
    told of none, and no shard is asked."""

    def handle(context: RequestContext) -> Awaitable[Reply]:
        listed = _listed(context, coordinators, aside)
        return asyncio.ensure_future(in_steps(context.charges, listed))

    return handle


async def _listed(
    context: RequestContext, coordinators: TransactionCoordinators, aside: Aside
) -> Reply:
    request = await aside.decoded(context)
    states = [one.lower() for one in request.state_filters]
    op = ListTransactions(
        states=frozenset(states),
        producer_ids=frozenset(map(int, request.producer_id_filters)),
        running_ms=getattr(request, "duration_filter", -1),
    )
    found: list[TransactionStored] = []
    code = Code.NONE
    rights = context.rights
    sees_any = rights is None or rights.sees_any(ResourceType.TRANSACTIONAL_ID)
    async for shard in in_turns(coordinators.shards() if sees_any else ()):
        answer = await shard.ask(op).future()
        if isinstance(answer, RefusedAsWhole) and answer.code is not Code.NOT_COORDINATOR:
            code = answer.code
        elif isinstance(answer, TransactionsListed):
            found += answer.ids
    unknown = [name for name in request.state_filters if name.lower() not in _STATES]
    reply = partial(_list_reply, context, code, unknown, found)
    return await aside.some(len(found), reply)


def _list_reply(
    context: RequestContext, code: Code, unknown: list[str], found: list[TransactionStored]
) -> bytes:
    rights = context.rights
    told = [
        {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "transaction_state": one.status.kafka_name,
        }
        for one in (found if code is Code.NONE else ())
        if rights is None or rights.sees(ResourceType.TRANSACTIONAL_ID, one.transactional_id)
    ]
    values = {
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": told,
    }
    return encode_response(context.api_key, context.api_version, values)
