"""Reads and writes structures that follow a number of two bytes: the type of a key, or the version
of a value, in the records of the internal topics.

Called by `coordinator_records` and `transaction_records`. Source: Kafka's `CoordinatorRecordSerde`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from plimsoll_wire.decoding import decoder
from plimsoll_wire.encoding import Values, encoder
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader

NUMBER = struct.Struct(">h")


class UnknownKeyedRecord(NamedTuple):
    """A record with a key type or a value version that this release does not know, written by a
    newer release. `version`: None if the type is unknown."""

    record_type: int
    version: int | None


def written(number: int, entity: type, values: Values) -> bytes:
    """Encode the number and the structure."""
    out = bytearray(NUMBER.pack(number))
    encoder(entity)(out, values)
    return bytes(out)


def number_of(data: bytes) -> int:
    """Return the number at the beginning. Raises MalformedMessage."""
    if len(data) < NUMBER.size:
        raise MalformedMessage(
            "a record of an internal topic is too short: it ends inside its version number"
        )
    number: int = NUMBER.unpack_from(data)[0]
    return number


def read(entity: type, data: bytes) -> Any:
    """Decode the structure that follows the number. Raises MalformedMessage."""
    return read_to(entity, data)[0]


def read_to(entity: type, data: bytes) -> tuple[Any, int]:
    """Decode like `read`. Return the structure, and the position where it ends in `data`."""
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    reader = PrimitiveReader(data, flexible, NUMBER.size)
    return decoder(entity).read(reader), reader.position
