"""Limits the bytes per second that replicas copy in a move: a token bucket in whole bytes. Pure.

Called by the fetchers of replicas that are being added. A fetcher takes a piece of bytes before it
sends a fetch, and settles it when the reply has come: bytes that did not come are given back, bytes
beyond the piece (a batch is never split) are owed and delay the next piece. In any time T at most
rate * T and a quarter of a second's worth is taken. What arrives can exceed that only by what was
requested before, and by a batch for each connection. A new bucket is empty, so it waits for its
first piece.
"""

from __future__ import annotations

BURST_PARTS = 4
"""A bucket holds so many parts of a second's worth."""
PIECE_BYTES_MIN = 64 * 2**10
PIECE_BYTES_MAX = 2**20
PIECE_PARTS = 200
"""A piece is due when such a part of a second's worth is there, within these bounds: a leader and
this broker serve others between two pieces, and none waits for long while one is written."""
_MS = 1_000


class Bucket:
    """A token bucket that limits how many bytes replicas copy when they are moved to a broker.
    `rate` is in bytes a second; 0 lets nothing through. `now_ms` never goes back."""

    __slots__ = ("_at_ms", "_burst", "_milli", "piece", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._at_ms = now_ms
        self._milli = 0  # thousandths of bytes: nothing is lost to rounding
        self._set(rate)

    def _set(self, rate: int) -> None:
        assert rate >= 0
        self.rate = rate
        self._burst = max(rate // BURST_PARTS, 1)
        wanted = min(max(rate // PIECE_PARTS, PIECE_BYTES_MIN), PIECE_BYTES_MAX)
        self.piece = min(wanted, max(self._burst // 2, 1))
        self._milli = min(self._milli, self._burst * _MS)

    def limit(self, rate: int, now_ms: int) -> None:
        """Set another rate; bytes owed so far stay owed."""
        self._fill(now_ms)
        self._set(rate)

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._at_ms, 0)
        self._at_ms += passed_ms
        self._milli = min(self._milli + self.rate * passed_ms, self._burst * _MS)

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return in how many milliseconds the next piece may be taken: 0 for now, None if the rate
        is 0."""
        self._fill(now_ms)
        missing = self.piece * _MS - self._milli
        if missing <= 0 and self.rate > 0:
            return 0
        return -(-missing // self.rate) if self.rate > 0 else None

    def take(self, now_ms: int) -> int:
        """Return how many bytes may be fetched now that a piece is due: the piece, or more after a
        delay, so that a busy machine does not make the copy slower than its limit."""
        assert self.due_in_ms(now_ms) == 0, "nothing is due"
        taken = min(self._milli // _MS, PIECE_BYTES_MAX)
        self._milli -= taken * _MS
        return taken

    def settle(self, taken: int, used: int, now_ms: int) -> None:
        """Charge the `used` bytes of a piece of `taken` bytes: an unused part is given back, an
        excess is owed."""
        self._fill(now_ms)
        self._milli = min(self._milli + (taken - used) * _MS, self._burst * _MS)
