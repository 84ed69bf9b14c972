"""A session's received and unserved frames, and the memory that they may have.

Owned by a `Session`.  How long a frame may be follows from what its first bytes ask for; memory for
a large one is asked of the intake bit by bit, as bytes come, and given back when nothing refers to
the frame any more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from plimsoll_broker.server.client_memory_pools import Intake, Waiter
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_wire.framing import BEGINNING_BYTES, Framer

_ASKED = struct.Struct(">hh")
PARSED_FACTOR = 16
"""A Fetch as objects, in multiples of its bytes: about 24 bytes a partition become 350."""


class RequestReceiver:
    """`serves` says whether an API is handled in a version.

    It does not refer to its session: what a lost connection held is freed at once, by its last
    reference, and not by a collection that may come much later.
    """

    __slots__ = ("_charged", "_framer", "_intake", "_limits", "_serves", "starved", "unfinished")

    def __init__(
        self,
        limits: ListenerLimits,
        serves: Callable[[int, int], bool],
        intake: Intake | None,
    ) -> None:
        self._limits = limits
        self._serves = serves
        self._intake = intake
        self._framer = Framer(limits.unknown_frame_bytes_max, self._limit_of)
        self._charged = 0  # bytes of the intake that the unfinished frame has
        self.starved = False  # whether it waits for memory
        self.unfinished = False  # whether the peer owes the rest of it, as of `may_receive`

    def get_buffer(self) -> memoryview:
        return self._framer.get_buffer()

    def received(self, count: int) -> bool:
        """False: they are in the middle of a large frame, and there is none to take."""
        return self._framer.received(count)

    def rest(self) -> None:
        self._framer.rest()

    @property
    def came(self) -> int:
        """Bytes of an unfinished large frame that are here."""
        return self._framer.came

    @property
    def is_empty(self) -> bool:
        """Whether all that came was taken."""
        return not self._framer.unfinished

    @property
    def has_room(self) -> bool:
        """Whether requests may go on piling up."""
        intake = self._intake
        return intake is None or intake.used < intake.limit

    def next_frame(self) -> tuple[bytearray, int] | None:
        """A frame and how much of the intake it has; `free` or `give_back` that.

        Raises FrameTooLarge.
        """
        frame = self._framer.next_frame()
        if frame is None:
            return None
        charged, self._charged = self._charged, 0
        if charged and self._intake is not None:
            self._intake.ended(self)
        return frame, charged

    def _limit_of(self, length: int, asked: bytes) -> int | None:
        """How long a frame may be that is too long for a request that is not served."""
        limits = self._limits
        if length > limits.frame_bytes_max:
            return limits.frame_bytes_max
        if len(asked) < BEGINNING_BYTES:
            return None
        key, version = _ASKED.unpack(asked)
        if self._serves(key, version):
            return limits.frame_bytes(key)
        return limits.unknown_frame_bytes_max

    def may_receive(self, waiter: Waiter) -> bool:
        """Whether there is memory for what comes next; else `waiter` is woken when there may be."""
        framer = self._framer
        self.unfinished = framer.unfinished
        if self._intake is None or not self.unfinished:
            self.starved = False
            return True
        growth = framer.growth
        more = framer.held + growth - self._charged if growth else 0
        if more > 0:
            if not self._intake.admit(more, waiter, self, self._charged):
                self.starved = True
                return False
            self._charged += more
        self.starved = False
        return True

    def keeps(self, frame: bytearray, charged: int, *, parsed: bool) -> int:
        """What a request that waits has of the intake from now on; `parsed`: in objects, too."""
        if self._intake is None:
            return 0
        kept = len(frame) * (1 + PARSED_FACTOR * parsed)
        self._intake.take(kept)
        self._intake.give_back(charged)
        return kept

    def freed(self, frame: bytearray) -> int:
        """Free it now, unless its handler kept a view of it; how much less is kept then."""
        size = len(frame)
        try:
            frame.clear()
        except BufferError:
            return 0
        self.give_back(size)
        return size

    def give_back(self, charged: int) -> None:
        if self._intake is not None:
            self._intake.give_back(charged)

    def close(self, waiter: Waiter) -> None:
        self._framer = Framer(0)
        if self._intake is not None:
            self._intake.forget(waiter)
            self._intake.ended(self)
            charged, self._charged = self._charged, 0
            self._intake.give_back(charged)
