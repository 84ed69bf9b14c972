"""Splits bytes from a socket into frames: an i32 length, then that many bytes.

Both servers and both clients have one `Framer` per connection. Sans-IO: pass received bytes to
`receive`, or let the socket write into `get_buffer` and call `received` with their number; then
call `next_frame` until it returns None. A length that is negative or above the limit is the peer's
fault. It is refused as soon as its four bytes have arrived, before memory of that size is
allocated.
"""

from __future__ import annotations

import struct
from contextlib import suppress

_LENGTH = struct.Struct(">i")
_BEGINNING = struct.Struct(">i4s")
"""Layout of a frame's length prefix and its first `BEGINNING_BYTES` bytes."""

CHUNK_BYTES = 16 * 1024
_CUT_OUT_MAX = CHUNK_BYTES - _LENGTH.size
GROWTH = 16
STEP_BYTES = 1024 * 1024
STEP_PART = 4
STEP_BYTES_MAX = 4 * STEP_BYTES
"""Largest step in bytes by which a large frame's buffer grows. The buffer grows with the bytes that
have arrived, whatever length was announced: it is multiplied by `GROWTH` until it has `STEP_BYTES`,
then grows by a `STEP_PART`-th of its size, within the two bounds. Fresh memory costs about a
millisecond for each 2 MiB, for which the event loop waits."""
BEGINNING_BYTES = 4
"""Number of a request's first bytes that hold its API key and version."""
_ZEROS = memoryview(bytes(STEP_BYTES))


class FrameTooLarge(Exception):
    """Raised if the peer announced a frame with a negative length or one above the limit."""


class Framer:
    """Splits the bytes of one connection into frames. `frame_bytes_max`: the size limit in bytes of
    a frame, without its length prefix, unless `limit_of` sets another.

    Small frames are copied out of a shared chunk of memory. A large frame is received into a buffer
    of its own, which grows as bytes arrive. A returned frame belongs to the caller, which may write
    into it.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._chunk = bytearray()
        self._begin = 0
        self._end = 0
        self._frame: bytearray | None = None
        self._length = 0
        self._got = 0
        # The beginning of the last long frame with a limit of its own, and that limit: the next one
        # with this beginning is received without asking.  0: there was none.
        self._alike = b""
        self._alike_bytes_max = 0
        # Bytes by which the next `get_buffer` grows a large frame's memory.
        self.growth = 0

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes; for callers that do not read into `get_buffer`."""
        view = memoryview(data)
        while view:
            room = self.get_buffer()
            if not room:
                self._grow_chunk(len(view))
                room = self.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            room.release()
            self.received(count)
            view = view[count:]

    def _grow_chunk(self, more: int) -> None:
        """Make room in the chunk for `more` bytes. Only `receive` needs this: callers of
        `get_buffer` take frames out in between."""
        self._chunk = self._chunk[self._begin : self._end] + bytearray(more)
        self._end -= self._begin
        self._begin = 0

    def get_buffer(self) -> memoryview:
        """Return memory to read the next bytes into. It is empty if `next_frame` must be called
        first."""
        frame = self._frame
        if frame is not None and self._got < self._length:
            if self.growth:
                self._frame = frame = _grown(frame, self.growth)
                self.growth = 0
            return memoryview(frame)[self._got :]
        if self._begin == self._end:
            self._begin = self._end = 0
            if not self._chunk:
                self._chunk = bytearray(CHUNK_BYTES)
        elif self._begin and 2 * self._end > len(self._chunk):
            self._chunk[: self._end - self._begin] = self._chunk[self._begin : self._end]
            self._end -= self._begin
            self._begin = 0
        return memoryview(self._chunk)[self._end :]

    def _next_growth(self, size: int) -> int:
        """Return by how many bytes to enlarge the buffer of a large frame, `size` bytes of which
        are filled."""
        whole = self._length
        if size < STEP_BYTES:
            return min(whole, max(GROWTH * size, CHUNK_BYTES), STEP_BYTES) - size
        step = max(STEP_BYTES, min(size // STEP_PART, STEP_BYTES_MAX))
        return min(whole - size, step)

    @property
    def held(self) -> int:
        """Return the bytes of memory allocated for an unfinished large frame, 0 if there is none.
        Small frames share the chunk."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def came(self) -> int:
        """Return how many bytes of an unfinished large frame have arrived, 0 if there is none."""
        return 0 if self._frame is None else self._got

    def rest(self) -> None:
        """Release the chunk's memory if no unreturned bytes are in it; used while the connection is
        idle. Otherwise do nothing."""
        if self._begin == self._end:
            self._begin = self._end = 0
            self._chunk = bytearray()

    def drop(self) -> None:
        """Discard all received bytes; no more will come."""
        self._frame, self.growth = None, 0
        self._begin = self._end = 0
        self._chunk = bytearray()

    def received(self, count: int) -> bool:
        """Record that `count` bytes were read into the last `get_buffer`. Return False if
        `next_frame` has nothing to return yet, because the bytes belong to an incomplete large
        frame."""
        frame = self._frame
        if frame is not None and self._got < self._length:
            self._got = got = self._got + count
            if got == self._length:
                return True
            if got == len(frame):
                self.growth = self._next_growth(got)
            return False
        self._end += count
        # Else a producer's every large frame would be looked at twice as if it were whole.
        return frame is not None or not (self._alike_bytes_max and self._begins_alike())

    def _begins_alike(self) -> bool:
        """If the received bytes begin a large frame that `is_alike` has allowed, start to receive
        the frame into a buffer of its own and return True. Otherwise return False."""
        begin = self._begin
        came = self._end - begin - _LENGTH.size
        if came < BEGINNING_BYTES:
            return False
        length, beginning = _BEGINNING.unpack_from(self._chunk, begin)
        if beginning != self._alike or not _CUT_OUT_MAX < length <= self._alike_bytes_max:
            return False
        if came >= length:
            return False
        self._begin_large(begin + _LENGTH.size, length)
        return True

    @property
    def unfinished(self) -> bool:
        """Return True if a part of a frame has arrived that `next_frame` has not returned."""
        return self._frame is not None or self._begin < self._end

    def next_frame(self) -> bytearray | None:
        """Remove and return the next frame without its length prefix. Return None if it is not
        complete, or its size limit cannot be decided yet. Raises FrameTooLarge."""
        frame = self._frame
        if frame is not None:
            if self._got < self._length:
                return None
            self._frame = None
            return frame
        begin = self._begin + _LENGTH.size
        if begin > self._end:
            return None
        length: int = _LENGTH.unpack_from(self._chunk, self._begin)[0]
        if not 0 <= length <= self._frame_bytes_max and not self._is_allowed(length, begin):
            return None
        end = begin + length
        if end <= self._end:
            self._begin = end
            return self._chunk[begin:end]
        if length > _CUT_OUT_MAX:
            self._begin_large(begin, length)
        return None

    def take_back(self, frame: bytearray) -> None:
        """Put back a frame that `next_frame` has just returned: the next call returns it again."""
        self._frame = frame
        self._length = self._got = len(frame)

    def limit_of(self, length: int, beginning: bytes) -> int | None:
        """Return the size limit in bytes for a frame longer than `frame_bytes_max`, or None if more
        of its first bytes are needed to decide. Subclasses override this. `beginning`: those of the
        frame's first `BEGINNING_BYTES` that have arrived. The method may call `is_alike` if the
        limit holds for later frames too."""
        return self._frame_bytes_max

    def is_alike(self, beginning: bytes, frame_bytes_max: int) -> None:
        """Allow later frames that start with `beginning` to have up to `frame_bytes_max` bytes,
        without another call of `limit_of`."""
        self._alike, self._alike_bytes_max = beginning, frame_bytes_max

    def _is_allowed(self, length: int, begin: int) -> bool:
        """Return True if a frame of `length` bytes may be received, False if more of its bytes are
        needed to decide. Raises FrameTooLarge if it may not."""
        limit = self._frame_bytes_max
        if length > 0:
            beginning = self._chunk[begin : min(begin + BEGINNING_BYTES, self._end)]
            found = self.limit_of(length, bytes(beginning))
            if found is None:
                return False
            limit = found
        if not 0 <= length <= limit:
            raise FrameTooLarge(
                f"the other process sent a message of {length} bytes; at most {limit} are allowed"
            )
        return True

    def _begin_large(self, begin: int, length: int) -> None:
        self._length = length
        self._got = self._end - begin
        self._frame = self._chunk[begin : self._end]
        self.growth = self._next_growth(self._got)
        self._begin = self._end = 0
        if len(self._chunk) > CHUNK_BYTES:
            self._chunk = bytearray()


def _grown(frame: bytearray, more: int) -> bytearray:
    """Return the frame's buffer with `more` bytes of room after it. A large frame is resized in
    place, since copying it at each step would hold the event loop ever longer. That requires that
    the last `get_buffer`'s view was released; otherwise the frame is copied."""
    size = len(frame) + more
    if len(frame) >= STEP_BYTES:
        with suppress(BufferError):
            while len(frame) < size:
                frame += _ZEROS[: size - len(frame)]
            return frame
    grown = bytearray(size)
    grown[: len(frame)] = frame
    return grown
