"""Connections with bounded kernel buffers.

The kernel accepts more data only after the peer has read; the transport queues the rest and pauses
its protocol, as the transports of asyncio and uvloop do. `bounded` gives a network such
connections. They draw from a random generator of their own, so that the draws of runs without them
stay the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.node import assembly
from plimsoll_broker.node.assembly import ClientLimits, client_limits
from plimsoll_net import tls_connection, tls_transport
from plimsoll_sim.engine.process import Process
from plimsoll_sim.environment.connection_end import FIN, RST, Carrier, End
from plimsoll_sim.environment.network import EMPTY, Network

HIGH_BYTES = 64 * 1024
"""Bytes in the queue above which asyncio's transport pauses its protocol."""
PARTIAL = 0.2
"""Probability that a kernel accepts less than it has room for."""
IN_PIECES = 0.3
"""Probability that room becomes free in two steps."""
PROBE_US = 200_000
"""Virtual microseconds after which a kernel asks again for room while the answers are lost."""


class SendBuffers(NamedTuple):
    """Buffers of a connection. `kernel_bytes`: bytes that a kernel holds until the peer has read
    them. `limit_bytes`: replaces the broker's limit of unsent bytes, since a run's messages are
    small; TLS encrypts twice as much in a turn. `deferred`: True if data leaves at the end of a
    turn of the event loop, as with uvloop."""

    kernel_bytes: int
    limit_bytes: int
    deferred: bool = False


class BoundedEnd(End):
    """One side of a connection with bounded buffers."""

    def __init__(
        self,
        sizes: SendBuffers,
        rng: random.Random,
        network: Carrier,
        process: Process,
        context: Context,
    ) -> None:
        super().__init__(network, process, context)
        self._sizes = sizes
        self._rng = rng
        # The kernel's free bytes.
        self._room = sizes.kernel_bytes
        # Data that the kernel has not taken yet.
        self._queue = bytearray()
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        # True if the protocol was told to pause.
        self._full = False
        # True if the kernel is given more in a later turn.
        self._due = False
        # True if it ends once all has left.
        self._closing = False

    # --- asyncio's transport ----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        gone = self.closed or not self.process.alive
        if not data or gone or (self._closing and not self._queue):
            return
        first = not self._queue
        self._queue += data
        if self._sizes.deferred and (self._full or len(self._queue) <= self._high):
            self._flush_later()
        elif first:
            self._hand_over()
        self._maybe_pause()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        self._maybe_pause()

    def get_write_buffer_size(self) -> int:
        return len(self._queue)

    def is_closing(self) -> bool:
        return self.closed or self._closing

    def close(self) -> None:
        if self.is_closing() or not self.process.alive:
            return
        self._closing, self._reading = True, False
        if not self._queue:
            self._finish()

    def abort(self) -> None:
        self._queue.clear()
        super().abort()

    # --- the kernel -------------------------------------------------------------------------------

    def arrive(self, what: Any) -> None:
        if self.closed:
            if isinstance(what, bytes):
                # The data will never be read.
                self._network.send(self, RST)
        elif what is FIN:
            if not self._closing and not self.protocol.eof_received():
                self.close()
        elif not self._closing or what is RST:
            super().arrive(what)
        else:
            self._finish_by_reset()

    def was_read(self, size: int) -> None:
        """Free `size` bytes of room, perhaps in two steps, because the peer has read them."""
        at = self._rng.randint(1, size) if size and self._rng.random() < IN_PIECES else size
        for piece in (at, size - at):
            if piece:
                self._tell(piece)

    def _tell(self, size: int) -> None:
        network, (least, most) = self._network, self._network.latency_us
        late_us = self._rng.randint(least, most) + self.reads_late_us
        at_us = network.loop.now_us + late_us
        network.loop.at_us(at_us, self._told, size, context=EMPTY)

    def _told(self, size: int) -> None:
        network, peer = self._network, self.peer
        assert isinstance(peer, BoundedEnd), "both ends are made by one network"
        if peer.closed:
            return
        if not network.passes(self.process.host, peer.process.host):
            at_us = network.loop.now_us + PROBE_US
            network.loop.at_us(at_us, self._told, size, context=EMPTY)
            return
        peer._room += size
        if peer._queue:
            peer._flush_later()

    def _flush_later(self, us: int | None = None) -> None:
        loop = self._network.loop
        if us is not None:
            loop.at_us(loop.now_us + us, self._flush, context=self.context)
        elif not self._due:
            self._due = True
            loop.call_soon(self._flush, context=self.context)

    def _flush(self) -> None:
        self._due = False
        if self.closed:
            return
        self._hand_over()
        if self._full and len(self._queue) <= self._low:
            self._full = False
            self.protocol.resume_writing()
        if self._closing and not self._queue and not self.closed:
            self._finish()

    def _hand_over(self) -> None:
        """Pass as much of the queue to the kernel as it accepts now."""
        size = min(len(self._queue), self._room)
        if not size:
            return
        if self._rng.random() < PARTIAL:
            size = self._rng.randint(1, size)
        piece = bytes(self._queue[:size])
        del self._queue[:size]
        self._room -= size
        self._network.send(self, piece)
        if self._queue and self._room:
            self._flush_later(self._rng.randint(*self._network.latency_us))

    def _maybe_pause(self) -> None:
        if not self._full and not self.closed and len(self._queue) > self._high:
            self._full = True
            self.protocol.pause_writing()

    def _finish(self) -> None:
        if self._unread:
            self._finish_by_reset()
        else:
            super().close()

    def _finish_by_reset(self) -> None:
        """Reset the connection, because data has arrived that will never be read."""
        self._queue.clear()
        super().abort()


def bounded(network: Network, sizes: SendBuffers | None, seed: int) -> Network:
    """Make the network create connections with these buffers from now on, and return it. None:
    leave it unchanged."""
    if sizes is not None:
        rng = random.Random(f"send buffers {seed}")
        network.make_end = partial(BoundedEnd, sizes, rng)
    return network


@contextmanager
def smaller_limits(sizes: SendBuffers | None) -> Iterator[None]:
    """Use these buffer limits in brokers that are created within the context, for sending and for
    TLS. None: change nothing."""
    if sizes is None:
        yield
        return
    most = sizes.limit_bytes

    def limited(*args: Any, **named: Any) -> ClientLimits:
        limits = client_limits(*args, **named)
        return limits._replace(listener=replace(limits.listener, output_bytes_max=most))

    inside = replace(assembly.REPLICATION_LIMITS, output_bytes_max=most)
    places: list[tuple[Any, str, Any]] = [
        (assembly, "client_limits", limited),
        (assembly, "REPLICATION_LIMITS", inside),
        (tls_connection, "BYTES_A_TURN", 2 * most),
        (tls_transport, "BYTES_A_TURN", 2 * most),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
