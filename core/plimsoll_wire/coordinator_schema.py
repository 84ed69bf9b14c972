"""Records of Kafka's internal topics, Kafka 4.1.0: `dev/coordinator_schemas.py`."""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKeyV0:
    """Version 0 of OffsetCommitKey."""

    __flexible__: ClassVar[bool] = False
    group: str = field(metadata={"kafka_type": "string"})
    topic: str = field(metadata={"kafka_type": "string"})
    partition: int = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV0:
    """Version 0 of OffsetCommitValue."""

    __flexible__: ClassVar[bool] = False
    offset: int = field(metadata={"kafka_type": "int64"})
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV1:
    """Version 1 of OffsetCommitValue."""

    __flexible__: ClassVar[bool] = False
    offset: int = field(metadata={"kafka_type": "int64"})
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})
    expire_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)


OffsetCommitValueV2 = OffsetCommitValueV0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV3:
    """Version 3 of OffsetCommitValue."""

    __flexible__: ClassVar[bool] = False
    offset: int = field(metadata={"kafka_type": "int64"})
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValueV4:
    """Version 4 of OffsetCommitValue."""

    __flexible__: ClassVar[bool] = True
    offset: int = field(metadata={"kafka_type": "int64"})
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    metadata: str = field(metadata={"kafka_type": "string"})
    commit_timestamp: int = field(metadata={"kafka_type": "int64"})
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid", "tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKeyV0:
    """Version 0 of GroupMetadataKey."""

    __flexible__: ClassVar[bool] = False
    group: str = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueMemberMetadataV0:
    """A part of version 0 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    member_id: str = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    session_timeout: int = field(metadata={"kafka_type": "int32"})
    subscription: bytes = field(metadata={"kafka_type": "bytes"})
    assignment: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV0:
    """Version 0 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    members: tuple[GroupMetadataValueMemberMetadataV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueMemberMetadataV1:
    """A part of version 1 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    member_id: str = field(metadata={"kafka_type": "string"})
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    rebalance_timeout: int = field(metadata={"kafka_type": "int32"}, default=-1)
    session_timeout: int = field(metadata={"kafka_type": "int32"})
    subscription: bytes = field(metadata={"kafka_type": "bytes"})
    assignment: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV1:
    """Version 1 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    members: tuple[GroupMetadataValueMemberMetadataV1, ...]


GroupMetadataValueMemberMetadataV2 = GroupMetadataValueMemberMetadataV1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV2:
    """Version 2 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    current_state_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)
    members: tuple[GroupMetadataValueMemberMetadataV2, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueMemberMetadataV3:
    """A part of version 3 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    member_id: str = field(metadata={"kafka_type": "string"})
    group_instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    rebalance_timeout: int = field(metadata={"kafka_type": "int32"}, default=-1)
    session_timeout: int = field(metadata={"kafka_type": "int32"})
    subscription: bytes = field(metadata={"kafka_type": "bytes"})
    assignment: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV3:
    """Version 3 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    current_state_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)
    members: tuple[GroupMetadataValueMemberMetadataV3, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueMemberMetadataV4:
    """A part of version 4 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = True
    member_id: str = field(metadata={"kafka_type": "string"})
    group_instance_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    client_id: str = field(metadata={"kafka_type": "string"})
    client_host: str = field(metadata={"kafka_type": "string"})
    rebalance_timeout: int = field(metadata={"kafka_type": "int32"}, default=-1)
    session_timeout: int = field(metadata={"kafka_type": "int32"})
    subscription: bytes = field(metadata={"kafka_type": "bytes"})
    assignment: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValueV4:
    """Version 4 of GroupMetadataValue."""

    __flexible__: ClassVar[bool] = True
    protocol_type: str = field(metadata={"kafka_type": "string"})
    generation: int = field(metadata={"kafka_type": "int32"})
    protocol: str | None = field(metadata={"kafka_type": "string"})
    leader: str | None = field(metadata={"kafka_type": "string"})
    current_state_timestamp: int = field(metadata={"kafka_type": "int64"}, default=-1)
    members: tuple[GroupMetadataValueMemberMetadataV4, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKeyV0:
    """Version 0 of TransactionLogKey."""

    __flexible__: ClassVar[bool] = False
    transactional_id: str = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValuePartitionsSchemaV0:
    """A part of version 0 of TransactionLogValue."""

    __flexible__: ClassVar[bool] = False
    topic: str = field(metadata={"kafka_type": "string"})
    partition_ids: tuple[int, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV0:
    """Version 0 of TransactionLogValue."""

    __flexible__: ClassVar[bool] = False
    producer_id: int = field(metadata={"kafka_type": "int64"})
    previous_producer_id: int = field(metadata={"kafka_type": "int64"}, default=-1)
    next_producer_id: int = field(metadata={"kafka_type": "int64"}, default=-1)
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    next_producer_epoch: int = field(metadata={"kafka_type": "int16"}, default=-1)
    transaction_timeout_ms: int = field(metadata={"kafka_type": "int32"})
    transaction_status: int = field(metadata={"kafka_type": "int8"})
    transaction_partitions: tuple[TransactionLogValuePartitionsSchemaV0, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    transaction_start_timestamp_ms: int = field(metadata={"kafka_type": "int64"})
    client_transaction_version: int = field(metadata={"kafka_type": "int16"}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValuePartitionsSchemaV1:
    """A part of version 1 of TransactionLogValue."""

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
