"""Reads and writes the protocol's primitive types.

Called by the codecs of the hot path (produce, fetch) and of the request header; other messages are
decoded by schemas. A field that exceeds the message is the peer's fault and raises
`MalformedMessage`.
"""

from __future__ import annotations

import struct
from uuid import UUID

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_UVARINT_BYTES_MAX = 5

EMPTY_TAGS = b"\0"
UNKNOWN_TAGS_MAX = 10_000
"""The most tagged fields of one message that this release does not know."""


class MalformedMessage(Exception):
    """Raised if received bytes are not a valid message. The connection must be closed."""


class TooManyItems(MalformedMessage):
    """Raised if a message has more array items than its reader may read."""


class PrimitiveReader:
    """Reads the fields of a message one after another. `flexible`: True if the version has compact
    lengths and tagged fields."""

    __slots__ = ("data", "flexible", "left", "parsed", "position", "unknown_tags")

    def __init__(
        self, data: bytes | bytearray | memoryview, flexible: bool, position: int = 0
    ) -> None:
        self.data = data if isinstance(data, memoryview) else memoryview(data)
        self.position = position
        self.flexible = flexible
        self.left: int | None = None
        # The number of tagged fields that were skipped.
        self.unknown_tags = 0
        # The memory, in bytes, of the array items that have been announced so far.
        self.parsed = 0

    def allow(self, items: int) -> None:
        """Set how many array items may be read from now on, which bounds the time of decoding."""
        self.left = items

    def spend(self, items: int, parsed: int = 0) -> None:
        """Subtract the items of an array that is about to be read from the number still allowed,
        and count `parsed`, their memory in bytes. Raises TooManyItems if there are more than
        that."""
        self.parsed += parsed
        if self.left is not None:
            self.left -= items
            if self.left < 0:
                raise TooManyItems(
                    "the received Kafka request names more topics, partitions or other items "
                    "than one request may"
                )

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read several fixed-size fields at once, by a `struct` layout. Raises MalformedMessage if
        the message ends before."""
        try:
            values = layout.unpack_from(self.data, self.position)
        except struct.error as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            ) from error
        self.position += layout.size
        return values

    def i8(self) -> int:
        return self.unpack(_I8)[0]

    # Not by `unpack`: nearly every message is made of these two.

    def i16(self) -> int:
        position = self.position
        self.position = position + 2
        try:
            return _I16.unpack_from(self.data, position)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            ) from error

    def i32(self) -> int:
        position = self.position
        self.position = position + 4
        try:
            return _I32.unpack_from(self.data, position)[0]  # type: ignore[no-any-return]
        except struct.error as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            ) from error

    def uvarint(self) -> int:
        data, position = self.data, self.position
        value = shift = 0
        try:
            byte = data[position]
            if byte < 0x80:  # as nearly all are
                self.position = position + 1
                return byte
            second = data[position + 1]
            if second < 0x80:  # as most others are
                self.position = position + 2
                return byte & 0x7F | second << 7
            for _ in range(_UVARINT_BYTES_MAX):
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    self.position = position
                    return value
                shift += 7
        except IndexError as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            ) from error
        raise MalformedMessage(
            "the received Kafka message is malformed: a length field has more than five bytes"
        )

    def view(self, size: int) -> memoryview:
        """Read and return the next `size` bytes without a copy. Raises MalformedMessage if there
        are fewer."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            )
        view = self.data[self.position : end]
        self.position = end
        return view

    def nullable_bytes(self) -> memoryview | None:
        size = self.uvarint() - 1 if self.flexible else self.i32()
        return None if size < 0 else self.view(size)

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.i16()
        return None if size < 0 else self._text(size)

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise MalformedMessage(
                "the received Kafka message is malformed: it has null where a string is required"
            )
        return value

    def _text(self, size: int) -> str:
        try:
            return str(self.view(size), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: a string in it is not UTF-8"
            ) from error

    def nullable_count(self, item_bytes_min: int = 1) -> int | None:
        """Read the length of an array; None for a null array. Raises MalformedMessage if that many
        items cannot fit into the rest of the message."""
        count = self.uvarint() - 1 if self.flexible else self.i32()
        if count < 0:
            return None
        if count * item_bytes_min > len(self.data) - self.position:
            raise MalformedMessage(
                "the received Kafka message is malformed: it states an array that is longer than "
                "the message itself"
            )
        return count

    def count(self, item_bytes_min: int = 1) -> int:
        return self.nullable_count(item_bytes_min) or 0

    def uuid(self) -> UUID | None:
        """Read a UUID; return None for all zeros."""
        raw = bytes(self.view(16))
        return UUID(bytes=raw) if any(raw) else None

    def tags(self, *known: int) -> dict[int, memoryview]:
        """Read the tagged fields at the end of a structure, and return those with a tag in `known`;
        none in versions that are not flexible. Raises MalformedMessage if a known tag is there
        twice, or if the message has more than `UNKNOWN_TAGS_MAX` others: a newer client adds a few,
        and each takes time."""
        if not self.flexible:
            return {}
        count = self.uvarint()
        if count == 0:
            return {}
        if count * 2 > len(self.data) - self.position:
            raise MalformedMessage(
                "the received Kafka message is malformed: it states more tagged fields than it "
                "has bytes"
            )
        found: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            content = self.view(self.uvarint())
            if tag not in known:
                self.unknown_tags += 1
                if self.unknown_tags > UNKNOWN_TAGS_MAX:
                    raise MalformedMessage(
                        "the received Kafka message is malformed: it has more than "
                        f"{UNKNOWN_TAGS_MAX} unknown tagged fields"
                    )
            elif tag in found:
                raise MalformedMessage(
                    f"the received Kafka message is malformed: it has the tagged field {tag} twice"
                )
            else:
                found[tag] = content
        return found


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def string(value: str, flexible: bool) -> bytes:
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


MESSAGE_CHARS_MAX = 1_000


def nullable_message(value: str | None, flexible: bool) -> bytes:
    """Encode an error message, or null. A long message is cut: it may quote names from the request,
    and in a version that is not flexible a string has at most 32,767 bytes."""
    if value is not None and len(value) > MESSAGE_CHARS_MAX:
        value = value[: MESSAGE_CHARS_MAX - 3] + "..."
    return nullable_string(value, flexible)


def nullable_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    return string(value, flexible)


def count(value: int, flexible: bool) -> bytes:
    """Encode an array's length."""
    return uvarint(value + 1) if flexible else _I32.pack(value)


def tagged(fields: dict[int, bytes]) -> bytes:
    """Encode a tag buffer, with tags in order as the protocol requires."""
    if not fields:
        return EMPTY_TAGS
    parts = [uvarint(len(fields))]
    for tag in sorted(fields):
        parts += [uvarint(tag), uvarint(len(fields[tag])), fields[tag]]
    return b"".join(parts)
