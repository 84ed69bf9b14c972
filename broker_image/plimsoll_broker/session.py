"""One client connection: frames in, replies out, in the order of the requests.

Made by `Server`.  Requests are handled as they come and may be pipelined; one that has to wait
delays the replies behind it and nothing else.  What a client may make us hold is bounded: requests
in flight (we stop reading) and unsent replies (we stop reading).  A client that breaks the protocol
loses its connection, counted by reason, and so does one whose request meets a bug of ours; nobody
else notices.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from plimsoll_broker.dispatch import (
    CloseConnection,
    Connection,
    Dispatch,
    Reply,
    RequestContext,
    Route,
)
from plimsoll_broker.failures import CommitPathFailed, HandlerFailures
from plimsoll_broker.limits import ListenerLimits
from plimsoll_wire.framing import Framer, FrameTooLarge
from plimsoll_wire.headers import RequestHeader, parse_request_header, response_head
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.versions import ApiKey


@dataclass(slots=True)
class ServerStats:
    """Counters that only grow; the metrics endpoint reads them."""

    accepted: int = 0
    turned_away: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    closed_for: Counter[str] = field(default_factory=Counter)
    handler_failures: HandlerFailures = field(default_factory=HandlerFailures)


class _Slot:
    """A request whose reply cannot be sent yet."""

    __slots__ = ("correlation_id", "future", "key", "reply", "version")

    def __init__(self, header: RequestHeader) -> None:
        self.key = header.api_key
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.reply: Reply | None = None
        self.future: asyncio.Future[Reply | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOwner:
    """What the server gives each of its sessions."""

    dispatch: Dispatch
    limits: ListenerLimits
    stats: ServerStats
    opened: Callable[[Session], bool]
    closed: Callable[[Session], None]
    failed: Callable[[BaseException], None]


class Session(asyncio.BufferedProtocol):
    """`last_heard` is the loop's time of the last byte, for the server's idle check."""

    def __init__(self, owner: SessionOwner) -> None:
        self._owner = owner
        self._limits = owner.limits
        self._framer = Framer(owner.limits.frame_bytes_max)
        self._slots: deque[_Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._output_full = False
        self._peer = ""
        self._listener = ("", 0)
        self._connection = Connection()
        self._handling = -1
        self._loop = asyncio.get_running_loop()
        self.last_heard = self._loop.time()

    # --- the transport's calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._limits.output_bytes_max)
        peer = transport.get_extra_info("peername") or ("", 0)
        self._peer = f"{peer[0]}:{peer[1]}"
        listener = transport.get_extra_info("sockname") or ("", 0)
        self._listener = (listener[0], listener[1])
        if not self._owner.opened(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for slot in self._slots:
            if slot.future is not None:
                slot.future.cancel()
        self._slots.clear()
        self._connection.close()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_heard = self._loop.time()
        self._owner.stats.bytes_in += nbytes
        self._framer.received(nbytes)
        self._pump()

    def pause_writing(self) -> None:
        self._output_full = True

    def resume_writing(self) -> None:
        self._output_full = False
        self._pump()

    # --- requests ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests that have no reply yet."""
        return len(self._slots)

    def close(self, reason: str) -> None:
        """Give up this connection; what it waits for is cancelled."""
        if self._transport is not None:
            self._owner.stats.closed_for[reason] += 1
            self._transport.abort()
            self._transport = None

    def _pump(self) -> None:
        """Serve the frames that are there, as long as nothing is full."""
        try:
            while self._may_serve():
                frame = self._framer.next_frame()
                if frame is None:
                    break
                self._serve(frame)
        except FrameTooLarge:
            self.close("frame-too-large")
        except MalformedMessage:
            self.close("malformed")
        except CloseConnection as refusal:
            self.close(str(refusal) or "refused")
        except Exception as error:  # noqa: BLE001 - whatever it is, only this client pays
            self._broke(self._handling, error)
        self._adjust_reading()

    def _may_serve(self) -> bool:
        return (
            self._transport is not None
            and not self._output_full
            and len(self._slots) < self._limits.in_flight_max
        )

    def _adjust_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = self._may_serve()
        if wanted and not self._reading:
            transport.resume_reading()
        elif not wanted and self._reading:
            transport.pause_reading()
        self._reading = wanted

    def _serve(self, frame: bytearray) -> None:
        header = parse_request_header(frame)
        self._owner.stats.requests[header.api_key] += 1
        self._handling = header.api_key
        route = self._owner.dispatch.find(header.api_key, header.api_version)
        if route is None or header.body_at is None:
            self._refuse_version(header)
            return
        result = route.handler(self._context(header, route, frame))
        if result is None:
            return
        if isinstance(result, bytes | bytearray | memoryview | list | tuple):
            self._answer(header, result)
            return
        slot = _Slot(header)
        slot.future = asyncio.ensure_future(result)  # type: ignore[arg-type]  # all but Sequence
        self._slots.append(slot)
        slot.future.add_done_callback(partial(self._completed, slot))

    def _context(self, header: RequestHeader, route: Route, frame: bytearray) -> RequestContext:
        assert header.body_at is not None
        context = RequestContext(
            ApiKey(header.api_key),
            header.api_version,
            header.correlation_id,
            memoryview(frame)[header.body_at :],
            self._connection,
        )
        context.client_id = header.client_id
        context.client = self._peer
        context.listener_host, context.listener_port = self._listener
        return context

    def _refuse_version(self, header: RequestHeader) -> None:
        """ApiVersions is how a client finds out, so it alone gets an answer."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise CloseConnection("unsupported-version")
        self._answer(header, self._owner.dispatch.unsupported_api_versions())

    # --- replies ----------------------------------------------------------------------------------

    def _answer(self, header: RequestHeader, reply: Reply) -> None:
        if self._slots:
            slot = _Slot(header)
            slot.reply = reply
            self._slots.append(slot)
        else:
            self._send(header.api_key, header.api_version, header.correlation_id, reply)

    def _completed(self, completed: _Slot, future: asyncio.Future[Reply | None]) -> None:
        """Send every reply whose turn it is."""
        if self._transport is None:
            if not future.cancelled() and (error := future.exception()) is not None:
                self._report(completed, error)
            return
        slots = self._slots
        while slots and ((done := slots[0].future) is None or done.done()):
            slot = slots.popleft()
            if slot.future is not None and not self._take(slot, slot.future):
                return
            if slot.reply is not None:
                self._send(slot.key, slot.version, slot.correlation_id, slot.reply)
        self._pump()

    def _take(self, slot: _Slot, future: asyncio.Future[Reply | None]) -> bool:
        """Move the awaited reply into its slot; False when the connection had to go instead."""
        if future.cancelled():
            self.close("cancelled")
            return False
        error = future.exception()
        if error is not None:
            reason = str(error) if isinstance(error, CloseConnection) else "malformed"
            self._report(slot, error)
            self.close(reason or "refused")
            return False
        slot.reply = future.result()
        return True

    def _report(self, slot: _Slot, error: BaseException) -> None:
        """The client's fault is counted as what it is; anything else is a bug of ours."""
        if not isinstance(error, MalformedMessage | CloseConnection):
            self._broke(slot.key, error)

    def _broke(self, api_key: int, error: BaseException) -> None:
        """A bug of ours costs this connection.  On the commit path it ends the process: the
        listener's task fails with it."""
        if isinstance(error, CommitPathFailed):
            self._owner.failed(error)
        else:
            self._owner.stats.handler_failures.met(api_key, error)
        self.close("handler-failed")

    def _send(self, key: int, version: int, correlation_id: int, reply: Reply) -> None:
        transport = self._transport
        if transport is None:
            return
        if isinstance(reply, list | tuple):
            size = sum(len(part) for part in reply)
            head = response_head(key, version, correlation_id, size)
            transport.writelines([head, *reply])
        else:
            assert isinstance(reply, bytes | bytearray | memoryview)
            size = len(reply)
            head = response_head(key, version, correlation_id, size)
            transport.writelines([head, reply])
        self._owner.stats.bytes_out += size + len(head)
