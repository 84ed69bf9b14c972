"""Which connections a listener takes from an address, before anything is read of them.

Made by `Server`, for plaintext connections as they come and for others before their handshake.  How
many there may be, `plimsoll_core.quotas.connections` decides, for all listeners together.  One that
came too soon is closed after a while, as in Kafka: a client that connects again at once waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from plimsoll_core.quotas.connections import AddressConnections

DELAYED_MAX = 1_000
"""Connections that wait to be closed; beyond, they are closed at once."""


class AddressAdmission:
    """Of one listener; `closed_for` counts what is refused, by reason."""

    def __init__(self, addresses: AddressConnections, closed_for: Counter[str]) -> None:
        self._addresses = addresses
        self._closed_for = closed_for
        self._delayed: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Whether it is served; else it is closed here.  Of one that is served, `left` is told."""
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
        """A connection that was served is over."""
        self._addresses.left(host)

    def close(self) -> None:
        """The listener stops."""
        for transport in list(self._delayed):
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self._delayed.pop(transport).cancel()
        transport.abort()


def host_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
