"""The requests of the matrix: every API that is served, in the versions whose answers differ.

They name `orders` (there is such a topic), `secret` (there is, and nobody has rights on it by
name), `nothing` (there is none), the group `mine` and the transactional id `payments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.plimsoll_broker.security.guard_cases import ACL_FILTER, CREATION
from tests.plimsoll_broker.trio import a_batch

from plimsoll_wire.api_versions import SUPPORTED, ApiKey

TOPICS = ("orders", "secret")
GROUP, TRANSACTION = "mine", "payments"
NOBODYS_ID = UUID(int=77)
Values = dict[str, Any]
Ids = Mapping[str, UUID]
_REQUESTS: list[Request] = []


@dataclass(frozen=True, slots=True)
class Request:
    """`values`: of the ids of topics.  `changes`: it may take something away, which is put back."""

    name: str
    key: ApiKey
    version: int
    values: Callable[[Ids], Values]
    changes: bool = False


def _add(
    key: ApiKey,
    values: Values | Callable[[Ids], Values],
    *versions: int,
    of: str = "",
    changes: bool = False,
) -> None:
    for version in versions or (SUPPORTED[key].last,):
        name = f"{key.name} v{version}{' ' if of else ''}{of}"
        made = values if callable(values) else _fixed(values)
        _REQUESTS.append(Request(name, key, version, made, changes))


def _fixed(values: Values) -> Callable[[Ids], Values]:
    return lambda _: values


# --- records --------------------------------------------------------------------------------------


def _produce(transactional_id: str | None = None) -> Values:
    data = [
        {"name": name, "partition_data": [{"index": 0, "records": a_batch(1)}]}
        for name in ("orders", "secret", "nothing")
    ]
    return {"transactional_id": transactional_id, "acks": 1, "timeout": 5000, "topic_data": data}


_add(ApiKey.PRODUCE, _produce(), 3, 10)
_add(ApiKey.PRODUCE, _produce(TRANSACTION), of="of a transaction")

_WHERE = {
    "partition": 0,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "partition_max_bytes": 1,
}


def _fetch(ids: Ids, replica: int = -1) -> Values:
    named = {**{name: ids[name] for name in TOPICS}, "nothing": NOBODYS_ID}
    return {
        "cluster_id": None,
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": name, "topic_id": topic_id, "partitions": [_WHERE]}
            for name, topic_id in named.items()
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


_add(ApiKey.FETCH, _fetch, 4, 12, 13, 17)


def _each(field: str, partition: Values, partitions: str = "partitions") -> list[Values]:
    return [{field: name, partitions: [partition]} for name in ("orders", "secret", "nothing")]


_add(
    ApiKey.LIST_OFFSETS,
    {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": _each(
            "name", {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        ),
        "timeout": 1000,
    },
    *(1, 9),
)
_add(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    {
        "replica_id": -1,
        "topics": _each("topic", {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}),
    },
    *(2, 4),
)
_add(
    ApiKey.DELETE_RECORDS,
    {"topics": _each("name", {"partition_index": 0, "offset": 0}), "timeout": 5000},
)
_add(
    ApiKey.DESCRIBE_PRODUCERS,
    {"topics": [{"name": name, "partition_indexes": [0]} for name in (*TOPICS, "nothing")]},
)
for _id, _what in ((None, "without a transaction"), (TRANSACTION, "of a transaction")):
    _add(
        ApiKey.INIT_PRODUCER_ID,
        {
            "transactional_id": _id,
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        *(0, 5) if _id is None else (5,),
        of=_what,
    )

# --- metadata -------------------------------------------------------------------------------------


def _metadata(*topics: Values, all_of_them: bool = False, told: bool = True) -> Values:
    return {
        "topics": None if all_of_them else list(topics),
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": told,
        "include_topic_authorized_operations": told,
    }


_NAMED = tuple({"name": name, "topic_id": None} for name in ("orders", "secret", "nothing"))
_add(ApiKey.METADATA, _metadata(), 0, of="of all")
_add(ApiKey.METADATA, _metadata(all_of_them=True), 1, 8, 10, 13, of="of all")
_add(ApiKey.METADATA, _metadata(all_of_them=True, told=False), 10, of="of all, plain")
_add(ApiKey.METADATA, _metadata(*_NAMED), 0, 4, 8, 10, 13, of="by name")
_add(ApiKey.METADATA, _metadata(*_NAMED, told=False), 10, of="by name, plain")
_add(
    ApiKey.METADATA,
    lambda ids: _metadata(
        *({"name": None, "topic_id": ids[name]} for name in TOPICS),
        {"name": None, "topic_id": NOBODYS_ID},
    ),
    *(12, 13),
    of="by id",
)
_add(
    ApiKey.METADATA,
    {**_metadata(*_NAMED, told=False), "allow_auto_topic_creation": True},
    *(4, 12),
    of="by name, to be made",
)
_ASKED = {"endpoint_type": 1, "include_fenced_brokers": False}
for _told in (True, False):
    _add(
        ApiKey.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": _told, **_ASKED},
        *((0, 2) if _told else (2,)),
        of="" if _told else "plain",
    )
_DESCRIBED = {"response_partition_limit": 2000, "cursor": None}
_add(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    {"topics": [{"name": name} for name in ("orders", "secret", "nothing")], **_DESCRIBED},
    of="by name",
)
_add(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {"topics": [], **_DESCRIBED}, of="of all")
_add(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, 1, 4)
_add(ApiKey.API_VERSIONS, {"client_software_name": "t", "client_software_version": "1"})

# --- topics ---------------------------------------------------------------------------------------


def _created(name: str) -> Values:
    sizes = {"num_partitions": 1, "replication_factor": 1}
    return {"name": name, **sizes, "assignments": [], "configs": []}


_NOT_REALLY = {"timeout": 5000, "validate_only": True}
_add(ApiKey.CREATE_TOPICS, {"topics": [_created("orders")], **_NOT_REALLY}, of="there is")
_add(
    ApiKey.CREATE_TOPICS,
    {"topics": [_created("orders.new"), _created("secret.new")], **_NOT_REALLY},
    *(4, 7),
)
_add(
    ApiKey.CREATE_PARTITIONS,
    {
        "topics": [
            {"name": name, "count": 2, "assignments": None}
            for name in ("orders", "secret", "nothing")
        ],
        **_NOT_REALLY,
    },
)


def _configs(*resources: tuple[int, str]) -> Values:
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configuration_keys": ["retention.ms"],
                "configs": [],
            }
            for kind, name in resources
        ],
        "validate_only": True,
        "include_synonyms": False,
        "include_documentation": False,
    }


_OF_TOPICS = _configs((2, "orders"), (2, "secret"), (2, "nothing"))
for _key in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
    _add(_key, _OF_TOPICS, of="of topics")
    _add(_key, _configs((32, GROUP)), of="of a group")
    _add(_key, _configs((4, "0")), of="of a broker")
_add(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [2]})
_add(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [4]}, of="of brokers")

# --- groups ---------------------------------------------------------------------------------------

_add(ApiKey.FIND_COORDINATOR, {"key": GROUP, "key_type": 0}, 1, of="of a group")
_add(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP, "other"]}, of="of groups")
_add(
    ApiKey.FIND_COORDINATOR,
    {"key_type": 1, "coordinator_keys": [TRANSACTION, "other"]},
    *(4,),
    of="of transactions",
)
_GHOST = {"member_id": "ghost", "group_instance_id": None}
_IN_GROUP = {"group_id": GROUP, "generation_id": 1, **_GHOST}
_add(
    ApiKey.JOIN_GROUP,
    {
        **_IN_GROUP,
        "session_timeout": 6000,
        "rebalance_timeout": 6000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    },
    *(4, 9),
)
_add(
    ApiKey.SYNC_GROUP,
    {**_IN_GROUP, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
    *(3, 5),
)
_add(ApiKey.HEARTBEAT, _IN_GROUP)
_add(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "member_id": "ghost"}, 2)
_add(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "members": [{**_GHOST, "reason": None}]})
_OFFSET = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}


def committed(group: str = GROUP, *names: str) -> Values:
    """OffsetCommit, of nobody's member."""
    return {
        "group_id": group,
        "generation_id": -1,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {"name": name, "partitions": [{**_OFFSET, "committed_leader_epoch": -1}]}
            for name in names
        ],
        "retention_time_ms": -1,
        "retention_time": -1,
    }


_add(ApiKey.OFFSET_COMMIT, committed(GROUP, "orders", "secret", "nothing"), 2, 9)


def _offsets(group: str, *names: str, all_of_them: bool = False) -> Values:
    topics = [{"name": name, "partition_indexes": [0]} for name in names]
    wanted = None if all_of_them else topics
    one = {"group_id": group, "topics": wanted, "member_id": None, "member_epoch": -1}
    return {"groups": [one], "group_id": group, "topics": wanted, "require_stable": False}


_add(ApiKey.OFFSET_FETCH, _offsets(GROUP, "orders", "secret", "nothing"), 1, 5, 9, of="by name")
_add(ApiKey.OFFSET_FETCH, _offsets(GROUP, all_of_them=True), 2, 7, 9, of="of all")
_add(
    ApiKey.DESCRIBE_GROUPS,
    {"groups": [GROUP, "other"], "include_authorized_operations": True},
    *(0, 3, 5, 6),
)
_add(
    ApiKey.DESCRIBE_GROUPS,
    {"groups": [GROUP], "include_authorized_operations": False},
    of="plain",
)
_add(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}, 0, 5)

# --- the cluster ----------------------------------------------------------------------------------

_add(
    ApiKey.ELECT_LEADERS,
    {
        "election_type": 0,
        "topic_partitions": [{"topic": name, "partitions": [0]} for name in ("orders", "nothing")],
        "timeout": 5000,
    },
)
_add(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    {
        "timeout": 5000,
        "allow_replication_factor_change": True,
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "replicas": None}]}
            for name in ("orders", "nothing")
        ],
    },
)
_add(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": 5000, "topics": None})
_ONE_RULE = {**CREATION, "resource_name": "made", "principal": "User:nobody"}
_NO_RULE = {**ACL_FILTER, "resource_name_filter": "no rule is about this"}
_add(ApiKey.DESCRIBE_ACLS, _NO_RULE)
_add(ApiKey.CREATE_ACLS, {"creations": [_ONE_RULE]})
_add(ApiKey.DELETE_ACLS, {"filters": [_NO_RULE]})
_add(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
_add(
    ApiKey.ALTER_CLIENT_QUOTAS,
    {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                "ops": [{"key": "producer_byte_rate", "value": 1024.0, "remove": False}],
            }
        ],
        "validate_only": True,
    },
)
_add(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "nobody"}]})
_add(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
)

# --- what takes something away --------------------------------------------------------------------

_DELETED = {"topics": _each("name", {"partition_index": 0})}
_add(ApiKey.OFFSET_DELETE, {"group_id": GROUP, **_DELETED}, changes=True)
_add(ApiKey.DELETE_GROUPS, {"groups_names": [GROUP, "other"]}, changes=True)
_add(
    ApiKey.DELETE_TOPICS,
    {"topic_names": ["orders", "nothing"], "timeout": 5000},
    *(5,),
    of="by name",
    changes=True,
)
_add(
    ApiKey.DELETE_TOPICS,
    lambda ids: {
        "topics": [
            {"name": None, "topic_id": ids["orders"]},
            {"name": None, "topic_id": NOBODYS_ID},
        ],
        "timeout": 5000,
    },
    of="by id",
    changes=True,
)

REQUESTS: tuple[Request, ...] = tuple(_REQUESTS)
