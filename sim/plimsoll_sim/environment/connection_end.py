"""One side of a simulated connection: an asyncio transport above a simulated kernel that accepts
all data at once.

`network.Network` creates both sides and delivers the bytes.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context
from typing import Any, Protocol

from plimsoll_sim.engine.draws import LatencyUs
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process

FIN = object()
RST = object()


class Carrier(Protocol):
    """The part of the network that a side of a connection uses."""

    loop: SimLoop
    latency_us: LatencyUs

    def send(self, end: End, what: Any) -> None: ...
    def forget(self, end: End) -> None: ...
    def passes(self, source: str, target: str) -> bool: ...


class End:
    """One side of a connection: the asyncio transport of its protocol."""

    def __init__(self, network: Carrier, process: Process, context: Context) -> None:
        self._network = network
        self.process = process
        self.context = context
        self.protocol: Any = None
        self.peer: End = self
        self.address = ("", 0)
        self.closed = False
        self._reading = True
        self._unread: list[bytes] = []
        self.held: deque[Any] = deque()
        self.arrives_us = 0
        self.in_flight = 0
        # The delay before its peer hears that it has read something.
        self.reads_late_us = 0

    # --- asyncio's transport ----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed and self.process.alive:
            self._network.send(self, bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def abort(self) -> None:
        self._leave(RST)

    def close(self) -> None:
        self._leave(FIN)

    def _leave(self, how: object) -> None:
        if self.closed or not self.process.alive:
            return
        self._network.send(self, how)
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self._network.forget(self)
        self._network.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.peer.address
        return self.address if name == "sockname" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.in_flight

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._unread:
            self._network.loop.call_soon(self._read, context=self.context)

    # --- what arrives -----------------------------------------------------------------------------

    def arrive(self, what: Any) -> None:
        if self.closed:
            return
        if what is FIN:
            self.protocol.eof_received()
            self._lose(None)
        elif what is RST:
            self._lose(ConnectionResetError("connection reset by peer"))
        else:
            self._unread.append(what)
            self._read()

    def _read(self) -> None:
        while self._unread and self._reading and not self.closed:
            data = self._unread.pop(0)
            if hasattr(self.protocol, "data_received"):
                self.was_read(len(data))
                self.protocol.data_received(data)
            else:
                rest = self._fill(data)
                if rest:
                    self._unread.insert(0, rest)
                self.was_read(len(data) - len(rest))

    def was_read(self, size: int) -> None:
        """Handle the peer's reading of `size` bytes: free that much room in the kernel's buffer.
        Does nothing here; bounded connections override it."""

    def _fill(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view and self._reading and not self.closed:
            buffer = self.protocol.get_buffer(len(view))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            self.protocol.buffer_updated(size)
            view = view[size:]
        return bytes(view)
