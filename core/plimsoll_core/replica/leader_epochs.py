"""Which leader epoch begins where in a log: what divergence is proven and cut with (KIP-101, 279).

The log appends to it, truncation cuts it, and both sides of a fetch ask it where a term ends.  It
is always rebuildable from batch headers; only an empty term (the leader's own, at the log's end) is
not in the log.  Strictly increasing in epoch and in offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class EpochCache:
    """Sorted terms and their start offsets; `version` grows with every change."""

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
        """The newest term, whether or not it has records yet."""
        return self._epochs[-1] if self._epochs else None

    @property
    def oldest(self) -> int | None:
        """Of a term before it the log holds nothing, nor what would say where that term ended."""
        return self._epochs[0] if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """A batch of `epoch` (or its leader's take-over) begins at `start`."""
        epochs = self._epochs
        if epochs and epochs[-1] == epoch:
            return
        assert not epochs or epoch > epochs[-1], (epoch, epochs[-1])
        self.truncate_from_end(start)  # terms that never got a record give way
        epochs.append(epoch)
        self._starts.append(start)
        self.version += 1

    def epoch_of_last(self, log_end_offset: int) -> int | None:
        """The last batch's term: the newest one that starts below the log's end."""
        position = bisect_left(self._starts, log_end_offset)
        return self._epochs[position - 1] if position else None

    def epoch_at(self, offset: int) -> int | None:
        """The term of the batch that holds `offset`."""
        position = bisect_right(self._starts, offset)
        return self._epochs[position - 1] if position else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Where `epoch` ends, and the greatest known term that is not above it.

        None when no known term is as new as `epoch`: nothing can be said.
        """
        epochs = self._epochs
        if not epochs or epoch > epochs[-1]:
            return None
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(epochs, epoch)
        return (epochs[above - 1] if above else epoch), self._starts[above]

    def truncate_from_end(self, offset: int) -> None:
        """Drop the terms that start at or after `offset` - also when no record is cut."""
        position = bisect_left(self._starts, offset)
        if position < len(self._starts):
            del self._epochs[position:]
            del self._starts[position:]
            self.version += 1

    def truncate_from_start(self, offset: int, log_end_offset: int) -> None:
        """The log now starts at `offset`: the term that holds it starts there too.

        A log that ends there as well goes on knowing the term of the record that it held last,
        which starts at that record then: how complete a log is does not depend on what it let go.
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
