"""How many connections that have not said which broker they speak for, and for how long.

Kept by the controllers' server: strangers are bounded together, so that they take nothing that
brokers need.
"""

from __future__ import annotations

from typing import Protocol

STRANGERS_MAX = 256
"""Connections that have not named a broker yet; one more closes the oldest of them."""


STRANGERS_BYTES_MAX = 32 * 1024 * 1024
"""What all of them together may have sent of requests that are not whole yet."""


STRANGER_MS_MAX = 30_000
"""So long it may take to show it; a broker that waits to be let in connects again."""


class ClosableConnection(Protocol):
    """What is closed when it is too much."""

    def close(self, why: str) -> None: ...


class Strangers:
    """All connections of a server that have not named a broker, oldest first."""

    def __init__(self) -> None:
        self._held: dict[ClosableConnection, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def came(self, connection: ClosableConnection) -> None:
        """One more; the oldest gives way."""
        self._held[connection] = 0
        if len(self._held) > STRANGERS_MAX:
            oldest = next(iter(self._held))
            del self._held[oldest]
            oldest.close("too many connections that named no broker")

    def left(self, connection: ClosableConnection) -> None:
        """The connection is closed, or has named its broker."""
        self._held.pop(connection, None)

    def holds(self, connection: ClosableConnection, size: int) -> bool:
        """So many bytes of it wait for the rest of a request; False: that is too much."""
        if connection in self._held:
            self._held[connection] = size
        return sum(self._held.values()) <= STRANGERS_BYTES_MAX
