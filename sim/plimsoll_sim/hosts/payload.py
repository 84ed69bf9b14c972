"""What simulated producers write: records that a broker lets pass, the first with the batch's name.

Called by the clients that write and by all code that reads a log back.  The other records are
empty.
"""

from __future__ import annotations

HEADER_BYTES = 61
IDENT_BYTES_MAX = 50
_VALUE_SIZE_AT = HEADER_BYTES + 5
"""Behind length, attributes, time, offset and the key that is none, a byte each."""
_KEY_SIZE_AT, _NO_KEY = HEADER_BYTES + 4, 1


def records_of(ident: bytes, count: int) -> bytes:
    """`count` records, encoded as the protocol's RecordBatch v2 wants them."""
    assert len(ident) <= IDENT_BYTES_MAX, "so that its lengths take a byte each"
    values = [ident] + [b""] * (count - 1)
    return b"".join(_record(number, value) for number, value in enumerate(values))


def _record(number: int, value: bytes) -> bytes:
    body = b"\x00\x00%b\x01%c%b\x00" % (_zigzag(number), len(value) << 1, value)
    return b"%c%b" % (len(body) << 1, body)


def _zigzag(value: int) -> bytes:
    left, out = value << 1, bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def ident_of(data: bytes | bytearray | memoryview, at: int) -> bytes:
    """The name of the batch that begins at byte `at`; a coordinator's, whose records have keys, is
    known by its place and its CRC."""
    if data[at + _KEY_SIZE_AT] != _NO_KEY:
        return bytes(data[at : at + 8]) + bytes(data[at + 17 : at + 21])
    size = data[at + _VALUE_SIZE_AT] >> 1
    return bytes(data[at + _VALUE_SIZE_AT + 1 : at + _VALUE_SIZE_AT + 1 + size])
