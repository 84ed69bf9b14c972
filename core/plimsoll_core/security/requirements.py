"""The right that each Kafka API requires: one table, with a row for every API that is served.

A broker answers no API without a row here (`handlers.security.gate`). The guards decide how a
client is told of a refusal. Source: Kafka's `KafkaApis` and `ControllerApis` (operations and
resources of KIP-11 and later).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.security.acl import AclOperation, ResourceType


@dataclass(frozen=True, slots=True)
class Requirement:
    """An operation on a resource type that a principal must be allowed."""

    operation: AclOperation
    resource: ResourceType


def _topic(operation: AclOperation) -> Requirement:
    return Requirement(operation, ResourceType.TOPIC)


def _group(operation: AclOperation) -> Requirement:
    return Requirement(operation, ResourceType.GROUP)


def _transaction(operation: AclOperation) -> Requirement:
    return Requirement(operation, ResourceType.TRANSACTIONAL_ID)


def _cluster(operation: AclOperation) -> Requirement:
    return Requirement(operation, ResourceType.CLUSTER)


_Op = AclOperation
_ON_CONFIGS = {
    operation: (_topic(operation), _group(operation), _cluster(operation))
    for operation in (_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS)
}
"""The resource types with configs that can be named; the cluster stands for brokers."""

REQUIREMENTS: Mapping[int, tuple[Requirement, ...]] = {
    0: (_topic(_Op.WRITE),),  # Produce
    1: (_topic(_Op.READ),),  # Fetch
    2: (_topic(_Op.DESCRIBE),),  # ListOffsets
    3: (_topic(_Op.DESCRIBE),),  # Metadata: others are left out, or refused where they are named
    8: (_group(_Op.READ), _topic(_Op.READ)),  # OffsetCommit
    9: (_group(_Op.DESCRIBE), _topic(_Op.DESCRIBE)),  # OffsetFetch
    10: (_group(_Op.DESCRIBE),),  # FindCoordinator
    11: (_group(_Op.READ),),  # JoinGroup
    12: (_group(_Op.READ),),  # Heartbeat
    13: (_group(_Op.READ),),  # LeaveGroup
    14: (_group(_Op.READ),),  # SyncGroup
    15: (_group(_Op.DESCRIBE),),  # DescribeGroups
    16: (_group(_Op.DESCRIBE),),  # ListGroups: others are left out; Describe Cluster sees all
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (_topic(_Op.CREATE),),  # CreateTopics; or Create on the cluster
    20: (_topic(_Op.DELETE),),  # DeleteTopics
    21: (_topic(_Op.DELETE),),  # DeleteRecords
    22: (_cluster(_Op.IDEMPOTENT_WRITE),),  # InitProducerId; or Write on any topic
    23: (_topic(_Op.DESCRIBE),),  # OffsetForLeaderEpoch; or ClusterAction
    24: (_transaction(_Op.WRITE), _topic(_Op.WRITE)),  # AddPartitionsToTxn; from v4 ClusterAction
    25: (_transaction(_Op.WRITE), _group(_Op.READ)),  # AddOffsetsToTxn
    26: (_transaction(_Op.WRITE),),  # EndTxn
    27: (_cluster(_Op.CLUSTER_ACTION),),  # WriteTxnMarkers
    28: (_transaction(_Op.WRITE), _group(_Op.READ), _topic(_Op.READ)),  # TxnOffsetCommit
    29: (_cluster(_Op.DESCRIBE),),  # DescribeAcls
    30: (_cluster(_Op.ALTER),),  # CreateAcls
    31: (_cluster(_Op.ALTER),),  # DeleteAcls
    32: _ON_CONFIGS[_Op.DESCRIBE_CONFIGS],  # DescribeConfigs
    33: _ON_CONFIGS[_Op.ALTER_CONFIGS],  # AlterConfigs
    35: (_cluster(_Op.DESCRIBE),),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: (_topic(_Op.ALTER),),  # CreatePartitions
    42: (_group(_Op.DELETE),),  # DeleteGroups
    43: (_cluster(_Op.ALTER),),  # ElectLeaders
    44: _ON_CONFIGS[_Op.ALTER_CONFIGS],  # IncrementalAlterConfigs
    45: (_cluster(_Op.ALTER),),  # AlterPartitionReassignments
    46: (_cluster(_Op.DESCRIBE),),  # ListPartitionReassignments
    47: (_group(_Op.DELETE), _topic(_Op.READ)),  # OffsetDelete
    48: (_cluster(_Op.DESCRIBE_CONFIGS),),  # DescribeClientQuotas
    49: (_cluster(_Op.ALTER_CONFIGS),),  # AlterClientQuotas
    50: (_cluster(_Op.DESCRIBE),),  # DescribeUserScramCredentials
    51: (_cluster(_Op.ALTER),),  # AlterUserScramCredentials
    60: (),  # DescribeCluster
    61: (_topic(_Op.READ),),  # DescribeProducers
    65: (_transaction(_Op.DESCRIBE),),  # DescribeTransactions
    66: (_transaction(_Op.DESCRIBE),),  # ListTransactions: others are left out
    68: (),  # ConsumerGroupHeartbeat: always refused, and not decoded
    74: (_cluster(_Op.DESCRIBE_CONFIGS),),  # ListConfigResources
    75: (_topic(_Op.DESCRIBE),),  # DescribeTopicPartitions: others are left out
    76: (),  # ShareGroupHeartbeat: always refused, and not decoded
}
"""Required rights by Kafka's api key. All of a row are required, for each named topic or group."""
