"""Decides which records and which batches of a log are kept when it is cleaned.

Called by the broker's cleaner for each batch, and for the records of one that may lose tombstones.
It knows times, no bytes.  A batch that stays keeps its offsets, leader epoch, producer and
sequence, whatever of its records goes.  Source: Kafka's Cleaner; docs/protocol.md §10.2, with what
is stricter there.
"""

from __future__ import annotations

from typing import NamedTuple


class Horizon(NamedTuple):
    """From when on the tombstones of one batch may go.

    `at_ms` None: it holds none, or the wall clock is not to be believed.  `is_new`: this round is
    the first that finds a tombstone in it; the batch has to be written with `at_ms`.
    """

    at_ms: int | None
    is_new: bool


def delete_horizon(
    known_ms: int | None, has_tombstones: bool, delete_retention_ms: int, now_ms: int | None
) -> Horizon:
    """`known_ms`: what the batch says, if it does.

    Readers that began before a tombstone was superseded by nothing still find it until then: a
    consumer, or a follower that is behind, which has copied the value that it deletes.
    """
    if known_ms is not None:
        return Horizon(known_ms, is_new=False)
    if not has_tombstones or now_ms is None:
        return Horizon(None, is_new=False)
    return Horizon(now_ms + delete_retention_ms, is_new=True)


def keeps_record(*, superseded: bool, expired_tombstone: bool) -> bool:
    """`superseded`: the part that is cleaned holds a later record of its key.

    Records that are not the last of their key go, and tombstones past their horizon.
    """
    return not (superseded or expired_tombstone)


def is_expired(horizon: Horizon, now_ms: int | None) -> bool:
    """Return True if the tombstones of a batch may go.  One with a new horizon stays this
    time."""
    if horizon.at_ms is None or horizon.is_new or now_ms is None:
        return False
    return now_ms >= horizon.at_ms


class EmptyBatch(NamedTuple):
    """The reduced form of a batch of which no record stays."""

    ends_segment: bool
    begins_epoch: bool
    of_producer: bool

    @property
    def stays(self) -> bool:
        """As 61 bytes without a record.

        The last of a segment: so a segment ends where the next begins, a segment that is missing
        shows, and a follower that copies the log reaches its end (Kafka keeps the last one of a
        round).  The first of a leader epoch: so every replica can tell from batches alone where a
        term begins (Kafka: from a file only, and a follower that starts afresh not at all).  One by
        which a retry of an idempotent producer is recognised: its last five below the round's end,
        above which the log may still be cut (Kafka: its last in the log).
        """
        return self.ends_segment or self.begins_epoch or self.of_producer
