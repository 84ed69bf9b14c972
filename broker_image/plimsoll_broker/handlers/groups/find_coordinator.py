"""FindCoordinator: the broker that coordinates a group, or a transactional id.

Any broker answers, from its metadata. The first request has the controller create the internal
topic; until that has a leader, clients are told to retry. Transactions are served only if the
broker has them.
Source: KIP-699 (many keys); docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.coordinator.verifier import ServedTransactions
from plimsoll_broker.handlers.cluster_view import ClusterView, endpoint_of
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.topic_names import (
    GROUP_OFFSETS,
    METADATA_VERSION,
    TRANSACTION_STATE,
)
from plimsoll_core.coordination.hashing import partition_of
from plimsoll_core.errors import Code
from plimsoll_core.groups.checks import check_group_id
from plimsoll_core.transactions.checks import check_named
from plimsoll_wire.messages import encode_response

_MANY_KEYS_VERSION = 4
"""The request version from which on a request may name many keys. Older versions are librdkafka's:
it looks for a transaction coordinator until its timeout, unless it gets the one error that it
passes to its application, with this broker's message."""
_GROUP = 0
_TRANSACTION = 1
BYTES_AT_ONCE = 1024
"""The largest request body, in bytes, that is handled on the event loop. It holds a few hundred
keys, which are answered within a few milliseconds."""


class _Found(NamedTuple):
    """The result for one key: its coordinator's broker id, host and port, or an error."""

    code: Code
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1

    def values(self) -> dict[str, Any]:
        return {
            "error_code": self.code,
            "error_message": self.message,
            "node_id": self.node_id,
            "host": self.host,
            "port": self.port,
        }


_NO_TRANSACTIONS = _Found(Code.INVALID_REQUEST, "This cluster does not support transactions.")
_NO_TRANSACTIONS_FOR_OLDER = _NO_TRANSACTIONS._replace(
    code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
)
_NOT_YET = _Found(Code.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available yet; retry.")
_TOO_OLD = _Found(
    Code.COORDINATOR_NOT_AVAILABLE,
    "Consumer groups cannot be used yet: they need metadata version 0.2, which the cluster "
    "finalises when every broker runs that release.",
)


_WANTED = _Found(
    Code.COORDINATOR_NOT_AVAILABLE, "The coordinators' internal topic is being created; retry."
)


class FindCoordinatorHandler:
    """The handler of FindCoordinator; `__call__` serves a request."""

    def __init__(
        self,
        view: ClusterView,
        topics: InternalTopics,
        transactions: ServedTransactions | None = None,
    ) -> None:
        self._view = view
        self._topics = topics
        self._transactions = transactions

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply]:
        served = self._transactions
        kinds = frozenset({_GROUP, _TRANSACTION} if served is not None and served.now else {_GROUP})
        answer = partial(_answer, self._view.image, context, kinds)
        if len(context.body) > BYTES_AT_ONCE:
            return self._aside(answer)
        return self._reply(*answer())

    async def _aside(self, answer: Callable[[], tuple[bytes, str | None]]) -> Reply:
        return self._reply(*await self._view.aside.do(answer))

    def _reply(self, reply: bytes, wanted: str | None) -> Reply:
        if wanted is not None:
            self._topics.want(wanted)
        return reply


def _answer(
    image: ClusterImage, context: RequestContext, kinds: frozenset[int]
) -> tuple[bytes, str | None]:
    """Return the encoded response, and the name of the internal topic that must be created before
    the client retries; None if none must. `kinds`: the types of keys that are served."""
    version = context.api_version
    request = context.decoded()
    kind = getattr(request, "key_type", _GROUP)
    many = version >= _MANY_KEYS_VERSION
    keys = request.coordinator_keys if many else (request.key,)
    listener = context.connection.listener
    if kind == _TRANSACTION and kind not in kinds:
        found = [_NO_TRANSACTIONS if many else _NO_TRANSACTIONS_FOR_OLDER] * len(keys)
    else:
        found = [_find(image, kind, key, listener) for key in keys]
    told = [{"key": key, **one.values()} for key, one in zip(keys, found, strict=True)]
    values = {"coordinators": told} if many else told[0]
    wanted = _TOPICS[kind] if _WANTED in found else None
    return encode_response(context.api_key, version, values), wanted


_TOPICS = {_GROUP: GROUP_OFFSETS, _TRANSACTION: TRANSACTION_STATE}
_CHECKS = {_GROUP: check_group_id, _TRANSACTION: check_named}


def _find(image: ClusterImage, kind: int, key: str, listener: Listener) -> _Found:
    if kind not in _TOPICS:
        return _Found(
            Code.INVALID_REQUEST,
            f"The request asks for a coordinator of type {kind}, which this cluster does not "
            "support.",
        )
    refusal = _CHECKS[kind](key)
    if refusal is not None:
        return _Found(refusal.code, refusal.message)
    topic_id = image.topic_ids.get(_TOPICS[kind])
    partitions = 0 if topic_id is None else image.topics[topic_id].partitions
    if topic_id is None or not partitions:
        return _TOO_OLD if image.metadata_version < METADATA_VERSION else _WANTED
    return _leader(image, PartitionKey(topic_id, partition_of(key, partitions)), listener)


def _leader(image: ClusterImage, key: PartitionKey, listener: Listener) -> _Found:
    partition = image.partitions.get(key)
    leader = None if partition is None else partition.leader
    broker = None if leader is None else image.brokers.get(leader)
    endpoint = None if broker is None or broker.fenced else endpoint_of(broker, listener)
    if broker is None or endpoint is None:
        return _NOT_YET
    return _Found(Code.NONE, None, broker.id, endpoint.host, endpoint.port)
