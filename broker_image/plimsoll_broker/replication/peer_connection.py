"""PeerConnection: a connection to another broker; one request, one reply, as whole frames.

Used by the fetcher. A frame is received into the connection's buffer, from which its records are
written to the log; a reply is valid until the next request. Before its reply the peer may send
pushes (`tail_stream`), which are handed on and acknowledged at once. This module decides nothing.
If a peer breaks the framing or falls silent, the connection is closed (`PeerLost`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from plimsoll_broker.inside import InsidePeers
from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_net.dialling import Link, PeerAddress
from plimsoll_wire.replication import MalformedReply
from plimsoll_wire.tail_stream import is_push

_LENGTH = struct.Struct(">i")
_FRAME_BYTES_MIN = 4
FRAME_BYTES_MAX = 128 * 1024 * 1024
REPLY_S_MAX = 600.0
_BUFFER_BYTES = 4096
KEPT_BYTES_MAX = 8 * 2**20
"""The largest buffer that is kept for the next reply. Usual replies fit: a broker has a connection
to each leader that it follows, and each would keep the largest batch that the leader ever had."""


class PeerLost(Exception):
    """The connection to the other broker is lost, or was closed because its data broke the protocol
    or it fell silent. The caller connects again."""


class PeerConnection(asyncio.BufferedProtocol):
    """A connection to another broker that sends one request at a time and receives its reply."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[memoryview] | None = None
        # A reply with its length prefix. It grows to the largest reply and is reused, up to
        # KEPT_BYTES_MAX.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._frame_end = 0  # end of the reply being received; 0: its length is not known yet
        self._filled = 0
        self._unasked = memoryview(bytearray(_LENGTH.size))
        # When and why the connection was lost; None while it is open.
        self._lost_s: float | None = None
        self._why_lost = "closed"
        self._asked_s = 0.0  # when the request was sent
        self._heard_s = 0.0  # when the peer last sent bytes
        self._silence_s = 0.0  # how long it may send nothing
        self._timer: asyncio.TimerHandle | None = None
        self.link: Link | None = None
        # Takes a push. Returns the slot of its partition and the frame that acknowledges the push,
        # or None if the push is not acknowledged. The attribute is None if no request on this
        # connection permits pushes.
        self.take_push: Callable[[memoryview], tuple[int, bytes] | None] | None = None
        # States by how much a drill delays replies; None for a connection that none delays.
        self.peers: InsidePeers | None = None

    @classmethod
    async def open(cls, host: str, port: int, timeout_s: float) -> PeerConnection:
        """Connect in plaintext, without checking the peer's identity. Raise PeerLost if that takes
        longer than `timeout_s` seconds or fails."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(cls, host, port)
        except (OSError, TimeoutError) as error:
            peer = host_and_port(host, port)
            raise PeerLost(
                f"this broker cannot connect to {peer}: {error or 'no answer'}"
            ) from error
        return connection

    async def request(self, frame: bytes, silence_s: float) -> memoryview:
        """Send a frame and return the reply without its length prefix; the reply is valid until the
        next request. `silence_s`: the time in seconds for which the peer may send nothing. A large
        reply on a slow link may take longer than that as a whole, up to `REPLY_S_MAX`. Raises
        PeerLost."""
        if self._transport is None or self._lost_s is not None:
            raise PeerLost(self._why_lost)
        assert self._reply is None, "one request at a time"
        if len(self._buffer) > KEPT_BYTES_MAX:
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        loop = asyncio.get_running_loop()
        reply = self._reply = loop.create_future()
        self._transport.write(frame)
        self._asked_s = self._heard_s = loop.time()
        if self._timer is None or silence_s < self._silence_s:
            self._watch(loop, silence_s)
        self._silence_s = silence_s
        try:
            answer: memoryview = await reply
            if self.peers is not None and self.peers.delay_s:
                await asyncio.sleep(self.peers.delay_s)
            return answer
        finally:
            self._reply = None
            if reply.done() and not reply.cancelled():
                reply.exception()  # marks it as retrieved: the asking task may have been cancelled

    def _watch(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        """Set the timer that checks for silence. One timer serves many requests, since a timer for
        each would cost more than the request."""
        self._forget_timer()
        self._timer = loop.call_later(delay_s, self._check_silence, loop)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self, loop: asyncio.AbstractEventLoop) -> None:
        """If the peer has sent nothing for the permitted time, or the whole reply takes longer than
        REPLY_S_MAX, close the connection, which fails the pending request. Otherwise set the timer
        anew. Do nothing if no reply is pending."""
        self._timer = None
        if self._reply is None or self._reply.done():
            return
        due_s = min(self._heard_s + self._silence_s, self._asked_s + REPLY_S_MAX)
        left_s = due_s - loop.time()
        if left_s > 0:
            self._watch(loop, left_s)
            return
        self._break(
            f"the other broker sent nothing for {self._silence_s} s, or its reply took more than "
            f"{REPLY_S_MAX} s"
        )

    @property
    def lost_for_ms(self) -> int | None:
        """The time in ms since the connection was lost; None while it is open. The next request on
        a lost connection raises PeerLost."""
        if self._lost_s is None:
            return None
        return int((asyncio.get_running_loop().time() - self._lost_s) * 1000)

    def close(self) -> None:
        """Abort the connection; the request in flight fails with `PeerLost`."""
        if self._transport is not None:
            self._transport.abort()
        self._fail("closed")

    def _fail(self, why: str) -> None:
        if self._lost_s is None:
            self._lost_s, self._why_lost = asyncio.get_running_loop().time(), why
        self._forget_timer()
        reply = self._reply
        if reply is not None and not reply.done():
            reply.set_exception(PeerLost(why))

    # --- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the other broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._reply is None or self._reply.done():
            return self._unasked  # the previous reply may still be in use in the buffer
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        reply = self._reply
        if reply is None or reply.done():
            self._break("the other broker sent a reply without a request")
            return
        self._filled += nbytes
        if not self._frame_end and not self._begin_frame():
            return
        if self._filled < self._frame_end or self._take_pushes(self.take_push):
            return
        end, filled, self._frame_end, self._filled = self._frame_end, self._filled, 0, 0
        if filled > end:
            self._break("the other broker sent more than one reply")
        else:
            reply.set_result(self._buffer[_LENGTH.size : end])

    def _take_pushes(self, take: Callable[[memoryview], tuple[int, bytes] | None] | None) -> bool:
        """Hand on the pushes at the beginning of the buffer, and send their acknowledgements, the
        last one of each partition. Return False if a whole reply is in the buffer then, and True if
        more bytes are needed or the connection is lost."""
        said: dict[int, bytes] = {}
        buffer, filled, begin, end = self._buffer, self._filled, 0, self._frame_end
        while take is not None and is_push(buffer[begin + _LENGTH.size :]):
            try:
                answer = take(buffer[begin:end])
            except MalformedReply as error:
                self._break(str(error))
                return True
            if answer is not None:
                said[answer[0]] = answer[1]
            begin = end
            if filled - begin < _LENGTH.size:
                break
            (size,) = _LENGTH.unpack_from(buffer, begin)
            end = begin + _LENGTH.size + size
            if not _FRAME_BYTES_MIN <= size <= filled - begin - _LENGTH.size:
                break
        if not begin:
            return False
        self._acknowledge(said)
        buffer[: filled - begin] = bytes(buffer[begin:filled])
        self._frame_end, self._filled = 0, filled - begin
        return not self._begin_frame() or self._filled < self._frame_end

    def _acknowledge(self, said: dict[int, bytes]) -> None:
        if said and self._transport is not None and self._lost_s is None:
            self._transport.write(b"".join(said.values()))

    def _begin_frame(self) -> bool:
        """Read the length of the reply, make room for the reply, and return True. Return False if
        more bytes are needed to know the length, or if the length is invalid, which closes the
        connection."""
        if self._filled < _LENGTH.size:
            return False
        (size,) = _LENGTH.unpack_from(self._buffer)
        if not _FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
            self._break(f"the other broker sent a frame of {size} bytes, which is not allowed")
            return False
        self._frame_end = end = _LENGTH.size + size
        if end > len(self._buffer):
            grown = memoryview(bytearray(end))
            grown[: self._filled] = self._buffer[: self._filled]
            self._buffer = grown
        return True

    def _break(self, why: str) -> None:
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()


async def open_to(
    broker_id: BrokerId, image: ClusterImage | None, peers: InsidePeers, timeout_s: float
) -> PeerConnection:
    """Connect to a broker's replication address in the metadata, and verify its identity. Raise
    PeerLost if it has no address, cannot be reached in `timeout_s` seconds, or is another one."""
    broker = None if image is None else image.brokers.get(broker_id)
    endpoint = None if broker is None else listener_peers.for_followers(broker)
    if endpoint is None:
        raise PeerLost(
            f"this broker cannot connect to broker {broker_id}, because the cluster's metadata has "
            "no replication address of that broker"
        )
    address = PeerAddress(endpoint.host, endpoint.port)
    try:
        async with asyncio.timeout(timeout_s):
            connection, link = await peers.broker(PeerConnection, address, broker_id)
    except (OSError, TimeoutError) as error:
        raise PeerLost(
            f"this broker cannot connect to the broker at {address}: {error or 'no answer'}"
        ) from error
    connection.link, connection.peers = link, peers
    return connection
