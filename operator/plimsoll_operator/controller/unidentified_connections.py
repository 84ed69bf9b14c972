"""Bounds of connections that have not named a broker: their number and time.

Kept by the controllers' server. Strangers share one bound, so that they take nothing that brokers
need.
"""

from __future__ import annotations

from typing import Protocol

STRANGERS_MAX = 256
"""Maximum number of connections that have not named a broker; one more closes the oldest."""


STRANGERS_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of incomplete requests that all strangers together may have sent."""


STRANGER_MS_MAX = 30_000
"""Time to be identified as a registered broker; a broker that still waits for acceptance connects
again."""


class ClosableConnection(Protocol):
    """A connection that can be closed to keep the bounds."""

    def close(self, why: str) -> None: ...


class Strangers:
    """All connections of a server that have not named a broker, oldest first."""

    def __init__(self) -> None:
        self._held: dict[ClosableConnection, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def came(self, connection: ClosableConnection) -> None:
        """Add a connection; close the oldest if there are too many."""
        self._held[connection] = 0
        if len(self._held) > STRANGERS_MAX:
            oldest = next(iter(self._held))
            del self._held[oldest]
            oldest.close("too many connections that named no broker")

    def left(self, connection: ClosableConnection) -> None:
        """Remove a connection that is closed or has named its broker."""
        self._held.pop(connection, None)

    def holds(self, connection: ClosableConnection, size: int) -> bool:
        """Note the bytes of its incomplete request. Return False if all strangers together hold too
        many."""
        if connection in self._held:
            self._held[connection] = size
        return sum(self._held.values()) <= STRANGERS_BYTES_MAX
