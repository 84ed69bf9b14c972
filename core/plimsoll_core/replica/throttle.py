"""Limits the bytes per second that replicas copy in a move: a token bucket in whole bytes. Pure.

Called by the fetchers of replicas that are being added. A fetcher takes a piece of bytes before it
sends a fetch, and settles it when the reply has come: bytes that did not come are given back, bytes
beyond the piece (a batch is never split) are owed and delay the next piece. In any time T at most
rate * T plus a quarter of a second's worth is taken. The bytes that arrive can exceed that only by
earlier requests' bytes, and by a batch for each connection. A new bucket is empty, so its first
piece must be waited for.
"""

from __future__ import annotations

BURST_PARTS = 4
"""The divisor of a second's worth that gives the capacity of a bucket."""
PIECE_BYTES_MIN = 64 * 2**10
PIECE_BYTES_MAX = 2**20
PIECE_PARTS = 200
"""The divisor of a second's worth that gives the size of a piece, within the bounds
`PIECE_BYTES_MIN` and `PIECE_BYTES_MAX`. A leader and this broker serve other requests between two
pieces, and a piece does not hold them up for long."""
_MS = 1_000


class Bucket:
    """A token bucket that limits how many bytes per second replicas copy when they are moved to a
    broker. `rate`: bytes per second; 0 permits none. `piece`: the number of bytes that must be
    available before a fetch may be sent. `now_ms` never goes back."""

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
        """Set another rate. Bytes owed so far stay owed."""
        self._fill(now_ms)
        self._set(rate)

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._at_ms, 0)
        self._at_ms += passed_ms
        self._milli = min(self._milli + self.rate * passed_ms, self._burst * _MS)

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until the next piece may be taken: 0 for now, None if the rate is
        0."""
        self._fill(now_ms)
        missing = self.piece * _MS - self._milli
        if missing <= 0 and self.rate > 0:
            return 0
        return -(-missing // self.rate) if self.rate > 0 else None

    def take(self, now_ms: int) -> int:
        """Take a piece that is due, and return the number of bytes that may be fetched now. After a
        delay it is more than one piece, so that a busy machine does not make the copy slower than
        its limit."""
        assert self.due_in_ms(now_ms) == 0, "nothing is due"
        taken = min(self._milli // _MS, PIECE_BYTES_MAX)
        self._milli -= taken * _MS
        return taken

    def settle(self, taken: int, used: int, now_ms: int) -> None:
        """Charge the `used` bytes of a piece of `taken` bytes. An unused part is given back, an
        excess is owed."""
        self._fill(now_ms)
        self._milli = min(self._milli + (taken - used) * _MS, self._burst * _MS)
