"""The metadata stream: how brokers receive the committed records of the metadata log.

These messages go between processes like the requests of `messages`, but `decide` does not see them:
a controller's metadata stream answers them.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.base import Message


class FetchMetadata(Message, frozen=True, kw_only=True):
    """A long poll for the metadata records from `offset` on, on the stream connection only. The
    answer begins with a snapshot if those records are no longer kept.

    `nonce`, `term_id`: the random number of the batch before `offset`, and the controller term that
    wrote it, by which the controller checks that the broker's copy is of this log. `wait_ms_max`:
    the longest time in ms for which the controller may wait for new records.
    """

    cluster_id: UUID
    broker_id: BrokerId
    offset: MetadataOffset
    nonce: str | None = None
    term_id: str | None = None
    wait_ms_max: int = 500


class MetadataBatchCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A committed batch of the metadata log as a broker stores it. `nonce`: the batch's random
    number. `records_json`: the JSON array exactly as committed, so that a broker also keeps fields
    that it does not know; `record_count`: the number of its items."""

    base_offset: MetadataOffset
    controller_epoch: ControllerEpoch
    nonce: str
    records_json: bytes
    record_count: int

    @property
    def end_offset(self) -> MetadataOffset:
        """Return the offset after the last record."""
        return MetadataOffset(self.base_offset + self.record_count)


class MetadataUpdate(Message, frozen=True, kw_only=True):
    """Metadata records as `batches`, or, for a broker that needs older records than are kept, a
    snapshot. `snapshot`: zlib-compressed JSON of the cluster image at `snapshot_end`;
    `snapshot_nonce`: of the batch before that offset. `end_offset`: the end of the metadata log."""

    snapshot: bytes | None = None
    snapshot_end: MetadataOffset = MetadataOffset(0)
    snapshot_nonce: str | None = None
    batches: tuple[MetadataBatchCopy, ...] = ()
    end_offset: MetadataOffset = MetadataOffset(0)
