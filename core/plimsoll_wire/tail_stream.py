"""The frames of the tail stream between brokers: pushes of records, and their acknowledgements.

A leader sends pushes on the connection of a follower's fetch, in between replies, while a fetch
waits that permits it (`FetchRequest.takes_pushes`). A push has a correlation id that no reply has,
an acknowledgement an API key that no request has. Each frame has a fixed layout. The module does no
I/O. Source: docs/protocol.md §4.15.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_wire.batches import Batches
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.replication import MalformedReply, PartitionReply

Buffer = bytes | bytearray | memoryview

ACKNOWLEDGE = 1003
"""The private API key of acknowledgements, beside those of the controller's requests."""
_VERSION = 0
_PUSHED = -2
_PUSHED_ID = struct.pack(">i", _PUSHED)
_LENGTH = struct.Struct(">i")
_PUSH = struct.Struct(">iiii16siiqqq")
_ACKNOWLEDGEMENT = struct.Struct(">ihhiiBiqiq")
_SAID = struct.Struct(">hhiiBiqiq")
"""The same without the length prefix."""
_ACKNOWLEDGEMENT_BEGINS = struct.pack(">hh", ACKNOWLEDGE, _VERSION)


class Push(NamedTuple):
    """Records that a leader has appended at `base_offset` in its leader epoch. `slot`: the number
    of the partition in the fetch session, by which it is acknowledged. `reply`: the same as a
    fetch's reply for the partition; its records are a view of the frame."""

    session_id: int
    slot: int
    leader_epoch: int
    base_offset: int
    reply: PartitionReply


class Acknowledgement(NamedTuple):
    """A follower's position after pushes: as a fetch would state it. `asks`: True if it could not
    take a push, and the leader has to answer the fetch that waits."""

    session_id: int
    slot: int
    asks: bool
    leader_epoch: int
    offset: int
    last_fetched_epoch: int | None
    log_start: int


class PushedTo(NamedTuple):
    """The partition of a push: its number in a fetch session, topic id and index."""

    session_id: int
    slot: int
    topic_id: bytes
    partition: int


def encode_push(
    to: PushedTo,
    leader_epoch: int,
    base_offset: int,
    high_watermark: int,
    log_start: int,
    records: Buffer | Batches,
) -> Sequence[Buffer]:
    """Return a push as a list of buffers, so that records are not copied."""
    size = _PUSH.size - _LENGTH.size + len(records)
    head = _PUSH.pack(size, _PUSHED, *to, leader_epoch, base_offset, high_watermark, log_start)
    return [head, *records.pieces] if isinstance(records, Batches) else [head, records]


def is_push(frame: Buffer) -> bool:
    """Return True if a frame from a leader, without its length prefix, is a push and not a
    reply."""
    return frame[: len(_PUSHED_ID)] == _PUSHED_ID


def is_acknowledgement(frame: Buffer) -> bool:
    """Return True if a frame from a peer, without its length prefix, acknowledges pushes."""
    return frame[: len(_ACKNOWLEDGEMENT_BEGINS)] == _ACKNOWLEDGEMENT_BEGINS


def decode_push(frame: memoryview) -> Push:
    """Decode a whole frame with its length prefix. Raises MalformedReply."""
    if len(frame) <= _PUSH.size:
        raise MalformedReply(f"the leader pushed a frame of {len(frame)} bytes, without records")
    _, _, session_id, slot, topic_id, index, epoch, base, high_watermark, log_start = (
        _PUSH.unpack_from(frame)
    )
    records = frame[_PUSH.size :]
    reply = PartitionReply(topic_id, index, 0, high_watermark, log_start, None, records)
    return Push(session_id, slot, epoch, base, reply)


def encode_acknowledgement(said: Acknowledgement) -> bytes:
    """Return a whole frame with its length prefix."""
    session_id, slot, asks, leader_epoch, offset, last_epoch, log_start = said
    return _ACKNOWLEDGEMENT.pack(
        _ACKNOWLEDGEMENT.size - _LENGTH.size,
        ACKNOWLEDGE,
        _VERSION,
        session_id,
        slot,
        asks,
        leader_epoch,
        offset,
        -1 if last_epoch is None else last_epoch,
        log_start,
    )


def decode_acknowledgement(frame: Buffer) -> Acknowledgement:
    """Decode a frame without its length prefix. Raises MalformedMessage."""
    if len(frame) != _SAID.size:
        raise MalformedMessage(
            f"the follower's acknowledgement has {len(frame)} bytes instead of {_SAID.size}"
        )
    _, _, session_id, slot, asks, leader_epoch, offset, last_epoch, log_start = _SAID.unpack(frame)
    last = None if last_epoch < 0 else last_epoch
    return Acknowledgement(session_id, slot, bool(asks), leader_epoch, offset, last, log_start)
