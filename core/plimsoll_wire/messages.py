"""Requests and responses of every API that is not on the hot path.

Called by the handlers (and by our own clients and tests).  Decoding is kio's native reader and
gives kio's own typed values - fields that a version does not have are missing, so handlers ask with
`getattr(request, name, default)` where versions differ.  Encoding takes plain mappings.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.serial.readers import Reader

from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.schema import Encode, Values, encoder


@cache
def _request_reader(key: int, version: int) -> Reader[Any]:
    return entity_reader(load_request_schema(key, version))


@cache
def _response_reader(key: int, version: int) -> Reader[Any]:
    return entity_reader(load_response_schema(key, version))


@cache
def _request_encoder(key: int, version: int) -> Encode:
    return encoder(load_request_schema(key, version))


@cache
def _response_encoder(key: int, version: int) -> Encode:
    return encoder(load_response_schema(key, version))


def _read(reader: Reader[Any], body: bytes | bytearray | memoryview) -> Any:
    try:
        value, _ = reader(memoryview(body).toreadonly(), 0)
    except (SerialError, ValueError, OverflowError, TypeError) as error:
        raise MalformedMessage(str(error)) from error
    return value


def decode_request(key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
    """kio's request value; raises MalformedMessage."""
    return _read(_request_reader(key, version), body)


def decode_response(key: int, version: int, body: bytes | bytearray | memoryview) -> Any:
    """kio's response value; raises MalformedMessage."""
    return _read(_response_reader(key, version), body)


def encode_request(key: int, version: int, values: Values) -> bytes:
    """A request's body from plain values."""
    out = bytearray()
    _request_encoder(key, version)(out, values)
    return bytes(out)


def encode_response(key: int, version: int, values: Values) -> bytes:
    """A response's body from plain values."""
    out = bytearray()
    _response_encoder(key, version)(out, values)
    return bytes(out)
