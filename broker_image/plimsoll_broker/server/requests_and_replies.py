"""Requests received in part, and replies on their way to the peer.

`RequestReceiver`: a session's received frames, and the memory that they hold. The first bytes of a
frame determine its largest size. Memory for a large frame is requested from the intake bit by bit,
as bytes arrive, and given back when nothing refers to the frame any more.

`ReplyLater`: a reply that comes later, delivered to its session in the turn of the event loop in
which it is made. A future would deliver it one turn later; for a small record with acks=all that
costs the leader a turn for each of two replies. Other code awaits it like a future.

`ReplySlot`: a request with a reply that cannot be sent yet, and its place in the order of replies.

`ReplySender`: a session's replies that were handed to the transport and not yet taken by the peer.
A reply is held on the connection's account from when it is ready until the kernel has it.
`ReplySender` also reports for how long the peer has taken nothing.

`ReplyRoom`: memory for a reply, taken before the reply is made, within its principal's share of the
pool. The most that the reply can hold is taken first. Only a principal that has used up its share
waits here. A connection makes one long reply at a time: the session begins nothing behind a request
of `LONG_REPLIES` until that is answered.

`told` writes a throttle time into a reply that is already encoded. Produce's encoder takes the time
itself, since the field is not at the beginning of its response.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from plimsoll_broker.server.client_memory import MemoryAccount, NoRoom, RequestAccount, Waiter
from plimsoll_broker.server.client_quotas import QuotaCharges
from plimsoll_broker.server.connection_limits import ListenerLimits, Progress
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import Buffer, Reply, RequestContext
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.framing import BEGINNING_BYTES, Framer
from plimsoll_wire.headers import RequestHeader, response_head
from plimsoll_wire.messages import NUMBERS_MAX, request_density, throttle_time_at
from plimsoll_wire.produce import NAMED_MAX as PRODUCED_MAX
from plimsoll_wire.produce import PARSED_BYTES as PRODUCED_BYTES
from plimsoll_wire.produce import PARTITION_BYTES_MIN as PRODUCED_BYTES_MIN

if TYPE_CHECKING:
    from types import TracebackType


class ReplyLater:
    """A reply that is made later, with the part of a future's interface that a session uses.
    Listeners must not raise: they are called by the code that made the reply, which may be the
    commit path."""

    __slots__ = ("_cancelled", "_done", "_error", "_listeners", "_reply")

    def __init__(self) -> None:
        self._done = self._cancelled = False
        self._reply: Reply | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Reply | None:
        if self._cancelled:
            raise asyncio.CancelledError
        if self._error is not None:
            raise self._error
        return self._reply

    def set_result(self, reply: Reply | None) -> None:
        self._reply = reply
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def cancel(self) -> None:
        """Mark the reply as cancelled and call the listeners, unless the reply is there already.
        Called when the session no longer needs the reply."""
        if not self._done:
            self._cancelled = True
            self._end()

    def add_done_callback(self, listener: Callable[[Any], None]) -> None:
        """Call `listener` with this object once it is done; at once if it is done."""
        if self._done:
            listener(self)
        else:
            self._listeners.append(listener)

    def _end(self) -> None:
        assert not self._done, "one reply"
        self._done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self)

    def __await__(self) -> Generator[Any, None, Reply | None]:
        if not self._done:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._listeners.append(partial(_tell, told))
            yield from told
        return self.result()


def _tell(told: asyncio.Future[None], _: ReplyLater) -> None:
    if not told.done():  # the awaiting task may have been cancelled
        told.set_result(None)


_I32 = struct.Struct(">i")


def told(reply: Reply, key: int, version: int, charges: QuotaCharges) -> Reply:
    """Return the reply with the throttle time of its request written into it; a list is changed in
    place. Return the reply unchanged if the time is 0 or the response has no such field in this
    version."""
    if not charges.throttle_ms:
        return reply
    at = throttle_time_at(key, version)
    if at is None:
        return reply
    if isinstance(reply, list):
        reply[0] = _patched(reply[0], at, charges.throttle_ms)
        return reply
    if isinstance(reply, tuple):
        return (_patched(reply[0], at, charges.throttle_ms), *reply[1:])
    assert isinstance(reply, bytes | bytearray | memoryview), "in one piece or several"
    return _patched(reply, at, charges.throttle_ms)


def _patched(piece: Buffer, at: int, throttle_ms: int) -> bytes:
    changed = bytearray(piece)
    _I32.pack_into(changed, at, throttle_ms)
    return bytes(changed)


SMALL_BYTES = 4 * 1024
"""The largest request, in bytes, that stays on the intake's account until it is answered."""
AT_ONCE = (bytes, bytearray, memoryview, list, tuple)  # replies; any other result is awaited

Later = asyncio.Future[Reply | None] | ReplyLater
"""A later reply: a future or a `ReplyLater`, which has the same interface."""
LATER = (asyncio.Future, ReplyLater)


class ReplySlot:
    """A request that cannot be answered yet, and its reply once that is made. `kept`: the bytes of
    the intake that the request holds, `parsed` of them for its parsed objects. `held`: the reply's
    bytes on the connection's account; None if they are not counted. `began_ns`: the monotonic time
    at which the request was read. `charges`: its quota usage."""

    __slots__ = ("began_ns", "charges", "future", "header", "held", "kept", "parsed", "reply")

    def __init__(self, header: RequestHeader, began_ns: int, reply: Reply | None = None) -> None:
        self.header = header
        self.began_ns = began_ns
        self.charges: QuotaCharges | None = None
        self.reply = reply
        self.held: int | None = None
        self.kept = self.parsed = 0
        self.future: Later | None = None


_ASKED = struct.Struct(">hh")
_FETCH_KEY = struct.pack(">h", ApiKey.FETCH)
PARSED_PER_BYTE_MAX, PARSED_BYTES_MAX = 800, 32_000_000
"""The most memory of the parsed objects of any request: as a multiple of its bytes, and at all."""
UNCOUNTED_BYTES = 512
"""The largest request, in bytes, that is parsed without room for its objects: nearly all requests
of producers, consumers and group members. A Fetch, which waits longest, has no such limit."""


class _Parsed(NamedTuple):
    """The most memory of a parsed request with what its handler makes of it: `factor` times its
    bytes, at most `bytes_max`."""

    factor: float
    bytes_max: int


def _parsed(key: ApiKey, version: int) -> _Parsed:
    if key is ApiKey.FETCH:
        # About 24 bytes a partition become 350; a client's Fetch may name 20,000 partitions.
        return _Parsed(16, 8 * 1024 * 1024)
    if key is ApiKey.PRODUCE:
        return _Parsed(PRODUCED_BYTES / PRODUCED_BYTES_MIN, PRODUCED_BYTES * PRODUCED_MAX)
    density = request_density(key, version)
    return _Parsed(density.per_byte, int(density.per_unit * NUMBERS_MAX))


_PARSED: dict[bytes, _Parsed] = {}
"""By the first bytes of a request, its key and version, for the served ones that were asked."""


def parsed_most(frame: bytearray) -> int:
    """Return the most memory, in bytes, that the parsed objects of a request can take, with what
    its handler makes of them: judged by its API, version and length. Return 0 for a request that is
    not served."""
    asked = bytes(frame[:4])
    found = _PARSED.get(asked)
    if found is None:
        if len(asked) < _ASKED.size:
            return 0
        key, version = _ASKED.unpack(asked)
        versions = _VERSIONS.get(key)
        if versions is None or not versions.serves(version):
            return 0
        found = _PARSED[asked] = _parsed(ApiKey(key), version)
    factor, bytes_max = found
    return min(int(len(frame) * factor), bytes_max)


_VERSIONS = {int(key): versions for key, versions in SUPPORTED.items()}


class RequestReceiver(Framer):
    """Receives the requests of one connection, and counts their memory on its `RequestAccount`.
    `serves` returns True if an API is handled in a version.

    It does not refer to its session, so that a lost connection's memory is freed at once by its
    last reference, not by a later garbage collection. It inherits from Framer instead of owning
    one: each read of a socket passes here.
    """

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
        # True if the next frame has no room for its parsed objects.
        self._held_back = False
        self._charged = 0  # intake bytes of the unfinished frame
        self.starved = False  # True while it waits for memory
        # The recent rate of the unfinished frame. Its first byte arrived at `_owing_s`.
        self._progress = Progress()
        self._owing_s: float | None = None

    def came_within(self, now: float, owing_s: float | None, window_s: float) -> int | None:
        """Return how many bytes of the unfinished request arrived in the last `window_s` seconds
        before `now` (the loop's clock), and take a sample. Return None if there is no such request,
        or if it has not been watched for that long. `owing_s`: the time when the first byte of the
        request arrived; None if none is unfinished."""
        if owing_s != self._owing_s:
            self._owing_s = owing_s
            self._progress.begins()
        return None if owing_s is None else self._progress.within(now, self.came, window_s)

    @property
    def came(self) -> int:
        return 0 if self._held_back else super().came

    def next_request(self, waiter: Waiter) -> tuple[bytearray, int] | None:
        """Remove and return the next whole frame, with the bytes of the intake that it holds; the
        caller must pass these to `keeps` or `give_back`. Return None if there is no whole frame.

        A request is parsed into objects that are larger than its bytes. So it is returned only when
        there is room for these objects; until then return None, and have `waiter` woken when there
        may be room. Raises FrameTooLarge."""
        frame = self.next_frame()
        if frame is None:
            return None
        most = len(frame) * PARSED_PER_BYTE_MAX
        if most > PARSED_BYTES_MAX:
            most = PARSED_BYTES_MAX
        if self._account.has_ample(most) and not self._held_back:
            pass  # nearly always: whatever it asks, there is room
        elif len(frame) > UNCOUNTED_BYTES or frame.startswith(_FETCH_KEY):
            taken = self._account.admit_parsed(parsed_most(frame), waiter, self._charged)
            if taken is None:
                self.take_back(frame)
                self._held_back = self.starved = True
                return None
            self._charged += taken
            if self._held_back:
                self._held_back = self.starved = False
        charged, self._charged = self._charged, 0
        return frame, charged

    def limit_of(self, length: int, beginning: bytes) -> int | None:
        """Return the largest allowed size, in bytes, of a frame that announces `length` bytes and
        starts with `beginning`: by the listener's limits and its API. Return None if more bytes are
        needed to decide. Called only for frames above `unknown_frame_bytes_max`."""
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
        """Take memory for the next bytes of a frame, and return True. If there is none, or a
        request is held back, return False; without memory `waiter` is woken when there may be
        some."""
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

    def keeps(
        self, slot: ReplySlot, frame: bytearray, charged: int, context: RequestContext
    ) -> None:
        """Set the bytes of the intake that a request holds while it waits for its reply: its length
        and the memory of its parsed objects. If it is not parsed yet, that is the most that they
        can take, until `context.settled`. `charged`: the bytes that it holds now."""
        if context.parsed is not None:
            slot.parsed = context.parsed
        else:
            slot.parsed = self._account.parsed_before(parsed_most(frame))
            if slot.header.api_key != ApiKey.FETCH:
                context.settle = partial(self._settle, slot)
        slot.kept = kept = len(frame) + slot.parsed
        if kept >= charged:
            self._account.take(kept - charged)
        else:
            self._account.give_back(charged - kept)

    def _settle(self, slot: ReplySlot, parsed: int) -> None:
        """Set the memory that is counted for the parsed objects of a waiting request, once they are
        made. Do nothing if the request is answered, or its connection is lost."""
        if slot.parsed:
            more, slot.parsed = parsed - slot.parsed, parsed
            slot.kept += more
            if more >= 0:
                self._account.take(more)
            else:
                self._account.give_back(-more)

    def free(self, slot: ReplySlot, frame: bytearray) -> None:
        """Free the received bytes of a waiting request and give back their part of the intake; do
        nothing if its handler still has a view of them. The memory of its parsed objects stays
        counted."""
        size = len(frame)
        if slot.kept:
            with suppress(BufferError):
                frame.clear()
                slot.kept -= size
                self.give_back(size)

    def let_go(self, slot: ReplySlot) -> None:
        """Give back all bytes of the intake that a request still holds; a second call does nothing.
        Called when the request is answered or its connection is lost."""
        kept = slot.kept
        if kept:
            slot.kept = slot.parsed = 0
            self._account.give_back(kept)

    def give_back(self, charged: int) -> None:
        self._account.give_back(charged)

    def close(self, waiter: Waiter) -> None:
        self.drop()
        self._account.forget(waiter)
        charged, self._charged = self._charged, 0
        self._account.give_back(charged)


class Granted(list[Buffer]):
    """A reply in several pieces. `granted`: the number of its bytes that are already counted on the
    connection's account."""

    def __init__(self, pieces: Iterable[Buffer], granted: int) -> None:
        super().__init__(pieces)
        self.granted = granted


_SEVERAL = (list, tuple)
_ONE_PIECE = (bytes, bytearray, memoryview)
_COPIED_BYTES = 4096
"""The size, in bytes, below which a one-piece reply is copied behind its header."""


def size_of(reply: Reply) -> int:
    """Return the size of a reply's body, in bytes."""
    if isinstance(reply, _SEVERAL):
        return sum(map(len, reply))
    return len(reply)


class ReplySender:
    """Sends the replies of one connection, and counts their bytes on its account until the kernel
    has taken them. It is made with the session; `connected` gives it the transport."""

    def __init__(self, account: MemoryAccount, loop: asyncio.AbstractEventLoop) -> None:
        self._account = account
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parts: deque[tuple[int, int]] = deque()
        self._progress = Progress()
        self._written = self._flushed = 0
        self._began = self._moved = 0.0
        self._settling = False

    def connected(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def lost(self) -> None:
        """Give back all memory, since the connection is lost and nothing is sent any more."""
        self._transport = None
        self._parts.clear()
        self._account.close()

    def hold(self, reply: Reply) -> int:
        """Count the bytes of a reply that is ready, less those granted before, on the connection's
        account, and return its size in bytes."""
        size = size_of(reply)
        granted = reply.granted if isinstance(reply, Granted) else 0
        self._account.hold(size - granted)
        return size

    def send(self, header: RequestHeader, reply: Reply, held: int | None) -> int:
        """Write a reply with its header to the transport, and return the bytes written. `held`: the
        reply's bytes on the account; None if the reply was just made, so that it is counted only if
        the kernel does not take it at once."""
        transport = self._transport
        assert transport is not None, "the session sends while it is connected"
        body_size = size_of(reply) if held is None else held
        head = response_head(header.api_key, header.api_version, header.correlation_id, body_size)
        size = len(head) + body_size
        if not isinstance(reply, _ONE_PIECE):
            transport.writelines([head, *reply])
        elif body_size < _COPIED_BYTES:
            transport.write(head + reply)  # a second piece costs more than the copy
        else:
            transport.writelines([head, reply])
        if self._is_taken(transport, size):
            if held is None and isinstance(reply, Granted):
                held = reply.granted
            if held:
                self._account.give_back(held)
            return size
        self._keep(self.hold(reply) if held is None else held, size)
        return size

    def push(self, pieces: Sequence[Buffer]) -> int:
        """Write a frame that is no reply to the transport, and return the bytes written. They are
        counted on the account as those of a reply."""
        transport = self._transport
        assert transport is not None, "the session sends while it is connected"
        size = size_of(pieces)
        if size < _COPIED_BYTES:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)
        if not self._is_taken(transport, size):
            self._keep(self.hold(pieces), size)
        return size

    def _is_taken(self, transport: asyncio.Transport, size: int) -> bool:
        """Count `size` bytes as written, and return True if the kernel has taken them at once, as
        is usual."""
        self._written += size
        if self._parts or transport.get_write_buffer_size():
            return False
        self._flushed = self._written
        return True

    def _keep(self, held: int, size: int) -> None:
        """Keep `held` bytes of the account until the kernel has taken the last `size` bytes that
        were written."""
        if self._flushed == self._written - size:
            self._began = self._moved = self._loop.time()
            self._progress.begins()
        self._parts.append((self._written, held))
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self.settle)

    @property
    def unsent(self) -> int:
        """The number of bytes that the kernel had not taken at the last `settle`."""
        return self._written - self._flushed

    def settle(self) -> None:
        """Determine how many bytes the kernel has taken, and give back the memory of the replies
        that it has taken whole. Do nothing without a transport."""
        self._settling = False
        transport = self._transport
        if transport is None:
            return
        flushed = self._written - transport.get_write_buffer_size()
        if flushed > self._flushed:
            self._flushed = flushed
            self._moved = self._loop.time()
        done = 0
        while self._parts and self._parts[0][0] <= flushed:
            done += self._parts.popleft()[1]
        self._account.give_back(done)

    def unread(self, now: float) -> float | None:
        """Return the seconds since the kernel last took bytes, or None if nothing is unsent."""
        return now - self._moved if self.unsent else None

    def draining(self, now: float, window_s: float) -> tuple[float | None, int | None]:
        """Return the seconds for which replies have been unsent, and the bytes taken in the last
        `window_s` seconds. The first is None if nothing is unsent; the second also until the
        connection has been watched for that long. Bytes of the first reply that went into the
        kernel's buffer say nothing about the reader."""
        if not self.unsent:
            return None, None
        return now - self._began, self._progress.within(now, self._flushed, window_s)


LONG_REPLIES = frozenset(
    {
        int(key)
        for key in (
            ApiKey.METADATA,
            ApiKey.OFFSET_FETCH,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            # Requests that change something wait for memory in their place in the connection's
            # order.
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_RECORDS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        )
    }
)
"""APIs with replies that grow with the cluster's contents, and those that change something. The
size of other replies is bounded by the items that their requests name, and that of Fetches by their
accounts' grants."""


class ReplyRoom:
    """Takes memory for the reply to one request before the reply is made. It is a context manager;
    on exit it gives back the memory that no reply has taken over."""

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._taken = 0

    def __enter__(self) -> ReplyRoom:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Give back the taken memory, unless a reply has taken it over. Does nothing if called
        again."""
        taken, self._taken = self._taken, 0
        self._account.give_back(taken)

    def take_now(self, estimate: int) -> bool:
        """Take memory for a reply of an estimated size, without waiting, and return True. If there
        is no room, take nothing and return False. The estimate is capped at the account's
        `estimate_max`."""
        taken = self._account.admit_now(min(estimate, self._account.estimate_max))
        if taken is None:
            return False
        self._taken = taken
        return True

    async def take_estimate(self, estimate: int) -> None:
        """Wait for room for a reply of an estimated size, capped at the account's `estimate_max`,
        and take it. Raises CloseConnection if there was no room within ROOM_WAIT_S."""
        size = min(estimate, self._account.estimate_max)
        await self._take(self._account.admit(size, is_estimate=True))

    async def take(self, size: int) -> None:
        """Wait for room for `size` bytes of the reply, or of the values from which it is made, and
        take them. Call it once for all of them: requests that hold a part each and wait for more
        would deadlock. Raises CloseConnection if there was no room within ROOM_WAIT_S, or `size` is
        more than one principal may ever hold."""
        await self._take(self._account.admit(size))

    def settle(self, size: int) -> bool:
        """Have `size` bytes taken instead of an estimate, and return True. If they are more and
        there is no room without waiting, change nothing and return False."""
        more = self._account.admit_now(size - self._taken)
        if more is None:
            return False
        if self._taken > size:
            self._account.give_back(self._taken - size)
            self._taken = size
        self._taken += more
        return True

    async def _take(self, admission: Awaitable[int]) -> None:
        try:
            self._taken = await admission
        except NoRoom as reason:
            raise CloseConnection(str(reason)) from None

    def reply(self, made: Reply) -> Reply:
        """Return the reply with the taken memory attached (`Granted`), and give back memory that
        the reply does not need. If none was taken, return the reply itself."""
        taken, self._taken = self._taken, 0
        size = size_of(made)
        if taken > size:
            self._account.give_back(taken - size)
            taken = size
        if not taken:
            return made
        if isinstance(made, bytes | bytearray | memoryview):
            made = [made]
        return Granted(made, taken)
