"""The supported Kafka APIs and their versions.

Called by the broker's dispatch, which advertises only APIs that have a handler, and by the codecs.
This module does not decide what a handler does. Source: the protocol's client-facing table and its
negotiation rules. Clients infer a broker's release from the highest versions, so these are raised
together.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys of the requests that a broker serves."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76


class Versions(NamedTuple):
    """The versions of one API. `first` to `last` are served; `flexible` is the first flexible
    version, above `last` if there is none.

    `advertised_from` may be lower than `first`: older librdkafka takes Produce <= 2 as the sign
    that a broker has compression and idempotence, and never sends that version (KAFKA-18659).
    """

    first: int
    last: int
    flexible: int
    advertised_from: int | None = None

    @property
    def lowest_advertised(self) -> int:
        return self.first if self.advertised_from is None else self.advertised_from

    def serves(self, version: int) -> bool:
        return self.first <= version <= self.last


SUPPORTED: dict[ApiKey, Versions] = {
    ApiKey.PRODUCE: Versions(3, 10, 9, advertised_from=0),
    ApiKey.FETCH: Versions(4, 17, 12),
    ApiKey.LIST_OFFSETS: Versions(1, 9, 6),
    ApiKey.METADATA: Versions(0, 13, 9),
    ApiKey.OFFSET_COMMIT: Versions(2, 9, 8),
    ApiKey.OFFSET_FETCH: Versions(1, 9, 6),
    ApiKey.FIND_COORDINATOR: Versions(0, 5, 3),
    ApiKey.JOIN_GROUP: Versions(0, 9, 6),
    ApiKey.HEARTBEAT: Versions(0, 4, 4),
    ApiKey.LEAVE_GROUP: Versions(0, 5, 4),
    ApiKey.SYNC_GROUP: Versions(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: Versions(0, 6, 5),
    ApiKey.LIST_GROUPS: Versions(0, 5, 3),
    ApiKey.SASL_HANDSHAKE: Versions(0, 1, 2),
    ApiKey.API_VERSIONS: Versions(0, 4, 3),
    ApiKey.CREATE_TOPICS: Versions(2, 7, 5),
    ApiKey.DELETE_TOPICS: Versions(1, 6, 4),
    ApiKey.DELETE_RECORDS: Versions(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(0, 4, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: Versions(0, 4, 3),
    ApiKey.END_TXN: Versions(0, 4, 3),
    ApiKey.WRITE_TXN_MARKERS: Versions(1, 1, 1),
    ApiKey.TXN_OFFSET_COMMIT: Versions(0, 4, 3),
    ApiKey.DESCRIBE_ACLS: Versions(1, 3, 2),
    ApiKey.CREATE_ACLS: Versions(1, 3, 2),
    ApiKey.DELETE_ACLS: Versions(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: Versions(1, 4, 4),
    ApiKey.ALTER_CONFIGS: Versions(0, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Versions(1, 4, 2),
    ApiKey.SASL_AUTHENTICATE: Versions(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3, 2),
    ApiKey.DELETE_GROUPS: Versions(0, 2, 2),
    ApiKey.ELECT_LEADERS: Versions(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, 0),
    ApiKey.OFFSET_DELETE: Versions(0, 0, 1),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Versions(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: Versions(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: Versions(0, 1, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Versions(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Versions(1, 1, 0),
}


OWN_COPIES = {"name": "plimsoll.own.copies", "min_version": 1, "max_version": 1}
"""The supported feature that ApiVersions states: a fetch with Kafka's replica id -2 reads the asked
broker's own replica from disk. Release 0.2 states no feature."""


def is_flexible(key: ApiKey, version: int) -> bool:
    return version >= SUPPORTED[key].flexible
