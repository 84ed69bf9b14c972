"""A request that names more than anybody has is refused before it is read to its end."""

import struct

import pytest

from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import parse_request_header
from plimsoll_wire.messages import NAMED_MAX, decode_request, encode_request
from plimsoll_wire.primitives import UNKNOWN_TAGS_MAX, MalformedMessage, PrimitiveReader, uvarint


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
    with pytest.raises(MalformedMessage, match="than one request may"):
        decode_request(ApiKey.LIST_OFFSETS, 7, list_offsets(NAMED_MAX))


def test_numbers_count_too() -> None:
    with pytest.raises(MalformedMessage, match="than one request may"):
        decode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, reassignment(10, 20_000))


def tag_buffer(count: int, tag: int = 999) -> bytes:
    return uvarint(count) + (uvarint(tag) + b"\0") * count


FLEXIBLE = [key for key, versions in SUPPORTED.items() if versions.last >= versions.flexible]


@pytest.mark.parametrize("key", FLEXIBLE)
def test_header_with_too_many_tags_is_malformed(key: ApiKey) -> None:
    version = SUPPORTED[key].last
    fixed = struct.pack(">hhih", key, version, 5, 0)
    allowed = fixed + tag_buffer(UNKNOWN_TAGS_MAX)
    assert parse_request_header(bytearray(allowed)).body_at == len(allowed)
    with pytest.raises(MalformedMessage, match="unknown tagged fields"):
        parse_request_header(bytearray(fixed + tag_buffer(UNKNOWN_TAGS_MAX + 1)))


def test_tags_of_all_structures_count_together() -> None:
    reader = PrimitiveReader(tag_buffer(UNKNOWN_TAGS_MAX) + tag_buffer(1), flexible=True)
    assert reader.tags() == {}
    with pytest.raises(MalformedMessage, match="unknown tagged fields"):
        reader.tags()


def test_known_tag_twice_is_malformed() -> None:
    assert PrimitiveReader(tag_buffer(1, 7), flexible=True).tags(7) == {7: b""}
    with pytest.raises(MalformedMessage, match="twice"):
        PrimitiveReader(tag_buffer(2, 7), flexible=True).tags(7)
