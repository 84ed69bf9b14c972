"""Messages by which a broker hands its copy of the metadata to an operator that restores the
metadata log.

A broker sends them after a refusal with the reason MetadataRegressed. `decide` does not see them: a
controller that cannot use its log answers them. The broker opens the connection and names its
position; the operator asks for the one copy that it needs, part by part. Source: docs/protocol.md
3.16.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.base import Message
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_core.messages.requests import LogPosition

PART_BYTES_MAX = 512 * 1024
"""Most bytes of a copy in one message."""
COPY_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of a compressed copy."""


class OfferMetadataCopy(Message, frozen=True, kw_only=True):
    """Offer the copy that ends at `position`, or send a part of it. `size`: compressed bytes of the
    whole copy, 0 while the broker has not been asked for it; `data`: its bytes from `start` on.

    `acted_beyond`: True if the broker has acted on a decision that its copy lacks, since an answer
    of the controller overtook the metadata stream."""

    cluster_id: UUID
    broker_id: BrokerId
    controller_epoch: ControllerEpoch
    position: LogPosition
    acted_beyond: bool = False
    size: int = 0
    start: int = 0
    data: bytes = b""


class CopyWanted(Message, frozen=True, kw_only=True):
    """The answer to an offer: send `length` bytes of the copy from `start` on. With length 0
    nothing is wanted, and the broker offers again after its next refusal."""

    start: int = 0
    length: int = 0


class CopyContent(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's copy of the metadata: the encoded image after the batch with `nonce` and
    `controller_epoch`, and the batches that follow it. On the wire it is compressed with zlib."""

    image: bytes
    nonce: str | None
    controller_epoch: ControllerEpoch
    batches: tuple[MetadataBatchCopy, ...] = ()
