"""The metadata stream: how brokers hear of what is committed.

Between processes like `messages`, but no request that is decided: a controller's stream answers.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.base import Message


class FetchMetadata(Message, frozen=True, kw_only=True):
    """Long poll for the records from `offset` on; if they are no longer kept, a snapshot comes
    first. Sent on the stream connection only. `nonce`: of the batch before `offset`; `term_id`: of
    the controller term in which it was written."""

    cluster_id: UUID
    broker_id: BrokerId
    offset: MetadataOffset
    nonce: str | None = None
    term_id: str | None = None
    wait_ms_max: int = 500


class MetadataBatchCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A committed batch as the broker stores it; `records_json` is the JSON array as committed,
    so that a broker keeps what it does not know."""

    base_offset: MetadataOffset
    controller_epoch: ControllerEpoch
    nonce: str
    records_json: bytes
    record_count: int


class MetadataUpdate(Message, frozen=True, kw_only=True):
    """Records, after a snapshot if there is one. `snapshot`: compressed JSON of the image at
    `snapshot_end`."""

    snapshot: bytes | None = None
    snapshot_end: MetadataOffset = MetadataOffset(0)
    snapshot_nonce: str | None = None
    batches: tuple[MetadataBatchCopy, ...] = ()
    end_offset: MetadataOffset = MetadataOffset(0)
