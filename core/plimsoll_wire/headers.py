"""Encodes and decodes the headers that precede the body of every request and response.

Called by the broker's sessions. The layout of a request's header depends on the version and the
API, so it can be decoded only for known APIs (`api_versions`). Source: the protocol's framing
rules.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.primitives import MalformedMessage, PrimitiveReader

_REQUEST = struct.Struct(">hhi")
_REQUEST_AND_SIZE = struct.Struct(">hhih")
"""Layout of a request's length prefix and header fields, with the length of the client's id."""
_RESPONSE = struct.Struct(">ii")
_CORRELATION_SIZE = 4
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(NamedTuple):
    """The header of a Kafka request. `body_at`: the offset of the body in the frame; None if this
    version of the API is unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int | None


def parse_request_header(frame: bytearray) -> RequestHeader:
    """Decode a request's header. Raises MalformedMessage if the frame is too short for it.

    Only the fields common to all versions are read if the API or its version is unknown.
    """
    # Not by a reader, but for tagged fields, which hardly any header has: every request has one.
    try:
        key, version, correlation_id, size = _REQUEST_AND_SIZE.unpack_from(frame)
    except struct.error:
        return _without_client_id(frame)
    versions = _VERSIONS.get(key)
    if versions is None or not 0 <= version <= versions.last:
        return RequestHeader(key, version, correlation_id, None, None)
    client_id: str | None = None
    body_at = _REQUEST_AND_SIZE.size
    if size >= 0:
        begin, body_at = body_at, body_at + size
        if body_at > len(frame):
            raise MalformedMessage(
                "the received Kafka message is malformed: it ends inside a field"
            )
        try:
            client_id = str(frame[begin:body_at], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage(
                "the received Kafka message is malformed: a string in it is not UTF-8"
            ) from error
    if version >= versions.flexible:
        if body_at < len(frame) and not frame[body_at]:  # no tagged fields
            body_at += 1
        else:
            reader = PrimitiveReader(frame, True, body_at)
            reader.tags()
            body_at = reader.position
    return RequestHeader(key, version, correlation_id, client_id, body_at)


def _without_client_id(frame: bytearray) -> RequestHeader:
    """Decode the header of a frame that ends before or inside the length of the client id. Raises
    MalformedMessage unless the API or its version is unknown."""
    try:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
    except struct.error as error:
        raise MalformedMessage(
            "the received Kafka message is malformed: it ends inside its header"
        ) from error
    versions = _VERSIONS.get(key)
    if versions is None or not 0 <= version <= versions.last:
        return RequestHeader(key, version, correlation_id, None, None)
    raise MalformedMessage("the received Kafka message is malformed: it ends inside a field")


_VERSIONS = {int(key): versions for key, versions in SUPPORTED.items()}


def response_head(key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """Return the length prefix and the header of a reply with a body of `body_size` bytes."""
    if key != _API_VERSIONS and version >= _VERSIONS[key].flexible:
        return _RESPONSE.pack(_CORRELATION_SIZE + 1 + body_size, correlation_id) + b"\0"
    return _RESPONSE.pack(_CORRELATION_SIZE + body_size, correlation_id)


def request_frame(
    key: ApiKey, version: int, correlation_id: int, client_id: str, body: bytes
) -> bytes:
    """Return a whole request frame, with its length prefix, for this project's own clients and
    tests."""
    name = client_id.encode()
    head = _REQUEST.pack(key, version, correlation_id) + struct.pack(">h", len(name)) + name
    if version >= SUPPORTED[key].flexible:
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


__all__ = ["MalformedMessage", "RequestHeader", "parse_request_header", "request_frame"]
__all__ += ["response_head"]
