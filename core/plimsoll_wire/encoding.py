"""Encodes messages into bytes by Kafka's schemas, as kio generates them, in every version.

Called by `messages`. An encoder is compiled once per structure and version; it takes plain mappings
(numbers, strings, UUIDs, lists), leaves out fields that a version does not have, and fills in the
schema's defaults. Times and error codes are plain integers (milliseconds, Kafka's codes).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

from plimsoll_wire import primitives
from plimsoll_wire.parts import PART, in_parts

Values = Mapping[str, Any]
Encode = Callable[[bytearray, Any], None]

FIXED = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint8": ">B",
    "uint16": ">H",
    "uint32": ">I",
    "uint64": ">Q",
    "float64": ">d",
    "bool": ">?",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}
_ABSENT = object()
_IMPLICIT = {"throttle_time": 0}
"""Values of fields that callers may leave out although the schema has no default for them."""


@cache
def encoder(entity: type) -> Encode:
    """Return the function that encodes one structure in one version, `entity`, from its field
    values by name."""
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Encode, Any]] = []
    tagged: list[tuple[int, str, Encode, Any]] = []
    for field in dataclasses.fields(entity):
        default = _default(field)
        encode = _field_encoder(field, flexible)
        if "tag" in field.metadata:
            tagged.append((field.metadata["tag"], field.name, encode, default))
        else:
            plain.append((field.name, encode, default))

    def write(out: bytearray, values: Values) -> None:
        for name, encode, default in plain:
            value = values.get(name, default)
            assert value is not _ABSENT, f"{entity.__name__}.{name} must be given"
            encode(out, value)
        if flexible:
            out += _tag_buffer(tagged, values)

    return write


def _tag_buffer(tagged: Sequence[tuple[int, str, Encode, Any]], values: Values) -> bytes:
    """Encode the tagged fields that differ from their default."""
    fields: dict[int, bytes] = {}
    for tag, name, encode, default in tagged:
        value = values.get(name, _ABSENT)
        if value is not _ABSENT and value != default and (value or default != ()):
            encoded = bytearray()
            encode(encoded, value)
            fields[tag] = bytes(encoded)
    return primitives.tagged(fields)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is dataclasses.MISSING:
        return _IMPLICIT.get(field.name, _ABSENT)
    if dataclasses.is_dataclass(field.default) and not isinstance(field.default, type):
        return dataclasses.asdict(field.default)
    return field.default


def _field_encoder(field: dataclasses.Field[Any], flexible: bool) -> Encode:
    inner, nullable, is_array = shape(field.type)
    if field.name.endswith("_message"):
        return _message(flexible)
    if is_array:
        item_nullable = shape(inner)[1]
        item = _item_encoder(shape(inner)[0], field.metadata, flexible, item_nullable)
        return _array(item, flexible)
    return _item_encoder(inner, field.metadata, flexible, nullable)


def shape(annotation: Any) -> tuple[Any, bool, bool]:
    """Analyse the type annotation of a field. Return its type without `None` and `tuple`, whether
    None is allowed, and whether it is an array."""
    arguments = get_args(annotation)
    nullable = NoneType in arguments
    if nullable:
        (annotation,) = (argument for argument in arguments if argument is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], nullable, True
    return annotation, nullable, False


def _item_encoder(kind: Any, metadata: Mapping[str, Any], flexible: bool, nullable: bool) -> Encode:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return _nullable_entity(encoder(kind)) if nullable else encoder(kind)
    name = metadata["kafka_type"]
    if name in FIXED:
        return _fixed(struct.Struct(FIXED[name]))
    if name == "string":
        return _string(flexible)
    if name == "uuid":
        return _uuid
    assert name in ("bytes", "records"), name
    return _bytes(flexible)


def _fixed(layout: struct.Struct) -> Encode:
    pack = layout.pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(-1 if value is None else value)

    return write


def _string(flexible: bool) -> Encode:
    def write(out: bytearray, value: str | None) -> None:
        out += primitives.nullable_string(value, flexible)

    return write


def _message(flexible: bool) -> Encode:
    def write(out: bytearray, value: str | None) -> None:
        out += primitives.nullable_message(value, flexible)

    return write


def _uuid(out: bytearray, value: UUID | None) -> None:
    out += bytes(16) if value is None else value.bytes


def _bytes(flexible: bool) -> Encode:
    def write(out: bytearray, value: bytes | None) -> None:
        if value is None:
            out += b"\0" if flexible else b"\xff\xff\xff\xff"
        else:
            out += primitives.count(len(value), flexible)
            out += value

    return write


def _array(item: Encode, flexible: bool) -> Encode:
    null = b"\0" if flexible else b"\xff\xff\xff\xff"

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None:
            out += null
            return
        out += primitives.count(len(values), flexible)
        for value in values if len(values) <= PART else in_parts(values):
            item(out, value)

    return write


def _nullable_entity(encode: Encode) -> Encode:
    """Return a writer of a structure that may be null: a byte before it states if it is present
    (KIP-893)."""

    def write(out: bytearray, value: Values | None) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            encode(out, value)

    return write
