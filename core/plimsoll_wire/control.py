"""The private messages between a broker and its controller, as bytes.

They have Kafka's framing and request header (v1) with API keys of our own, so that the same framer
and tools read both; the body is MessagePack of `plimsoll_core.messages`. The controller's server
and the broker's controller client call this module, which does no I/O and decides nothing. Bytes
that cannot be decoded are the peer's fault: they raise `MalformedControlMessage`, and the
connection is closed.

The reason for not using Kafka's own requests: docs/design/003-broker-to-controller.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import LogOutput, TopicDefaults
from plimsoll_core.messages.drills import DrillOrder
from plimsoll_core.messages.metadata_copy import CopyWanted, OfferMetadataCopy
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import Answer, BrokerRequest, Refused

T = TypeVar("T")

VERSION = 0
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""Bound on the bytes of a request. A proposal for 100,000 partitions is smaller."""
REPLY_BYTES_MAX = 256 * 1024 * 1024
"""Bound on the bytes of a reply. A compressed image of 100,000 partitions is smaller."""


class ControlKey(IntEnum):
    """The API keys of private messages, above all of Kafka's."""

    COMMAND = 1000
    FETCH_METADATA = 1001
    OFFER_METADATA_COPY = 1002


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's request to the controller of one cluster. `controller_epoch`: the highest that the
    broker knows."""

    cluster_id: UUID
    controller_epoch: ControllerEpoch
    request: BrokerRequest


class CommandReply(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's answer to a Command. `unconfirmed`: True if the process could not confirm that
    it still is the controller; the answer then extends no lease. `metadata_end`: number of metadata
    records committed when it was sent. `session_timeout_ms`: milliseconds without a heartbeat after
    which a broker is fenced; 0 if not stated. `log_output`: how the broker should write its log
    lines; None for no change. `topic_defaults`: the cluster's defaults for topics, for clients that
    ask; None if not stated. `drill`: the order to a broker of the cluster that is in force; None if
    there is none."""

    controller_epoch: ControllerEpoch
    unconfirmed: bool = False
    answer: Answer
    metadata_end: MetadataOffset = MetadataOffset(0)
    session_timeout_ms: int = 0
    log_output: LogOutput | None = None
    topic_defaults: TopicDefaults | None = None
    drill: DrillOrder | None = None


class MetadataReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to FetchMetadata: an update, or the reason for refusing one."""

    controller_epoch: ControllerEpoch
    update: MetadataUpdate | None = None
    refused: Refused | None = None


RequestBody = Command | FetchMetadata | OfferMetadataCopy
ReplyBody = CommandReply | MetadataReply | CopyWanted


class ControlRequest(NamedTuple):
    """A decoded request, with the ids from its header."""

    correlation_id: int
    client_id: str
    body: RequestBody


class MalformedControlMessage(Exception):
    """Raised if received bytes are not a valid control message. The connection must be closed."""


_HEADER = struct.Struct(">hhih")
_REPLY_HEADER = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_command_decoder = msgspec.msgpack.Decoder(Command)
_fetch_decoder = msgspec.msgpack.Decoder(FetchMetadata)
_offer_decoder = msgspec.msgpack.Decoder(OfferMetadataCopy)
_wanted_decoder = msgspec.msgpack.Decoder(CopyWanted)
_command_reply_decoder = msgspec.msgpack.Decoder(CommandReply)
_metadata_reply_decoder = msgspec.msgpack.Decoder(MetadataReply)


def size_of(request: BrokerRequest) -> int:
    """Return the size of the encoded request in bytes."""
    return len(_encoder.encode(request))


_KEYS = {
    Command: ControlKey.COMMAND,
    FetchMetadata: ControlKey.FETCH_METADATA,
    OfferMetadataCopy: ControlKey.OFFER_METADATA_COPY,
}


def encode_request(correlation_id: int, client_id: str, body: RequestBody) -> bytes:
    """Return the whole frame of a request, with its length prefix."""
    key = _KEYS[type(body)]
    client = client_id.encode()
    payload = _encoder.encode(body)
    length = _HEADER.size + len(client) + len(payload)
    header = _HEADER.pack(key, VERSION, correlation_id, len(client))
    return b"".join((_LENGTH.pack(length), header, client, payload))


def decode_request(frame: bytes | bytearray | memoryview) -> ControlRequest:
    """Decode a request frame without its length prefix. Raises MalformedControlMessage."""
    view = memoryview(frame)
    if len(view) < _HEADER.size:
        raise MalformedControlMessage(
            f"a request to the controller has {len(view)} bytes, too few for its header"
        )
    key, version, correlation_id, client_length = _HEADER.unpack_from(view)
    if version != VERSION:
        raise MalformedControlMessage(
            f"the request to the controller with API key {key} has version {version}, which this "
            "release does not support"
        )
    body_at = _HEADER.size + max(client_length, 0)
    if client_length < -1 or body_at > len(view):
        raise MalformedControlMessage(
            f"the request to the controller states a client id of {client_length} bytes, which "
            "does not fit into the request"
        )
    client_id = bytes(view[_HEADER.size : body_at]).decode("utf-8", errors="replace")
    body = _decode_body(key, view[body_at:])
    return ControlRequest(correlation_id, client_id, body)


def _decode_body(key: int, payload: memoryview) -> RequestBody:
    try:
        match key:
            case ControlKey.COMMAND:
                return _command_decoder.decode(payload)
            case ControlKey.FETCH_METADATA:
                return _fetch_decoder.decode(payload)
            case ControlKey.OFFER_METADATA_COPY:
                return _offer_decoder.decode(payload)
            case _:
                raise MalformedControlMessage(
                    f"the API key {key} is not that of a request to the controller"
                )
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedControlMessage(
            f"the request to the controller with API key {key} cannot be decoded: {error}"
        ) from error


def encode_reply(correlation_id: int, body: ReplyBody) -> bytes:
    """Return the whole frame of a reply, with its length prefix."""
    payload = _encoder.encode(body)
    return _REPLY_HEADER.pack(_CORRELATION.size + len(payload), correlation_id) + payload


def reply_correlation_id(frame: bytes | bytearray | memoryview) -> int:
    """Return the correlation id of a reply frame without its length prefix: replies may come in
    another order than the requests. Raises MalformedControlMessage if the frame is too short."""
    if len(frame) < _CORRELATION.size:
        raise MalformedControlMessage(
            f"the controller's reply has {len(frame)} bytes, too few for its header"
        )
    correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    return correlation_id


def _decode_reply(decoder: msgspec.msgpack.Decoder[T], frame: bytes | bytearray | memoryview) -> T:
    try:
        return decoder.decode(memoryview(frame)[_CORRELATION.size :])
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedControlMessage(str(error)) from error


def decode_command_reply(frame: bytes | bytearray | memoryview) -> CommandReply:
    """Decode the frame of a reply to `Command`, without its length prefix. Raises
    MalformedControlMessage."""
    return _decode_reply(_command_reply_decoder, frame)


def decode_metadata_reply(frame: bytes | bytearray | memoryview) -> MetadataReply:
    """Decode the frame of a reply to `FetchMetadata`, without its length prefix. Raises
    MalformedControlMessage."""
    return _decode_reply(_metadata_reply_decoder, frame)


def decode_copy_wanted(frame: bytes | bytearray | memoryview) -> CopyWanted:
    """Decode the frame of a reply to `OfferMetadataCopy`, without its length prefix. Raises
    MalformedControlMessage."""
    return _decode_reply(_wanted_decoder, frame)
