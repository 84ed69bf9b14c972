"""Which right each Kafka API requires, and on what: one table, a row for every API that is served.

Nothing is refused by it yet: there is no authentication, so whoever reaches a listener may do all.
It stands here so that a handler is never written without it being said what it gives away.
Source: Kafka's `KafkaApis` (operations and resources of KIP-11 and later).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class AclOperation(Enum):
    """Kafka's words."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class AclResource(Enum):
    """What a right is on: the one that the request names, each of them, or the cluster."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One right."""

    operation: AclOperation
    resource: AclResource


def _topic(operation: AclOperation) -> Requirement:
    return Requirement(operation, AclResource.TOPIC)


def _group(operation: AclOperation) -> Requirement:
    return Requirement(operation, AclResource.GROUP)


def _cluster(operation: AclOperation) -> Requirement:
    return Requirement(operation, AclResource.CLUSTER)


_Op = AclOperation
_ON_CONFIGS = {
    operation: (_topic(operation), _group(operation), _cluster(operation))
    for operation in (_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS)
}
"""By whose configs are named: the cluster's stands for brokers."""

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
    18: (),  # ApiVersions
    19: (_topic(_Op.CREATE),),  # CreateTopics; or Create on the cluster
    20: (_topic(_Op.DELETE),),  # DeleteTopics
    21: (_topic(_Op.DELETE),),  # DeleteRecords
    22: (_cluster(_Op.IDEMPOTENT_WRITE),),  # InitProducerId; or Write on any topic
    23: (_topic(_Op.DESCRIBE),),  # OffsetForLeaderEpoch
    32: _ON_CONFIGS[_Op.DESCRIBE_CONFIGS],  # DescribeConfigs
    33: _ON_CONFIGS[_Op.ALTER_CONFIGS],  # AlterConfigs
    35: (_cluster(_Op.DESCRIBE),),  # DescribeLogDirs
    37: (_topic(_Op.ALTER),),  # CreatePartitions
    42: (_group(_Op.DELETE),),  # DeleteGroups
    43: (_cluster(_Op.ALTER),),  # ElectLeaders
    44: _ON_CONFIGS[_Op.ALTER_CONFIGS],  # IncrementalAlterConfigs
    45: (_cluster(_Op.ALTER),),  # AlterPartitionReassignments
    46: (_cluster(_Op.DESCRIBE),),  # ListPartitionReassignments
    47: (_group(_Op.DELETE), _topic(_Op.READ)),  # OffsetDelete
    60: (),  # DescribeCluster
    74: (_cluster(_Op.DESCRIBE_CONFIGS),),  # ListConfigResources
    75: (_topic(_Op.DESCRIBE),),  # DescribeTopicPartitions: others are left out
}
"""By Kafka's api key; all of a row's are required, of each topic or group that is named."""
