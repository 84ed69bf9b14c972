"""The gate: every request's rights are checked here, before its handler is called.

`guarded` wraps a table of handlers, for each port that clients reach. A request of an API without a
row in `security.requirements` or without a guard is refused. If authorization is off, requests go
straight to their handlers. A request that names many items, or asks for all of many, is parsed and
decided in a thread, and its reply is changed in another: the event loop never compares one request
with the ACLs for long (`docs/design/006-event-loop.md`).

`GUARDS`: the guard of each API, a row for each key that `security.requirements` names. IN_HANDLER:
the handler checks the rights, since they are decided anew at each look (Fetch), in the turn of the
append (Produce), or for each operation on a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside, is_short
from plimsoll_broker.handlers.security import guards
from plimsoll_broker.handlers.security.guards import (
    NOT_AUTHORIZED,
    Asking,
    EachTopic,
    Guard,
    Guarded,
    Values,
    changed,
    free,
    on_cluster,
    on_configs,
    plain,
)
from plimsoll_broker.security.authority import Authority, Rights
from plimsoll_broker.server.client_quotas import in_steps
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_wire.api_versions import ApiKey

IN_HANDLER = free
_OF_ALL = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
_Op = AclOperation


def asks_for_all(context: RequestContext, request: Any) -> bool:
    """Return True if the request is for all topics (Metadata, DescribeTopicPartitions), so that
    each existing topic has to be compared with the ACLs."""
    return context.api_key in _OF_ALL and not request.topics


# --- as a whole, on the cluster ------------------------------------------------------------------

_CLUSTER = Code.CLUSTER_AUTHORIZATION_FAILED


def _no_elections(request: Any) -> Values:
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": index, "error_code": _CLUSTER, "error_message": NOT_AUTHORIZED}
                for index in topic.partitions
            ],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": _CLUSTER, "replica_election_results": results}


def _no_moves(request: Any) -> Values:
    responses = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": _CLUSTER,
                    "error_message": NOT_AUTHORIZED,
                }
                for one in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"error_code": _CLUSTER, "error_message": NOT_AUTHORIZED, "responses": responses}


def _nothing_in(field: str) -> Callable[[Any], Values]:
    def refused(_: Any) -> Values:
        return {"error_code": _CLUSTER, "error_message": NOT_AUTHORIZED, field: []}

    return refused


def _each_refused(asked: str, told: str, **more: Any) -> Callable[[Any], Values]:
    def refused(request: Any) -> Values:
        entry = {"error_code": _CLUSTER, "error_message": NOT_AUTHORIZED, **more}
        return {told: [entry for _ in getattr(request, asked)]}

    return refused


def _no_quotas(request: Any) -> Values:
    entries = [
        {"error_code": _CLUSTER, "error_message": NOT_AUTHORIZED, "entity": plain(entry.entity)}
        for entry in request.entries
    ]
    return {"entries": entries}


def _no_credentials(request: Any) -> Values:
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    results = [
        {"user": user, "error_code": _CLUSTER, "error_message": NOT_AUTHORIZED} for user in users
    ]
    return {"results": results}


GUARDS: Mapping[ApiKey, Guard] = {
    ApiKey.PRODUCE: IN_HANDLER,
    ApiKey.FETCH: IN_HANDLER,
    ApiKey.LIST_OFFSETS: EachTopic(_Op.DESCRIBE, guards.offsets),
    ApiKey.METADATA: guards.metadata,
    ApiKey.OFFSET_COMMIT: IN_HANDLER,
    ApiKey.OFFSET_FETCH: IN_HANDLER,
    ApiKey.FIND_COORDINATOR: guards.find_coordinator,
    ApiKey.JOIN_GROUP: IN_HANDLER,
    ApiKey.HEARTBEAT: IN_HANDLER,
    ApiKey.LEAVE_GROUP: IN_HANDLER,
    ApiKey.SYNC_GROUP: IN_HANDLER,
    ApiKey.DESCRIBE_GROUPS: IN_HANDLER,
    ApiKey.LIST_GROUPS: IN_HANDLER,
    ApiKey.SASL_HANDSHAKE: free,
    ApiKey.SASL_AUTHENTICATE: free,
    ApiKey.CREATE_TOPICS: guards.create_topics,
    ApiKey.DELETE_TOPICS: guards.delete_topics,
    ApiKey.DELETE_RECORDS: EachTopic(_Op.DELETE, guards.records_deleted),
    ApiKey.INIT_PRODUCER_ID: guards.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: EachTopic(
        _Op.DESCRIBE, guards.epoch_ends, name="topic", on_all=_Op.CLUSTER_ACTION
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: guards.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: guards.add_offsets,
    ApiKey.END_TXN: guards.end_transaction,
    ApiKey.WRITE_TXN_MARKERS: on_cluster(_Op.CLUSTER_ACTION, guards.no_markers),
    ApiKey.TXN_OFFSET_COMMIT: guards.commit_in_transaction,
    ApiKey.DESCRIBE_ACLS: on_cluster(_Op.DESCRIBE, _nothing_in("resources")),
    ApiKey.CREATE_ACLS: on_cluster(_Op.ALTER, _each_refused("creations", "results")),
    ApiKey.DELETE_ACLS: on_cluster(
        _Op.ALTER, _each_refused("filters", "filter_results", matching_acls=[])
    ),
    ApiKey.DESCRIBE_CONFIGS: on_configs(_Op.DESCRIBE_CONFIGS, "results", shows_configs=True),
    ApiKey.ALTER_CONFIGS: on_configs(_Op.ALTER_CONFIGS, "responses"),
    ApiKey.DESCRIBE_LOG_DIRS: on_cluster(_Op.DESCRIBE, _nothing_in("results")),
    ApiKey.CREATE_PARTITIONS: EachTopic(_Op.ALTER, guards.partitions_created, told="results"),
    ApiKey.DELETE_GROUPS: IN_HANDLER,
    ApiKey.ELECT_LEADERS: on_cluster(_Op.ALTER, _no_elections),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: on_configs(_Op.ALTER_CONFIGS, "responses"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: on_cluster(_Op.ALTER, _no_moves),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on_cluster(_Op.DESCRIBE, _nothing_in("topics")),
    ApiKey.OFFSET_DELETE: IN_HANDLER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(_Op.DESCRIBE_CONFIGS, _nothing_in("entries")),
    ApiKey.ALTER_CLIENT_QUOTAS: on_cluster(_Op.ALTER_CONFIGS, _no_quotas),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(_Op.DESCRIBE, _nothing_in("results")),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: on_cluster(_Op.ALTER, _no_credentials),
    ApiKey.DESCRIBE_CLUSTER: free,
    ApiKey.DESCRIBE_PRODUCERS: EachTopic(_Op.READ, guards.producers),
    ApiKey.DESCRIBE_TRANSACTIONS: guards.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: IN_HANDLER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: free,
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(_Op.DESCRIBE_CONFIGS, _nothing_in("config_resources")),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: guards.describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: free,
}
"""The guard of each API. A request of an API that is not listed is refused."""


Result = Reply | Awaitable[Reply | None] | None
"""The type of a handler's result: a reply, one that comes later, or None."""
REPLY_BYTES_AT_ONCE = 4096
"""The largest reply, in bytes, that is changed on the event loop."""


def guarded(
    handlers: Mapping[ApiKey, Handler], authority: Authority, aside: Aside
) -> dict[ApiKey, Handler]:
    """Return a table of the same handlers, each wrapped so that the guard of its API decides first.
    An API without a guard is always refused. `authority`: gives the rights of a connection; without
    authorization the handler is called directly."""
    table: dict[ApiKey, Handler] = {}
    for key, handler in handlers.items():
        guard = GUARDS.get(key) if key in REQUIREMENTS else None
        table[key] = partial(_handle, guard, handler, authority, aside)
    return table


def _handle(
    guard: Guard | None,
    handler: Handler,
    authority: Authority,
    aside: Aside,
    context: RequestContext,
) -> Result:
    rights = authority.rights_of(context.connection)
    if rights is None:
        return handler(context)
    if guard is None:
        raise CloseConnection("no-requirement")
    context.rights = rights
    if guard is IN_HANDLER:
        return handler(context)
    passage = _Passage(context, rights, guard, handler, aside)
    if not is_short(context):
        return passage.later(None)
    request = context.decoded()
    if authority.topics <= THINGS_AT_ONCE or not asks_for_all(context, request):
        return passage.now(request)
    if rights.has_asked(context.api_key, context.api_version, context.body):
        return passage.now(request)
    return passage.later(request)


class _Passage:
    """One request with its guard: the guard decides, the handler is called, and its reply is
    changed. `now` does so at once; `later` decides in a thread."""

    __slots__ = ("_aside", "_context", "_guard", "_handler", "_long", "_rights")

    def __init__(
        self,
        context: RequestContext,
        rights: Rights,
        guard: Guard,
        handler: Handler,
        aside: Aside,
    ) -> None:
        self._context = context
        self._rights = rights
        self._guard = guard
        self._handler = handler
        self._aside = aside
        # True if it names or asks for many items: its refusals may be long, too.
        self._long = False

    def now(self, request: Any) -> Result:
        return self._carry_out(self._guard(Asking(self._context, request, self._rights)))

    async def later(self, request: Any | None) -> Reply | None:
        self._long = True
        result = self._carry_out(await self._aside.do(partial(self._decide, request)))
        return await result if isinstance(result, Awaitable) else result

    def _decide(self, request: Any | None) -> Guarded:
        """Return the guard's decision. Parse the request first if `request` is None. Called in a
        thread."""
        if request is None:
            context = self._context
            request = context.decoded()
        return self._guard(Asking(self._context, request, self._rights))

    def _carry_out(self, verdict: Guarded) -> Result:
        if verdict.told is not None:
            return verdict.told
        context = self._context
        if verdict.body is not None:
            context.replace_body(verdict.body)
        context.changes = verdict.changes
        result = self._handler(context)
        if not verdict.changes or context.applies_changes or result is None:
            return result
        if isinstance(result, Awaitable):
            return self._begun(self._changed_later(result, verdict))
        body = _joined(result)
        if not self._is_long(body):
            return changed(self._context, body, verdict.changes)
        return self._begun(self._changed_aside(body, verdict))

    def _begun(self, work: Coroutine[Any, Any, Reply | None]) -> asyncio.Future[Reply | None]:
        return asyncio.ensure_future(in_steps(self._context.charges, work))

    async def _changed_later(
        self, result: Awaitable[Reply | None], verdict: Guarded
    ) -> Reply | None:
        reply = await result
        if reply is None:
            return None
        return await self._changed_aside(_joined(reply), verdict)

    async def _changed_aside(self, body: bytes, verdict: Guarded) -> bytes:
        change = partial(changed, self._context, body, verdict.changes)
        return await self._aside.do(change) if self._is_long(body) else change()

    def _is_long(self, reply: bytes) -> bool:
        return self._long or len(reply) > REPLY_BYTES_AT_ONCE


def _joined(reply: Reply) -> bytes:
    pieces = (reply,) if isinstance(reply, bytes | bytearray | memoryview) else reply
    return b"".join(pieces)
