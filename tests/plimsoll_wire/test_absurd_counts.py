"""A request that names more than anybody has is refused before it is read to its end."""

import pytest

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import NAMED_MAX, decode_request, encode_request
from plimsoll_wire.primitives import MalformedMessage


def list_offsets(count: int) -> bytes:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [partition] * count}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    return encode_request(ApiKey.LIST_OFFSETS, 7, values)


def reassignment(partitions: int, replicas: int) -> bytes:
    named = [{"partition_index": 0, "replicas": [1] * replicas}] * partitions
    values = {"timeout": 1_000, "topics": [{"name": "t", "partitions": named}]}
    return encode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)


def test_request_at_the_element_limit_is_read() -> None:
    read = decode_request(ApiKey.LIST_OFFSETS, 7, list_offsets(NAMED_MAX - 1))
    assert len(read.topics[0].partitions) == NAMED_MAX - 1
    read = decode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, reassignment(12_000, 5))
    assert len(read.topics[0].partitions) == 12_000


def test_list_offsets_request_over_element_limit_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="at once"):
        decode_request(ApiKey.LIST_OFFSETS, 7, list_offsets(NAMED_MAX))


def test_numbers_count_too() -> None:
    with pytest.raises(MalformedMessage, match="at once"):
        decode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, reassignment(10, 20_000))
