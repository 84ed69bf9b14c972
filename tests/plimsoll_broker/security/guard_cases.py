"""For each API that is refused before its handler: a request, Kafka's code, and rights of which
each is enough."""

from __future__ import annotations

from typing import Any

from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_wire.api_versions import ApiKey

Op, Type = AclOperation, ResourceType
TOPIC, GROUP = Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED
CLUSTER, TRANSACTION = (
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
ON_CLUSTER = {"resource": Type.CLUSTER, "name": "kafka-cluster"}
ON_MINE = {"resource": Type.TRANSACTIONAL_ID, "name": "mine"}
OF_MINE = {"transactional_id": "mine", "producer_id": 1, "producer_epoch": 0}
PENDING = {
    **OF_MINE,
    "group_id": "mine",
    "generation_id": -1,
    "member_id": "",
    "group_instance_id": None,
    "topics": [
        {
            "name": "orders",
            "partitions": [
                {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
            ],
        }
    ],
}
"""A TxnOffsetCommit."""
MARKED = {"name": "orders", "partition_indexes": [0]}
MARKER = {
    "producer_id": 1,
    "producer_epoch": 0,
    "transaction_result": True,
    "coordinator_epoch": 0,
    "topics": [MARKED],
}

PARTITION = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
ACL_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
CREATION = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def of_topic(name: str, *partitions: dict[str, Any], field: str = "name") -> dict[str, Any]:
    return {field: name, "partitions": list(partitions)}


def _config(kind: int, name: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None,
        "configs": [],
    }


CASES: list[tuple[ApiKey, dict[str, Any], Code, list[dict[str, Any]]]] = [
    (
        ApiKey.LIST_OFFSETS,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [of_topic("orders", PARTITION)],
            "timeout": 0,
        },
        TOPIC,
        [{"operation": Op.DESCRIBE}, {"operation": Op.READ}],
    ),
    (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {
            "replica_id": -1,
            "topics": [
                of_topic(
                    "orders",
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
                    field="topic",
                )
            ],
        },
        TOPIC,
        [{"operation": Op.DESCRIBE}],
    ),
    (
        ApiKey.DELETE_RECORDS,
        {
            "topics": [of_topic("orders", {"partition_index": 0, "offset": 1})],
            "timeout": 1000,
        },
        TOPIC,
        [{"operation": Op.DELETE}],
    ),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        TOPIC,
        [{"operation": Op.READ}],
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [{"name": "orders", "count": 9, "assignments": None}],
            "timeout": 1000,
            "validate_only": False,
        },
        TOPIC,
        [{"operation": Op.ALTER}],
    ),
    (
        ApiKey.CREATE_TOPICS,
        {
            "topics": [
                {
                    "name": "orders",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": 1000,
            "validate_only": False,
        },
        TOPIC,
        [{"operation": Op.CREATE}, {"operation": Op.CREATE, **ON_CLUSTER}],
    ),
    (
        ApiKey.DELETE_TOPICS,
        {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1000},
        TOPIC,
        [{"operation": Op.DELETE}, {"operation": Op.DELETE, **ON_CLUSTER}],
    ),
    (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None},
        TOPIC,
        [{"operation": Op.DESCRIBE}],
    ),
    (
        ApiKey.FIND_COORDINATOR,
        {"key_type": 0, "coordinator_keys": ["mine"]},
        GROUP,
        [{"operation": Op.DESCRIBE, "resource": Type.GROUP, "name": "mine"}],
    ),
    (
        ApiKey.FIND_COORDINATOR,
        {"key_type": 1, "coordinator_keys": ["mine"]},
        TRANSACTION,
        [{"operation": Op.DESCRIBE, "resource": Type.TRANSACTIONAL_ID, "name": "mine"}],
    ),
    (
        ApiKey.INIT_PRODUCER_ID,
        {
            "transactional_id": None,
            "transaction_timeout": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        CLUSTER,
        [
            {"operation": Op.IDEMPOTENT_WRITE, **ON_CLUSTER},
            {"operation": Op.WRITE, "name": "any"},
        ],
    ),
    (
        ApiKey.INIT_PRODUCER_ID,
        {
            "transactional_id": "mine",
            "transaction_timeout": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        TRANSACTION,
        [{"operation": Op.WRITE, "resource": Type.TRANSACTIONAL_ID, "name": "mine"}],
    ),
    *(
        (
            key,
            {
                "resources": [_config(kind, name)],
                "validate_only": False,
                "include_synonyms": False,
                "include_documentation": False,
            },
            code,
            [{"operation": operation, **right}],
        )
        for key, operation in (
            (ApiKey.DESCRIBE_CONFIGS, Op.DESCRIBE_CONFIGS),
            (ApiKey.ALTER_CONFIGS, Op.ALTER_CONFIGS),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, Op.ALTER_CONFIGS),
        )
        for kind, name, code, right in (
            (2, "orders", TOPIC, {}),
            (32, "mine", GROUP, {"resource": Type.GROUP, "name": "mine"}),
            (4, "1", CLUSTER, ON_CLUSTER),
        )
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {"transactions": []},
        CLUSTER,
        [{"operation": Op.CLUSTER_ACTION, **ON_CLUSTER}],
    ),
    (
        ApiKey.TXN_OFFSET_COMMIT,
        PENDING,
        TRANSACTION,
        [{"operation": Op.WRITE, **ON_MINE}],
    ),
    (
        ApiKey.END_TXN,
        {**OF_MINE, "committed": True},
        TRANSACTION,
        [{"operation": Op.WRITE, **ON_MINE}],
    ),
    (
        ApiKey.WRITE_TXN_MARKERS,
        {"markers": [MARKER]},
        CLUSTER,
        [{"operation": Op.CLUSTER_ACTION, **ON_CLUSTER}],
    ),
    (
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": ["mine"]},
        TRANSACTION,
        [{"operation": Op.DESCRIBE, **ON_MINE}],
    ),
    (
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": None},
        CLUSTER,
        [{"operation": Op.DESCRIBE, **ON_CLUSTER}],
    ),
    (
        ApiKey.ELECT_LEADERS,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": "orders", "partitions": [0]}],
            "timeout": 1000,
        },
        CLUSTER,
        [{"operation": Op.ALTER, **ON_CLUSTER}],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "timeout": 1000,
            "allow_replication_factor_change": True,
            "topics": [of_topic("orders", {"partition_index": 0, "replicas": [1]})],
        },
        CLUSTER,
        [{"operation": Op.ALTER, **ON_CLUSTER}],
    ),
    (
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": 1000, "topics": None},
        CLUSTER,
        [{"operation": Op.DESCRIBE, **ON_CLUSTER}],
    ),
    (
        ApiKey.LIST_CONFIG_RESOURCES,
        {"resource_types": []},
        CLUSTER,
        [{"operation": Op.DESCRIBE_CONFIGS, **ON_CLUSTER}],
    ),
    (ApiKey.DESCRIBE_ACLS, ACL_FILTER, CLUSTER, [{"operation": Op.DESCRIBE, **ON_CLUSTER}]),
    (
        ApiKey.CREATE_ACLS,
        {"creations": [CREATION]},
        CLUSTER,
        [{"operation": Op.ALTER, **ON_CLUSTER}],
    ),
    (
        ApiKey.DELETE_ACLS,
        {"filters": [ACL_FILTER]},
        CLUSTER,
        [{"operation": Op.ALTER, **ON_CLUSTER}],
    ),
    (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {"components": [], "strict": False},
        CLUSTER,
        [{"operation": Op.DESCRIBE_CONFIGS, **ON_CLUSTER}],
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1024.0, "remove": False}],
                }
            ],
            "validate_only": False,
        },
        CLUSTER,
        [{"operation": Op.ALTER_CONFIGS, **ON_CLUSTER}],
    ),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": None},
        CLUSTER,
        [{"operation": Op.DESCRIBE, **ON_CLUSTER}],
    ),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []},
        CLUSTER,
        [{"operation": Op.ALTER, **ON_CLUSTER}],
    ),
]
