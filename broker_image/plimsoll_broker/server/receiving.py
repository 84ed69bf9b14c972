"""A session's received and unserved frames, and the memory that they may have.

Owned by a `Session`.  How long a frame may be follows from what its first bytes ask for; memory for
a large one is asked of the intake bit by bit, as bytes come, and given back when nothing refers to
the frame any more.
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
"""A Fetch as objects, in multiples of its bytes: about 24 bytes a partition become 350."""
PARSED_MAX = 8 * 1024 * 1024
"""Of the 20,000 things that a client's Fetch may name."""


class RequestReceiver(Framer):
    """`serves` says whether an API is handled in a version.

    It does not refer to its session: what a lost connection held is freed at once, by its last
    reference, and not by a collection that may come much later.  It is a framer, and has none: each
    read of a socket passes here.
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
        # Whether the next frame is a Fetch for which there was no room as objects.
        self._held_back = False
        self._charged = 0  # bytes of the intake that the unfinished frame has
        self.starved = False  # whether it waits for memory
        # How fast the unfinished frame came lately, whose first byte came at `_owing_s`.
        self._progress = Progress()
        self._owing_s: float | None = None

    def came_within(self, now: float, owing_s: float | None, window_s: float) -> int | None:
        """Bytes of the unfinished request, owed since `owing_s`, that came lately; None while it
        was not looked at for as long."""
        if owing_s != self._owing_s:
            self._owing_s = owing_s
            self._progress.begins()
        return None if owing_s is None else self._progress.within(now, self.came, window_s)

    @property
    def came(self) -> int:
        return 0 if self._held_back else super().came

    def next_request(self, waiter: Waiter) -> tuple[bytearray, int] | None:
        """A frame and how much of the intake it has; `free` or `give_back` that.  A Fetch may be
        parked, as objects that take more than its bytes: it comes when there is room for them, and
        `waiter` is woken when there may be.

        Raises FrameTooLarge.
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
        """How long a frame may be that is too long for a request that is not served."""
        limits = self._limits
        if length > limits.frame_bytes_max:
            return limits.frame_bytes_max
        if len(beginning) < BEGINNING_BYTES:
            return None
        key, version = _ASKED.unpack(beginning)
        if not self._serves(key, version):
            return limits.unknown_frame_bytes_max
        # What is served once is for as long as the connection lasts.
        limit = limits.frame_bytes(key)
        self.is_alike(beginning, limit)
        return limit

    def may_receive(self, waiter: Waiter) -> bool:
        """Whether there is memory for what comes next; else `waiter` is woken when there may be."""
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
        """What a request that waits has of the intake from now on; `parsed`: in objects, too."""
        kept = len(frame)
        if parsed:
            kept += min(kept * PARSED_FACTOR, PARSED_MAX)
        if kept >= charged:
            self._account.take(kept - charged)
        else:
            self._account.give_back(charged - kept)
        return kept

    def free(self, slot: ReplySlot, frame: bytearray) -> None:
        """What was read of a request that waits is kept; its bytes need not be, unless its handler
        kept a view of them."""
        size = len(frame)
        if slot.kept:
            with suppress(BufferError):
                frame.clear()
                slot.kept -= size
                self.give_back(size)

    def let_go(self, slot: ReplySlot) -> None:
        """It is answered, or its connection is lost."""
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
