"""RequestReceiver: a session's received frames, and the memory that they hold.

Owned by a `Session`. The first bytes of a frame determine its largest size. Memory for a large
frame is asked of the intake bit by bit, as bytes arrive, and given back when nothing refers to the
frame any more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

from plimsoll_broker.server.client_memory_pools import RequestAccount, Waiter
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.recent_progress import Progress
from plimsoll_broker.server.reply_slot import ReplySlot
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.framing import BEGINNING_BYTES, Framer

_ASKED = struct.Struct(">hh")
_FETCH_KEY = struct.pack(">h", ApiKey.FETCH)
PARSED_FACTOR = 16
"""The size of a parsed Fetch, in multiples of its bytes: about 24 bytes a partition become 350."""
PARSED_MAX = 8 * 1024 * 1024
"""The largest size of a parsed Fetch: a client's Fetch may name 20,000 partitions."""


class RequestReceiver(Framer):
    """`serves` returns True if an API is handled in a version.

    It does not refer to its session, so that a lost connection's memory is freed at once by its
    last reference, not by a later garbage collection. It inherits from Framer instead of owning
    one: each read of a socket passes here.
    """

    __slots__ = (
        "_account",
        "_charged",
        "_held_back",
        "_limits",
        "_owing_s",
        "_progress",
        "_serves",
        "starved",
    )

    def __init__(
        self,
        limits: ListenerLimits,
        serves: Callable[[int, int], bool],
        account: RequestAccount,
    ) -> None:
        super().__init__(limits.unknown_frame_bytes_max)
        self._limits = limits
        self._serves = serves
        self._account = account
        # True if the next frame is a Fetch without room for its parsed objects.
        self._held_back = False
        self._charged = 0  # intake bytes of the unfinished frame
        self.starved = False  # True while it waits for memory
        # The recent rate of the unfinished frame, whose first byte arrived at `_owing_s`.
        self._progress = Progress()
        self._owing_s: float | None = None

    def came_within(self, now: float, owing_s: float | None, window_s: float) -> int | None:
        """Return the bytes of the unfinished request, owed since `owing_s`, that arrived in the
        window; None until it has been watched for that long."""
        if owing_s != self._owing_s:
            self._owing_s = owing_s
            self._progress.begins()
        return None if owing_s is None else self._progress.within(now, self.came, window_s)

    @property
    def came(self) -> int:
        return 0 if self._held_back else super().came

    def next_request(self, waiter: Waiter) -> tuple[bytearray, int] | None:
        """Return the next frame and its bytes of the intake, which must go to `keeps` or
        `give_back`; None if there is none.

        A Fetch may be parked, as objects that are larger than its bytes: it is returned when there
        is room for them, and `waiter` is woken when there may be. Raises FrameTooLarge.
        """
        frame = self.next_frame()
        if frame is None:
            return None
        if frame.startswith(_FETCH_KEY):
            parsed = min(len(frame) * PARSED_FACTOR, PARSED_MAX)
            if not self._account.admit_alone(parsed, waiter, self._charged):
                self.take_back(frame)
                self._held_back = self.starved = True
                return None
            if self._held_back:
                self._held_back = self.starved = False
        charged, self._charged = self._charged, 0
        return frame, charged

    def limit_of(self, length: int, beginning: bytes) -> int | None:
        """Return the largest size of a frame that is too long for an unserved request; None if more
        bytes are needed to tell."""
        limits = self._limits
        if length > limits.frame_bytes_max:
            return limits.frame_bytes_max
        if len(beginning) < BEGINNING_BYTES:
            return None
        key, version = _ASKED.unpack(beginning)
        if not self._serves(key, version):
            return limits.unknown_frame_bytes_max
        # An API that is served stays so for the connection's lifetime.
        limit = limits.frame_bytes(key)
        self.is_alike(beginning, limit)
        return limit

    def may_receive(self, waiter: Waiter) -> bool:
        """Return True if there is memory for the next bytes; otherwise `waiter` is woken when there
        may be."""
        if self._held_back:
            return False
        growth = self.growth
        if growth:
            more = self.held + growth - self._charged
            if more > 0:
                if not self._account.admit(more, waiter, self._charged):
                    self.starved = True
                    return False
                self._charged += more
        self.starved = False
        return True

    def keeps(self, frame: bytearray, charged: int, *, parsed: bool) -> int:
        """Adjust the intake's bytes for a request that waits, and return them. `parsed`: count its
        objects, too."""
        kept = len(frame)
        if parsed:
            kept += min(kept * PARSED_FACTOR, PARSED_MAX)
        if kept >= charged:
            self._account.take(kept - charged)
        else:
            self._account.give_back(charged - kept)
        return kept

    def free(self, slot: ReplySlot, frame: bytearray) -> None:
        """Free the bytes of a waiting request, unless its handler kept a view of them. What was
        parsed stays."""
        size = len(frame)
        if slot.kept:
            with suppress(BufferError):
                frame.clear()
                slot.kept -= size
                self.give_back(size)

    def let_go(self, slot: ReplySlot) -> None:
        """Give back a request's bytes: it is answered, or its connection is lost."""
        kept = slot.kept
        if kept:
            slot.kept = 0
            self._account.give_back(kept)

    def give_back(self, charged: int) -> None:
        self._account.give_back(charged)

    def close(self, waiter: Waiter) -> None:
        self.drop()
        self._account.forget(waiter)
        charged, self._charged = self._charged, 0
        self._account.give_back(charged)
