"""The start offsets of leader epochs in a log; they prove divergence (KIP-101, KIP-279).

The log adds an epoch with its first batch, and truncation removes epochs. Both sides of a fetch ask
where an epoch ends. The cache can always be rebuilt from batch headers, except an epoch without
records (the leader's own, at the log's end). Entries strictly increase in epoch and in offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class EpochCache:
    """The leader epochs of one log, in ascending order, each with the offset at which it starts.
    `version` grows with every change, so that the log knows when its checkpoint file is
    outdated."""

    __slots__ = ("_epochs", "_starts", "version")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.version = 0
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int | None:
        """Return the newest leader epoch, even if it has no records yet; None if the cache is
        empty."""
        return self._epochs[-1] if self._epochs else None

    @property
    def oldest(self) -> int | None:
        """Return the oldest leader epoch in the cache, or None if the cache is empty. Epochs before
        it are unknown."""
        return self._epochs[0] if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """Record that `epoch` begins at offset `start`, with a batch or with its leader's election.
        Older epochs that start at or after `start` have no records and are removed. Do nothing if
        `epoch` is already the newest one; it must not be older than that."""
        epochs = self._epochs
        if epochs and epochs[-1] == epoch:
            return
        assert not epochs or epoch > epochs[-1], (epoch, epochs[-1])
        self.truncate_from_end(start)  # terms that never got a record give way
        epochs.append(epoch)
        self._starts.append(start)
        self.version += 1

    def epoch_of_last(self, log_end_offset: int) -> int | None:
        """Return the leader epoch of the last batch: the newest that starts below `log_end_offset`.
        Return None if no epoch does."""
        position = bisect_left(self._starts, log_end_offset)
        return self._epochs[position - 1] if position else None

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of the batch that holds `offset`, or None if it is below all
        known epochs."""
        position = bisect_right(self._starts, offset)
        return self._epochs[position - 1] if position else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return the greatest known epoch not above `epoch`, and the offset at which that epoch
        ends.

        Return `epoch` itself and the start of the oldest known epoch if all known ones are newer.
        Return None if all known ones are older than `epoch`, or none is known.
        """
        epochs = self._epochs
        if not epochs or epoch > epochs[-1]:
            return None
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(epochs, epoch)
        return (epochs[above - 1] if above else epoch), self._starts[above]

    def truncate_from_end(self, offset: int) -> None:
        """Remove the epochs that start at or after `offset`, also those without records."""
        position = bisect_left(self._starts, offset)
        if position < len(self._starts):
            del self._epochs[position:]
            del self._starts[position:]
            self.version += 1

    def truncate_from_start(self, offset: int, log_end_offset: int) -> None:
        """Remove the epochs that end at or before `offset`, the log's new start. The epoch that
        holds `offset` starts there from now on.

        A log that is empty at its new start keeps the epoch of its last record, starting at that
        record, since deleting records does not change how complete the log is.
        """
        first = offset - 1 if offset == log_end_offset else offset
        position = bisect_right(self._starts, first) - 1
        if position < 0 or (position == 0 and self._starts[0] == first):
            return
        del self._epochs[:position]
        del self._starts[:position]
        self._starts[0] = first
        self.version += 1

    def clear(self) -> None:
        self.truncate_from_end(0)
