"""Bytes from a socket to frames: an i32 length, then that many bytes.

Both servers and both clients own one per connection.  Sans-IO: `receive` what came, then take
frames until there are none.  A length that is negative or above the limit is the peer's fault;
it is refused as soon as its four bytes are there, before anything of that size is kept.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")


class FrameTooLarge(Exception):
    """The peer announced a frame that nobody will read."""


class Framer:
    """At most one unfinished frame is held, plus what came with it."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what came."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_frame(self) -> bytearray | None:
        """The next frame without its length, or None until more has come."""
        available = len(self._buffer) - self._start
        if available < _LENGTH.size:
            return None
        length: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        if not 0 <= length <= self._frame_bytes_max:
            raise FrameTooLarge(f"a frame of {length} bytes; the limit is {self._frame_bytes_max}")
        if available - _LENGTH.size < length:
            return None
        begin = self._start + _LENGTH.size
        frame = self._buffer[begin : begin + length]
        self._start = begin + length
        if self._start == len(self._buffer):
            self._buffer.clear()
            self._start = 0
        return frame
