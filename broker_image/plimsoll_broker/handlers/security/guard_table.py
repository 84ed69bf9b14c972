"""The guard of each API: a row for each key that `security.requirements` names.

IN_HANDLER: rights that the handler checks, since they are decided anew at each look (Fetch), in the
turn of the append (Produce), or for each operation on a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll_broker.handlers.security import guards
from plimsoll_broker.handlers.security.asking import Values, plain
from plimsoll_broker.handlers.security.guards import (
    NOT_AUTHORIZED,
    EachTopic,
    Guard,
    free,
    on_cluster,
    on_configs,
)
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation
from plimsoll_wire.api_versions import ApiKey

IN_HANDLER = free
_OF_ALL = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
_Op = AclOperation


def asks_for_all(context: RequestContext, request: Any) -> bool:
    """Return True if the request asks for all topics, so that each is compared with the rules."""
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
    ApiKey.CONSUMER_GROUP_HEARTBEAT: free,
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(_Op.DESCRIBE_CONFIGS, _nothing_in("config_resources")),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: guards.describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: free,
}
"""An API that is not listed is refused."""
