"""Records of `__consumer_offsets` as bytes: what is written is read back, and nothing else is."""

import contextlib
import importlib.util
import struct
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_wire.other_records import (
    ConsumerGroupMemberMetadataValueV0,
    TransactionLogValueV1,
)

from plimsoll_core.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    StoredMember,
)
from plimsoll_wire import coordinator_records
from plimsoll_wire.batches import HEADER_SIZE, check_crc, parse_header
from plimsoll_wire.coordinator_records import decode_group_record, encode_group_record
from plimsoll_wire.decoding import decoder
from plimsoll_wire.encoding import encoder
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader
from plimsoll_wire.record_sets import KeyValue, iter_records, size_of, varint, write_batch
from plimsoll_wire.records import BadRecords, check_records, read_varint
from plimsoll_wire.versioned_fields import UnknownKeyedRecord

TOPIC_ID = UUID(int=7)
MEMBER = StoredMember(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=45_000,
    subscription=b"\0\1",
    assignment=b"",
)
RECORDS: list[GroupRecord] = [
    OffsetCommitted(
        group_id="g",
        topic="t",
        partition=3,
        offset=2**40,
        leader_epoch=5,
        metadata="höhe",
        commit_ms=1_700_000_000_000,
        topic_id=TOPIC_ID,
    ),
    OffsetForgotten(group_id="g", topic="t", partition=3),
    GroupStored(
        group_id="g",
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m-1",
        state_ms=12,
        members=(MEMBER,),
    ),
    GroupStored(group_id="g", protocol_type="", generation=0, protocol=None, leader=None),
    GroupForgotten(group_id="g"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_record_is_read_as_it_was_written(record: GroupRecord) -> None:
    assert decode_group_record(*encode_group_record(record)) == record


def test_commit_with_own_retention_keeps_it() -> None:
    """Lost, a topic that is made again would begin where its namesake was read to."""
    record = OffsetCommitted(
        group_id="g",
        topic="t",
        partition=0,
        offset=1,
        leader_epoch=3,
        commit_ms=5,
        expire_ms=9,
        topic_id=TOPIC_ID,
    )
    key, value = encode_group_record(record)
    assert value is not None
    assert value[:2] == b"\0\1"
    assert value[-20:] == b"\0\0\0\3" + TOPIC_ID.bytes
    assert decode_group_record(key, value) == record
    without = decode_group_record(key, value[:-20])  # as Kafka writes it, and release 0.1
    assert without == msgspec.structs.replace(record, leader_epoch=-1, topic_id=None)


@pytest.mark.parametrize("record", [one for one in RECORDS if hasattr(one, "owner")])
@pytest.mark.parametrize("expire_ms", [None, 9])
def test_group_principal_is_hidden_from_older_readers(
    record: GroupRecord, expire_ms: int | None
) -> None:
    """They read a value's fields, as Kafka does, and step over what is behind."""
    if isinstance(record, OffsetCommitted):
        record = msgspec.structs.replace(record, expire_ms=expire_ms)
    owned = msgspec.structs.replace(record, owner="User:höhe")  # type: ignore[call-arg]
    (key, value), written = encode_group_record(record), encode_group_record(owned)
    assert value is not None
    assert written == KeyValue(key, value + b"\0\x0aUser:h\xc3\xb6he")
    assert decode_group_record(*written) == owned
    assert decode_group_record(key, value + b"of a newer release") == record


def test_offset_commit_has_the_bytes_that_kafka_writes() -> None:
    """By hand, from the schema: type 1, strings with two bytes of length; version 4, flexible."""
    key, value = encode_group_record(
        OffsetCommitted(group_id="g", topic="t", partition=1, offset=2, metadata="m", commit_ms=3)
    )
    assert key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\1"
    assert value == b"\0\4" + struct.pack(">qi", 2, -1) + b"\x02m" + struct.pack(">q", 3) + b"\0"


OFFSETS = st.builds(
    OffsetCommitted,
    group_id=st.text(max_size=20),
    topic=st.text(max_size=20),
    partition=st.integers(-(2**31), 2**31 - 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.just("") | st.text(max_size=200),
    commit_ms=st.integers(0, 2**60),
    expire_ms=st.none(),
    topic_id=st.none() | st.uuids(allow_nil=False),
    owner=st.just("") | st.text(max_size=20),
)


def by_schema(key: bytes, value: bytes) -> object:
    """Without the short cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator_records, "_plain_offset", lambda key, value: None)
        try:
            return decode_group_record(key, value)
        except MalformedMessage:
            return MalformedMessage


@given(OFFSETS, st.data())
def test_short_cut_reads_what_the_schema_reads(
    record: OffsetCommitted, data: st.DataObject
) -> None:
    key, value = encode_group_record(record)
    assert value is not None
    assert decode_group_record(key, value) == by_schema(key, value) == record
    changed = bytearray(value)
    changed[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(changed[: data.draw(st.integers(0, len(value)))])
    for other in (bytes(changed), cut):
        plain = coordinator_records._plain_offset(key, other)
        assert plain is None or plain == by_schema(key, other)
    shorter = key[: data.draw(st.integers(0, len(key) - 1))]
    assert coordinator_records._plain_offset(shorter, value) is None


@pytest.mark.parametrize("version", [0, 2, 3])
def test_older_versions_of_an_offset_commit_are_read(version: int) -> None:
    epoch = struct.pack(">i", 6) if version >= 3 else b""
    value = struct.pack(">hq", version, 2) + epoch + b"\0\1m" + struct.pack(">q", 3)
    key = encode_group_record(OffsetForgotten(group_id="g", topic="t", partition=1)).key
    read = decode_group_record(key, value)
    assert isinstance(read, OffsetCommitted)
    assert (read.offset, read.metadata, read.commit_ms) == (2, "m", 3)
    assert read.leader_epoch == (6 if version >= 3 else -1)


def test_newer_types_and_versions_are_named() -> None:
    assert decode_group_record(b"\0\x08abc", b"x") == UnknownKeyedRecord(8, None)
    key = encode_group_record(GroupForgotten(group_id="g")).key
    assert decode_group_record(key, b"\0\x09") == UnknownKeyedRecord(2, 9)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1", b"\0\1\x7f\xffg", b"\0\2\0\2g"])
def test_key_that_ends_too_early_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_group_record(key, None)


@given(st.binary(max_size=80), st.one_of(st.none(), st.binary(max_size=80)))
def test_any_bytes_are_a_record_or_malformed(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(MalformedMessage):
        decode_group_record(key, value)


# --- record sets ---------------------------------------------------------------------------------

PAIRS = st.lists(
    st.builds(KeyValue, st.binary(max_size=300), st.none() | st.binary(max_size=300)),
    min_size=1,
    max_size=20,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varint_is_read_as_it_was_written(value: int) -> None:
    written = varint(value)
    assert read_varint(written, 0) == (value, len(written))


@given(PAIRS, st.integers(0, 2**40))
def test_batch_holds_the_records_that_were_written(pairs: list[KeyValue], time_ms: int) -> None:
    batch = write_batch(pairs, time_ms)
    header = parse_header(batch)
    assert header.length == len(batch) <= HEADER_SIZE + sum(size_of(pair) for pair in pairs)
    assert check_crc(batch, 0, len(batch))
    assert header.max_timestamp == time_ms
    body = bytes(batch[HEADER_SIZE:])
    check_records(body, len(pairs))
    read = list(iter_records(header._replace(base_offset=100), body))
    assert read == [(100 + n, key, value) for n, (key, value) in enumerate(pairs)]


@given(PAIRS, st.data())
def test_damaged_records_are_refused_or_differ(pairs: list[KeyValue], data: st.DataObject) -> None:
    batch = write_batch(pairs, 0)
    header, body = parse_header(batch), bytearray(batch[HEADER_SIZE:])
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(BadRecords):
        list(iter_records(header, bytes(body[:end])))
    body[end] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(BadRecords):
        list(iter_records(header, bytes(body)))


def test_compressed_batch_is_refused() -> None:
    batch = write_batch([KeyValue(b"k", b"v")], 0)
    header = parse_header(batch)._replace(attributes=1)
    with pytest.raises(BadRecords, match="compressed"):
        list(iter_records(header, bytes(batch[HEADER_SIZE:])))


# --- the generated schemas -----------------------------------------------------------------------


def test_nullable_struct_in_tag_round_trips() -> None:
    values = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "h",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "classic_member_metadata": {
            "session_timeout_ms": 45_000,
            "supported_protocols": [{"name": "range", "metadata": b"x"}],
        },
    }
    out = bytearray()
    encoder(ConsumerGroupMemberMetadataValueV0)(out, values)
    read = decoder(ConsumerGroupMemberMetadataValueV0).read(PrimitiveReader(out, flexible=True))
    classic = read.classic_member_metadata
    assert classic is not None
    assert classic.supported_protocols[0].name == "range"
    # Behind the tag's length: a byte that says that the structure is there (KIP-893).
    assert out[-19:-16] == bytes((1, 0, 16)), out.hex()


def test_tagged_transaction_fields_round_trip() -> None:
    values = {
        "producer_id": 1,
        "previous_producer_id": 2,
        "next_producer_id": 3,
        "producer_epoch": 4,
        "next_producer_epoch": 5,
        "transaction_timeout_ms": 6,
        "transaction_status": 1,
        "transaction_partitions": [{"topic": "t", "partition_ids": [1, 2]}],
        "transaction_last_update_timestamp_ms": 7,
        "transaction_start_timestamp_ms": 8,
        "client_transaction_version": 2,
    }
    out = bytearray()
    encoder(TransactionLogValueV1)(out, values)
    read = decoder(TransactionLogValueV1).read(PrimitiveReader(out, flexible=True))
    assert (read.previous_producer_id, read.next_producer_epoch) == (2, 5)
    assert read.transaction_partitions[0].partition_ids == (1, 2)


def test_schemas_are_what_kafkas_jars_say() -> None:
    path = Path(__file__).parents[2] / "dev/coordinator_schemas.py"
    spec = importlib.util.spec_from_file_location("coordinator_schemas", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if not script.JARS.is_dir():
        pytest.skip("Kafka's jars are not here: python dev/coordinator_schemas.py fetches them")
    assert script.generated(script.JARS) == script.TARGET.read_text()
