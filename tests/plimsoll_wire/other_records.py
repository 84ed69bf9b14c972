"""Records of Kafka 4.1.0 with tagged fields, as `dev/coordinator_schemas.py` generates them."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValueClassicProtocolV0:
    """Of version 0 of ConsumerGroupMemberMetadataValue."""

    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"})
    metadata: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValueClassicMemberMetadataV0:
    """Of version 0 of ConsumerGroupMemberMetadataValue."""

    __flexible__: ClassVar[bool] = True
    session_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    supported_protocols: tuple[ConsumerGroupMemberMetadataValueClassicProtocolV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValueV0:
    """Version 0 of ConsumerGroupMemberMetadataValue."""

    __flexible__: ClassVar[bool] = True
    instance_id: str | None = field(metadata={"kafka_type": "string"})
    rack_id: str | None = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    subscribed_topic_names: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    subscribed_topic_regex: str | None = field(metadata={"kafka_type": "string"})
    rebalance_timeout_ms: int = field(metadata={"kafka_type": "int32"}, default=-1)
    server_assignor: str | None = field(metadata={"kafka_type": "string"})
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadataV0 | None = field(
        metadata={"tag": 0}, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValuePartitionsSchemaV1:
    """Of version 1 of TransactionLogValue."""

    __flexible__: ClassVar[bool] = True
    topic: str = field(metadata={"kafka_type": "string"})
    partition_ids: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV1:
    """Version 1 of TransactionLogValue."""

    __flexible__: ClassVar[bool] = True
    producer_id: int = field(metadata={"kafka_type": "int64"})
    previous_producer_id: int = field(metadata={"kafka_type": "int64", "tag": 0}, default=-1)
    next_producer_id: int = field(metadata={"kafka_type": "int64", "tag": 1}, default=-1)
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    next_producer_epoch: int = field(metadata={"kafka_type": "int16", "tag": 3}, default=-1)
    transaction_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    transaction_status: int = field(metadata={"kafka_type": "int8"})
    transaction_partitions: tuple[TransactionLogValuePartitionsSchemaV1, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    transaction_start_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    client_transaction_version: int = field(metadata={"kafka_type": "int16", "tag": 2}, default=0)
