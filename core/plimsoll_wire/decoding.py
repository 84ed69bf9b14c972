"""Decodes bytes into messages by Kafka's schemas, as kio generates them, in every version.

Called by `messages`. A decoder is compiled once per structure and version and makes kio's own typed
values. Any peer may have sent the bytes, so each length is compared with the size of the message
before memory is allocated. Unknown tagged fields are skipped (KIP-482); any other fault raises
`MalformedMessage`. (kio's native reader allocates memory for as many items as an array claims to
have, so that a few bytes could end the process, and it fails at unknown tags.)

If the library hypothesis is installed, kio imports it, to register its types. That takes as long as
all other imports of a broker together, and would double the start of a broker in a development
environment. Hypothesis is therefore hidden while kio is imported, unless it is imported already, as
in tests, which may want the types.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from plimsoll_wire.encoding import FIXED, shape
from plimsoll_wire.parts import PART, in_parts
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make imports of the module fail within the context, unless it has been imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("hypothesis"):
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "load_request_schema", "load_response_schema"]


_ERROR_CODES = {int(code): code for code in ErrorCode}
_EPOCH = datetime.fromtimestamp(0, UTC)


NUMBERS_LIKE_ONE = 8
"""Time to decode a structure or a string, in units of the time for a number. A string weighs as
much as a structure, since it names something that the handler looks up."""
ITEM_BYTES = 800
"""The memory, in bytes, for which a structure or a string of an array is counted: its own, and that
of what its handler makes of it until the request is answered."""
NUMBER_BYTES = 200
"""The same for a number."""


class Density(NamedTuple):
    """How much memory the array items of a message can take, in bytes: at most `per_byte` for each
    byte of the message, and `per_unit` for each unit of the weight that `allow` limits."""

    per_byte: float = 0.0
    per_unit: float = 0.0


class Decode(NamedTuple):
    """A function that reads one value, the smallest number of bytes that such a value takes, and
    the density of the arrays in it."""

    read: Callable[[PrimitiveReader], Any]
    bytes_min: int
    density: Density = Density()


@cache
def decoder(entity: type) -> Decode:
    """Return the function that decodes one structure in one version, `entity`."""
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Callable[[PrimitiveReader], Any]]] = []
    tagged: dict[int, tuple[str, Callable[[PrimitiveReader], Any]]] = {}
    bytes_min = int(flexible)
    density = Density()
    for field in dataclasses.fields(entity):
        value = _field(field, flexible)
        density = _denser(density, value.density)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, value.read
        else:
            plain.append((field.name, value.read))
            bytes_min += value.bytes_min

    def read(reader: PrimitiveReader) -> Any:
        values = {name: each(reader) for name, each in plain}
        for tag, content in reader.tags(*tagged).items():
            name, each = tagged[tag]
            values[name] = _whole(each, content, reader)
        return entity(**values)

    return Decode(read, bytes_min, density)


def _denser(one: Density, other: Density) -> Density:
    return Density(max(one.per_byte, other.per_byte), max(one.per_unit, other.per_unit))


def _whole(
    read: Callable[[PrimitiveReader], Any], content: memoryview, message: PrimitiveReader
) -> Any:
    """Decode the content of a tagged field, within the limits of the message around it."""
    reader = PrimitiveReader(content, flexible=True)
    reader.left, reader.unknown_tags = message.left, message.unknown_tags
    reader.parsed = message.parsed
    value = read(reader)
    message.left, message.unknown_tags = reader.left, reader.unknown_tags
    message.parsed = reader.parsed
    if reader.position != len(content):
        raise MalformedMessage(
            "the received Kafka message is malformed: a tagged field has another length than it "
            "states"
        )
    return value


def _field(field: dataclasses.Field[Any], flexible: bool) -> Decode:
    inner, nullable, is_array = shape(field.type)
    if is_array:
        kind, item_nullable, _ = shape(inner)
        item = _item(kind, field.metadata, flexible, item_nullable)
        is_number = field.metadata.get("kafka_type") in FIXED
        return _array(item, nullable, is_number=is_number)
    return _item(inner, field.metadata, flexible, nullable)


def _item(kind: Any, metadata: Mapping[str, Any], flexible: bool, nullable: bool) -> Decode:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _nullable_entity(decoder(kind)) if nullable else decoder(kind)
    name = metadata["kafka_type"]
    if name in FIXED:
        return _fixed(name, nullable)
    if name == "uuid":
        return Decode(PrimitiveReader.uuid, 16)
    if name == "string":
        return Decode(PrimitiveReader.nullable_string if nullable else PrimitiveReader.string, 1)
    assert name in ("bytes", "records"), name
    return Decode(_nullable_bytes if nullable else _bytes, 1)


def _fixed(name: str, nullable: bool) -> Decode:
    layout = struct.Struct(FIXED[name])
    convert = _CONVERT.get(name)
    if name == "datetime_i64" and nullable:
        convert = _nullable_time

    def plain(reader: PrimitiveReader) -> Any:
        return reader.unpack(layout)[0]

    def converted(reader: PrimitiveReader) -> Any:
        assert convert is not None
        return convert(reader.unpack(layout)[0])

    return Decode(plain if convert is None else converted, layout.size)


def _error_code(value: int) -> ErrorCode:
    code = _ERROR_CODES.get(value)
    if code is None:
        raise MalformedMessage(
            f"the received Kafka message is malformed: the error code {value} does not exist"
        )
    return code


def _duration(value: int) -> timedelta:
    """Decode a duration in milliseconds. A value above 8.6e16 (2.7 million years), which no
    timedelta can hold, becomes the longest timedelta: by such a number (Kafka's Long.MAX_VALUE) a
    client means "forever"."""
    try:
        return timedelta(milliseconds=value)
    except OverflowError:
        return timedelta.max if value > 0 else timedelta.min


def _time(value: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise MalformedMessage(
            f"the received Kafka message is malformed: the time {value} ms after 1970 is out of "
            "range"
        ) from error


def _nullable_time(value: int) -> datetime | None:
    return None if value == -1 else _time(value)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "error_code": _error_code,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _time,
}


def _nullable_bytes(reader: PrimitiveReader) -> bytes | None:
    value = reader.nullable_bytes()
    return None if value is None else bytes(value)


def _bytes(reader: PrimitiveReader) -> bytes:
    value = reader.nullable_bytes()
    if value is None:
        raise MalformedMessage(
            "the received Kafka message is malformed: it has null where bytes are required"
        )
    return bytes(value)


def _array(item: Decode, nullable: bool, *, is_number: bool) -> Decode:
    one, bytes_min = item.read, max(item.bytes_min, 1)
    weight, parsed = (1, NUMBER_BYTES) if is_number else (NUMBERS_LIKE_ONE, ITEM_BYTES)
    density = _denser(Density(parsed / bytes_min, parsed / weight), item.density)

    def read(reader: PrimitiveReader) -> tuple[Any, ...] | None:
        count = reader.nullable_count(bytes_min)
        if count is None:
            if nullable:
                return None
            raise MalformedMessage(
                "the received Kafka message is malformed: it has null where an array is required"
            )
        reader.spend(count * weight, count * parsed)
        numbers = range(count) if count <= PART else in_parts(range(count))
        return tuple([one(reader) for _ in numbers])

    return Decode(read, 1, density)


def _nullable_entity(entity: Decode) -> Decode:
    """Return a reader of a structure that may be null: a byte before it states if it is present
    (KIP-893)."""

    def read(reader: PrimitiveReader) -> Any:
        return entity.read(reader) if reader.i8() >= 0 else None

    return Decode(read, 1, entity.density)
