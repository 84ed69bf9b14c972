"""AddressAdmission: admit or reject a listener's connections by address, before anything is read.

Made by `Server`. Plaintext connections are judged when they are accepted, TLS connections before
their handshake. `plimsoll_core.quotas.connections` holds the limits, which all listeners share. A
connection over the rate limit is closed after a delay, as in Kafka, so that a client that
reconnects at once has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from plimsoll_core.quotas.connections import AddressConnections

DELAYED_MAX = 1_000
"""Rejected connections that wait to be closed. Beyond this number they are closed at once."""


class AddressAdmission:
    """One listener's admission by address. `closed_for` counts rejections by reason."""

    def __init__(self, addresses: AddressConnections, closed_for: Counter[str]) -> None:
        self._addresses = addresses
        self._closed_for = closed_for
        self._delayed: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Return True if the connection is served; otherwise close it. Call `left` when a served
        connection ends."""
        host = host_of(transport)
        verdict = self._addresses.arrived(host, time.monotonic_ns() // 1_000_000)
        if not verdict.reason:
            return True
        self._closed_for[verdict.reason] += 1
        if verdict.closed_after_ms and len(self._delayed) < DELAYED_MAX:
            transport.pause_reading()
            loop = asyncio.get_running_loop()
            after_s = verdict.closed_after_ms / 1000
            self._delayed[transport] = loop.call_later(after_s, self._close, transport)
        else:
            transport.abort()
        return False

    def left(self, host: str) -> None:
        """A served connection has ended."""
        self._addresses.left(host)

    def close(self) -> None:
        """Close all delayed connections; the listener stops."""
        for transport in list(self._delayed):
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self._delayed.pop(transport).cancel()
        transport.abort()


def host_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer's IP address, or "" if it is not known."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
