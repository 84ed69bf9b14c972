"""End markers of transactions, beside kio's schemas."""

import pytest
from kio.schema.control_record_type_schema.v0.data import ControlRecordTypeSchema
from kio.schema.end_txn_marker.v0.data import EndTxnMarker

from plimsoll_wire.batches import HEADER_SIZE, check_crc, parse_header, seal
from plimsoll_wire.control_records import EndMarker, read_end_marker, write_end_marker
from plimsoll_wire.encoding import encoder
from plimsoll_wire.record_sets import KeyValue, iter_records, write_batch


def batch_of(record: KeyValue) -> bytes:
    """A control batch with this record."""
    plain = bytes(write_batch([record], 5))
    header = parse_header(plain)._replace(
        attributes=0x30, producer_id=7, producer_epoch=2, base_sequence=-1
    )
    return seal(header, plain[HEADER_SIZE:])


@pytest.mark.parametrize("commits", [True, False])
def test_written_marker_has_the_form_of_kafkas_schemas(commits: bool) -> None:
    data = write_end_marker(7, 2, EndMarker(commits, 11), 1_000)
    header = parse_header(data)
    assert check_crc(data, 0, len(data))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    key, value = bytearray(b"\0\0"), bytearray(b"\0\0")
    encoder(ControlRecordTypeSchema)(key, {"type_": int(commits)})
    encoder(EndTxnMarker)(value, {"coordinator_epoch": 11})
    assert list(iter_records(header, bytes(data[HEADER_SIZE:]))) == [(0, bytes(key), bytes(value))]
    assert read_end_marker(header, data) == EndMarker(commits, 11)


@pytest.mark.parametrize(
    "record",
    [
        KeyValue(b"\0\0\0\2", b"\0\0\0\0\0\1"),  # a leader change of a Raft quorum
        KeyValue(b"\0\0", b"\0\0\0\0\0\1"),
        KeyValue(b"\0\0\0\1", b"\0\0"),
        KeyValue(b"\0\0\0\1", None),
        KeyValue(b"\xff\xff\0\1", b"\0\0\0\0\0\1"),
    ],
)
def test_other_control_record_ends_no_transaction(record: KeyValue) -> None:
    data = batch_of(record)
    assert read_end_marker(parse_header(data), data) is None


def test_later_versions_of_a_marker_are_read() -> None:
    data = batch_of(KeyValue(b"\0\1\0\0more", b"\0\1\0\0\0\3more"))
    assert read_end_marker(parse_header(data), data) == EndMarker(False, 3)


def test_control_batch_without_record_ends_no_transaction() -> None:
    header = parse_header(write_end_marker(7, 2, EndMarker(True, 1), 0))
    data = seal(header._replace(count=0), b"")
    assert read_end_marker(parse_header(data), data) is None
    torn = seal(header, b"\x02")
    assert read_end_marker(parse_header(torn), torn) is None
