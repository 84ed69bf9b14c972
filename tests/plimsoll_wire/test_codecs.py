"""Our hand-packed messages are byte for byte what Kafka's schemas (through kio) say."""

import contextlib
import dataclasses
import io
import itertools
import struct
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from plimsoll_wire import fetch, headers, produce
from plimsoll_wire.api_versions import SUPPORTED, ApiKey, is_flexible
from plimsoll_wire.encoding import shape
from plimsoll_wire.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from plimsoll_wire.primitives import MalformedMessage

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
RECORDS = b"\x01\x02records"


def all_versions(key):
    return range(SUPPORTED[key].first, SUPPORTED[key].last + 1)


def every_message():
    return [(key, version) for key in SUPPORTED for version in all_versions(key)]


def kio_bytes(entity):
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


# --- the schema encoder against kio's own ---------------------------------------------------------


def _primitive(kind, nullable):
    base = {
        "string": st.text(max_size=12),
        "uuid": st.one_of(st.none(), st.uuids().filter(lambda value: value.int != 0)),
        "bytes": st.binary(max_size=12),
        "records": st.binary(max_size=12),
        "bool": st.booleans(),
        "error_code": st.sampled_from([0, 3, 6, 41, 42, 72]),
        "int8": st.integers(-128, 127),
        "int16": st.integers(-(2**15), 2**15 - 1),
        "int32": st.integers(-(2**31), 2**31 - 1),
        "int64": st.integers(-(2**63), 2**63 - 1),
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "timedelta_i32": st.integers(0, 10**6),
        "timedelta_i64": st.integers(0, 10**6),
        "datetime_i64": st.integers(0, 10**12),
    }[kind]
    return st.one_of(st.none(), base) if nullable and kind != "uuid" else base


def values_of(entity):
    """A strategy for the plain values of a structure."""
    return st.fixed_dictionaries({each.name: _field(each) for each in dataclasses.fields(entity)})


def _field(field):
    inner, nullable, is_array = shape(field.type)
    nullable = nullable and "tag" not in field.metadata
    if is_array:
        item = _item(shape(inner)[0], field, False)
        strategy = st.lists(item, max_size=2)
        return st.one_of(st.none(), strategy) if nullable else strategy
    return _item(inner, field, nullable)


def _item(kind, field, nullable):
    if dataclasses.is_dataclass(kind):
        return st.one_of(st.none(), values_of(kind)) if nullable else values_of(kind)
    return _primitive(field.metadata["kafka_type"], nullable)


def as_kio(entity, values):
    """kio's typed value for plain ones."""
    return entity(
        **{each.name: _kio_field(each, values[each.name]) for each in dataclasses.fields(entity)}
    )


def _kio_field(field, value):
    inner, _, is_array = shape(field.type)
    if value is None:
        return None
    if is_array:
        return tuple(_kio_item(shape(inner)[0], field, each) for each in value)
    return _kio_item(inner, field, value)


def _kio_item(kind, field, value):
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        return as_kio(kind, value)
    name = field.metadata["kafka_type"]
    if name == "error_code":
        return ErrorCode(value)
    if name.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if name == "datetime_i64":
        return datetime.fromtimestamp(value // 1000, UTC) + timedelta(milliseconds=value % 1000)
    return value


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), every_message())
def test_response_is_encoded_as_kio_encodes_it(key, version):
    schema = load_response_schema(key, version)

    @given(values=values_of(schema))
    @settings(max_examples=6)
    def check(values):
        entity = as_kio(schema, values)
        encoded = encode_response(key, version, values)
        assert encoded == kio_bytes(entity)
        assert decode_response(key, version, encoded) == entity

    check()


@pytest.mark.slow
@pytest.mark.parametrize(("key", "version"), every_message())
def test_request_is_encoded_as_kio_encodes_it(key, version):
    schema = load_request_schema(key, version)

    @given(values=values_of(schema))
    @settings(max_examples=4)
    def check(values):
        entity = as_kio(schema, values)
        encoded = encode_request(key, version, values)
        assert encoded == kio_bytes(entity)
        assert decode_request(key, version, encoded) == entity

    check()


def test_value_that_must_be_said_cannot_be_forgotten():
    with pytest.raises(AssertionError, match="error_code must be given"):
        encode_response(ApiKey.METADATA, 13, {"brokers": [], "topics": []})


def test_flexible_versions_are_where_kio_has_them():
    for key, version in every_message():
        assert is_flexible(key, version) == load_request_schema(key, version).__flexible__, key


@given(data=st.binary(max_size=80), choice=st.sampled_from(every_message()))
@settings(max_examples=400)
def test_garbage_request_is_malformed_and_nothing_else(data, choice):
    key, version = choice
    decoders = {ApiKey.PRODUCE: produce.decode_request, ApiKey.FETCH: fetch.decode_request}
    for decode in (decoders.get(key), lambda body, v: decode_request(key, v, body)):
        if decode is not None:
            with contextlib.suppress(MalformedMessage):
                decode(memoryview(data), version)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.METADATA, 9, "ffffffff7f"),
        (ApiKey.METADATA, 1, "7fffffff"),
        (ApiKey.DELETE_TOPICS, 6, "ffffffff0f"),
        (ApiKey.CREATE_TOPICS, 7, "02 02 61 00000001 0001 ffffffff0f"),
        (ApiKey.CREATE_TOPICS, 5, "02 02 61 00000001 0001 02 00000000 ffffffff7f"),
    ],
)
def test_few_bytes_cannot_claim_too_much_memory(key, version, body):
    """Room made for every item before the first is read would end the process."""
    with pytest.raises(MalformedMessage, match="longer than the message"):
        decode_request(key, version, bytes.fromhex(body))


def test_tagged_field_is_as_long_as_it_says():
    body = encode_request(ApiKey.FETCH, 15, fetch_request_values((3, 77)))
    at = body.index(bytes([1, 13, 0, 0, 0, 3]))  # the replica's state: tag, length, id
    longer = body[: at + 1] + bytes([14]) + body[at + 2 :] + b"\0"
    with pytest.raises(MalformedMessage, match="tagged field"):
        decode_request(ApiKey.FETCH, 15, longer)


def test_unknown_tagged_field_is_stepped_over():
    values = {"client_software_name": "c", "client_software_version": "1"}
    body = encode_request(ApiKey.API_VERSIONS, 3, values)
    tagged = body[:-1] + bytes([1, 0xC8, 0x01, 3]) + b"new"
    assert decode_request(ApiKey.API_VERSIONS, 3, tagged).client_software_name == "c"


# --- produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", all_versions(ApiKey.PRODUCE))
def test_produce_request_is_read_as_kio_wrote_it(version):
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1500,
        "topic_data": [
            {
                "name": name,
                "partition_data": [
                    {"index": 4, "records": RECORDS},
                    {"index": 5, "records": None},
                ],
            }
            for name in ("orders", "zahlungen-ä")
        ],
    }
    body = bytearray(encode_request(ApiKey.PRODUCE, version, values))
    request = produce.decode_request(memoryview(body), version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1500)
    assert [topic.name for topic in request.topics] == ["orders", "zahlungen-ä"]
    (first, second) = request.topics[0].partitions
    assert (first.partition, bytes(first.records)) == (4, RECORDS)
    assert (second.partition, second.records) == (5, None)
    first.records[0] = 0xFF  # stamped in place: a view into the request, not a copy
    assert body.count(b"\xff\x02records") == 1


@pytest.mark.parametrize("version", all_versions(ApiKey.PRODUCE))
def test_produce_response_round_trips_through_kio(version):
    partitions = [
        produce.ProducedPartition(0, 0, 1234, -1, 7),
        produce.ProducedPartition(3, 6, message="not the leader", leader=(2, 9)),
    ]
    nodes = [produce.NodeEndpoint(2, "host", 9092, "rack-a")]
    body = produce.encode_response(version, [("orders", partitions)], nodes)
    assert_produce_response(decode_response(ApiKey.PRODUCE, version, body), version)
    assert body == kio_bytes(decode_response(ApiKey.PRODUCE, version, body))


def assert_produce_response(reply, version):
    (topic,) = reply.responses
    good, bad = topic.partition_responses
    assert (topic.name, good.index, good.error_code, good.base_offset) == ("orders", 0, 0, 1234)
    assert (bad.index, bad.error_code, bad.base_offset) == (3, 6, -1)
    if version >= 5:
        assert (good.log_start_offset, bad.log_start_offset) == (7, -1)
    if version >= 8:
        assert (good.error_message, bad.error_message) == (None, "not the leader")
    if version >= 10:
        assert (bad.current_leader.leader_id, bad.current_leader.leader_epoch) == (2, 9)
        assert good.current_leader.leader_id == -1
        assert (reply.node_endpoints[0].host, reply.node_endpoints[0].rack) == ("host", "rack-a")


# --- fetch ----------------------------------------------------------------------------------------


def fetch_request_values(replica=None):
    return {
        "cluster_id": None,
        "replica_id": -1 if replica is None else replica[0],
        "replica_state": {
            "replica_id": -1 if replica is None else replica[0],
            "replica_epoch": -1 if replica is None else replica[1],
        },
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 50_000,
        "isolation_level": 1,
        "session_id": 11,
        "session_epoch": 12,
        "topics": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition": 3,
                        "current_leader_epoch": 5,
                        "fetch_offset": 2**40,
                        "last_fetched_epoch": 4,
                        "log_start_offset": 17,
                        "partition_max_bytes": 1000,
                        "replica_directory_id": TOPIC_ID,
                    },
                    {
                        "partition": 4,
                        "fetch_offset": 0,
                        "partition_max_bytes": 1001,
                        "replica_directory_id": None,
                    },
                ],
            }
        ],
        "forgotten_topics_data": [{"topic": "old", "topic_id": TOPIC_ID, "partitions": [1, 2, 3]}],
        "rack_id": "rack-b",
    }


@pytest.mark.parametrize("version", all_versions(ApiKey.FETCH))
@pytest.mark.parametrize("replica", [None, (2, 77)])
def test_fetch_request_is_read_as_kio_wrote_it(version, replica):
    body = encode_request(ApiKey.FETCH, version, fetch_request_values(replica))
    request = fetch.decode_request(memoryview(body), version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 50_000)
    assert request.isolation_level == 1
    assert request.replica_id == (None if replica is None else 2)
    if version >= 15:
        assert request.replica_epoch == (None if replica is None else 77)
    assert (request.session_id, request.session_epoch) == ((11, 12) if version >= 7 else (0, -1))
    (topic,) = request.topics
    assert topic.name == (None if version >= 13 else "orders")
    assert topic.topic_id == (TOPIC_ID if version >= 13 else None)
    first, second = topic.partitions
    assert (first.partition, first.offset, first.max_bytes) == (3, 2**40, 1000)
    assert first.leader_epoch == (5 if version >= 9 else None)
    assert first.last_fetched_epoch == (4 if version >= 12 else None)
    assert first.log_start_offset == (17 if version >= 5 else None)
    assert second == fetch.FetchPartition(4, None, 0, None, None, 1001)


@pytest.mark.parametrize("version", range(12, 18))
def test_fetch_of_one_partition_is_read_like_others(version):
    values = fetch_request_values(None)
    topic = values["topics"][0]
    partition = topic["partitions"][0] | {"replica_directory_id": None}
    values |= {"topics": [topic | {"partitions": [partition]}]}
    values |= {"forgotten_topics_data": [], "rack_id": ""}
    usual = bytearray(encode_request(ApiKey.FETCH, version, values))

    def decoded(body, named_max):
        try:
            return fetch.decode_request(memoryview(body), version, named_max)
        except MalformedMessage:
            return None

    assert decoded(usual, None).topics[0].partitions[0].max_bytes == 1000
    for at, byte in itertools.product(range(len(usual)), (0, 1, 2, 3, 0x7F, 0x80, 0xFF)):
        changed = usual[:at] + bytes((byte,)) + usual[at + 1 :]
        assert decoded(changed, None) == decoded(changed, 1_000), (at, byte)
        assert decoded(changed[:at], None) == decoded(changed[:at], 1_000)


@pytest.mark.parametrize("version", all_versions(ApiKey.FETCH))
def test_fetch_response_round_trips_through_kio(version):
    records = bytearray(RECORDS)
    partitions = [
        fetch.FetchedPartition(0, 0, 100, 7, memoryview(records)),
        fetch.FetchedPartition(1, 6, leader=(2, 9)),
        fetch.FetchedPartition(2, 0, 50, 0, diverging=(3, 40)),
        fetch.FetchedPartition(3, 0, 50, 0, RECORDS * 100),
    ]
    nodes = [produce.NodeEndpoint(2, "host", 9092)]
    pieces = fetch.encode_response(version, [("orders", TOPIC_ID, partitions)], 0, nodes)
    assert any(piece is partitions[3].records for piece in pieces), "records are not copied"
    body = b"".join(pieces)
    reply = decode_response(ApiKey.FETCH, version, body)
    (topic,) = reply.responses
    if version >= 13:
        assert topic.topic_id == TOPIC_ID
    else:
        assert topic.topic == "orders"
    data, moved, diverged, long = topic.partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 100, 100)
    assert (bytes(data.records), bytes(long.records)) == (RECORDS, RECORDS * 100)
    assert (moved.error_code, bytes(moved.records)) == (6, b"")
    assert data.aborted_transactions is None
    if version >= 5:
        assert data.log_start_offset == 7
    if version >= 12:
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (3, 40)
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 9)
        assert data.diverging_epoch.epoch == -1
    if version >= 16:
        assert [node.host for node in reply.node_endpoints] == ["host"]
    assert body == kio_bytes(reply)


def test_error_for_the_whole_fetch():
    reply = decode_response(ApiKey.FETCH, 13, b"".join(fetch.encode_response(13, [], 70)))
    assert (reply.error_code, reply.session_id, reply.responses) == (70, 0, ())


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), every_message())
def test_request_headers_are_read_where_the_body_begins(key, version):
    frame = headers.request_frame(key, version, 4711, "a client", b"BODY")
    header = headers.parse_request_header(bytearray(frame[4:]))
    assert header[:4] == (key, version, 4711, "a client")
    assert frame[4 + header.body_at :] == b"BODY"
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4


@pytest.mark.parametrize(("key", "version"), every_message())
def test_flexible_response_headers_have_tags_except_api_versions(key, version):
    head = headers.response_head(key, version, 4711, 10)
    schema = load_response_schema(key, version)
    header_version = schema.__header_schema__.__version__
    assert len(head) == (9 if header_version == 1 else 8)
    assert struct.unpack_from(">ii", head) == (len(head) - 4 + 10, 4711)


def test_header_of_unknown_api_has_common_fields():
    frame = bytearray(struct.pack(">hhi", 999, 0, 5))
    assert headers.parse_request_header(frame) == (999, 0, 5, None, None)
    frame = bytearray(struct.pack(">hhi", ApiKey.METADATA, 99, 5))
    assert headers.parse_request_header(frame).body_at is None


@pytest.mark.parametrize("size", range(8))
def test_half_a_header_is_malformed(size):
    with pytest.raises(MalformedMessage):
        headers.parse_request_header(bytearray(struct.pack(">hhi", 3, 1, 5)[:size]))
