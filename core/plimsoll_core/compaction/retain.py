"""Decides which records and which batches of a log are kept when it is cleaned.

Called by the broker's cleaner for each batch, and for the records of a batch that may lose
tombstones. It handles times and flags, no bytes. A batch that stays keeps its offsets, leader
epoch, producer and sequence, whichever of its records are removed. Source: Kafka's Cleaner;
docs/protocol.md §10.2, which lists the stricter rules.
"""

from __future__ import annotations

from typing import NamedTuple


class Horizon(NamedTuple):
    """The time from which the tombstones of a batch may be removed. `at_ms`: that time; None if the
    batch has no tombstones, or the wall clock is not trusted. `is_new`: True if this round is the
    first to find a tombstone in the batch, which must then be rewritten with `at_ms`."""

    at_ms: int | None
    is_new: bool


def delete_horizon(
    known_ms: int | None, has_tombstones: bool, delete_retention_ms: int, now_ms: int | None
) -> Horizon:
    """Return the batch's delete horizon: `known_ms` (stored in the batch) if it is not None; else
    no time, if the batch has no tombstones or `now_ms` is None (the wall clock is not trusted);
    else a new one, `now_ms` plus the retention. Until the horizon, readers that began earlier still
    find the tombstone: a consumer, or a follower that has copied the deleted value and is
    behind."""
    if known_ms is not None:
        return Horizon(known_ms, is_new=False)
    if not has_tombstones or now_ms is None:
        return Horizon(None, is_new=False)
    return Horizon(now_ms + delete_retention_ms, is_new=True)


def keeps_record(*, superseded: bool, expired_tombstone: bool) -> bool:
    """Return True if a record stays. Removed are tombstones past their horizon, and records with a
    later record of the same key in the cleaned part (`superseded`)."""
    return not (superseded or expired_tombstone)


def is_expired(horizon: Horizon, now_ms: int | None) -> bool:
    """Return True if the tombstones of a batch may be removed at `now_ms`. Return False if the
    horizon is new in this round or has no time, or `now_ms` is None (the wall clock is not
    trusted)."""
    if horizon.at_ms is None or horizon.is_new or now_ms is None:
        return False
    return now_ms >= horizon.at_ms


class EmptyBatch(NamedTuple):
    """A batch from which cleaning has removed all records; decides whether its header must stay in
    the log. `ends_segment`: True if it is the last batch of its segment; `begins_epoch`: the first
    of a leader epoch; `of_producer`: one of the last five of an idempotent producer below the
    round's end."""

    ends_segment: bool
    begins_epoch: bool
    of_producer: bool

    @property
    def stays(self) -> bool:
        """Return True if a batch without records stays, as a header of 61 bytes.

        Three kinds stay. The last batch of a segment: so each segment ends where the next begins, a
        missing segment is noticed, and a follower's copy reaches the log's end (Kafka keeps only
        the last batch of a round). The first batch of a leader epoch: so every replica finds epoch
        starts in batches alone (Kafka has them in a file only, which a new follower lacks). The
        last five batches of an idempotent producer below the round's end, by which a retry is
        recognised; records above the end may still be truncated (Kafka keeps the producer's last
        one in the log)."""
        return self.ends_segment or self.begins_epoch or self.of_producer
