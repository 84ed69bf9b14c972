"""Encodes and decodes the requests and responses of every API that is not on the hot path.

Called by the handlers, and by this project's own clients and tests. Decoding returns kio's typed
values. They lack the fields that a version does not have, so handlers use `getattr(request, name,
default)` for fields that only some versions have. Encoding takes plain mappings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from plimsoll_wire.decoding import (
    NUMBERS_LIKE_ONE,
    Density,
    decoder,
    load_request_schema,
    load_response_schema,
)
from plimsoll_wire.encoding import Encode, Values, encoder
from plimsoll_wire.primitives import PrimitiveReader

Buffer = bytes | bytearray | memoryview
Decoder = Callable[[Buffer, int | None], tuple[Any, int, int]]
"""Decodes a message within a limit on the weight of its array items: NUMBERS_LIKE_ONE for a
structure or a string, 1 for a number. The limit is None if there is none. Returns the message, the
memory of these items in bytes, and their weight, which is 0 without a limit."""

NAMED_MAX = 20_000
"""The most structures and strings in the arrays of a request."""
NUMBERS_MAX = NAMED_MAX * NUMBERS_LIKE_ONE
"""The most numbers in the arrays of a request."""


@cache
def _request_decoder(key: int, version: int) -> Decoder:
    return _decoder(load_request_schema(key, version))


@cache
def request_density(key: int, version: int) -> Density:
    """Return how much memory, in bytes, the array items of such a request can take at most. Its
    weight is at most NUMBERS_MAX."""
    return decoder(load_request_schema(key, version)).density


@cache
def _response_decoder(key: int, version: int) -> Decoder:
    return _decoder(load_response_schema(key, version))


@cache
def _request_encoder(key: int, version: int) -> Encode:
    return encoder(load_request_schema(key, version))


@cache
def _response_encoder(key: int, version: int) -> Encode:
    return encoder(load_response_schema(key, version))


def _decoder(entity: type) -> Decoder:
    read = decoder(entity).read
    flexible: bool = entity.__flexible__  # type: ignore[attr-defined]

    def decode(body: Buffer, weight_max: int | None) -> tuple[Any, int, int]:
        reader = PrimitiveReader(body, flexible)
        reader.left = weight_max
        value = read(reader)
        left = reader.left
        weight = 0 if weight_max is None or left is None else weight_max - left
        return value, reader.parsed, weight

    return decode


def decode_request(key: int, version: int, body: Buffer) -> Any:
    """Decode a request into kio's typed value. Raises MalformedMessage, also if the request names
    more than NAMED_MAX topics, partitions or similar items, or NUMBERS_MAX numbers: decoding it
    would delay other requests."""
    return _request_decoder(key, version)(body, NUMBERS_MAX)[0]


def decode_and_count(
    key: int, version: int, body: Buffer, weight_max: int = NUMBERS_MAX
) -> tuple[Any, int, int]:
    """Decode a request as `decode_request` does. Return it, the memory in bytes for which its array
    items are counted, with what its handler makes of them, and their weight. Raises TooManyItems,
    before it reads them, if they weigh more than `weight_max`."""
    return _request_decoder(key, version)(body, weight_max)


def decode_response(key: int, version: int, body: Buffer) -> Any:
    """Decode a response into kio's typed value. Raises MalformedMessage."""
    return _response_decoder(key, version)(body, None)[0]


@cache
def throttle_time_at(key: int, version: int) -> int | None:
    """Return the offset of the throttle time in a response's body if it comes first or after an
    error code, otherwise None."""
    names = [field.name for field in dataclasses.fields(load_response_schema(key, version))]
    if names[:1] == ["throttle_time"]:
        return 0
    return 2 if names[:2] == ["error_code", "throttle_time"] else None


def encode_request(key: int, version: int, values: Values) -> bytes:
    """Encode a request's body from plain values."""
    out = bytearray()
    _request_encoder(key, version)(out, values)
    return bytes(out)


def encode_response(key: int, version: int, values: Values) -> bytes:
    """Encode a response's body from plain values."""
    out = bytearray()
    _response_encoder(key, version)(out, values)
    return bytes(out)
