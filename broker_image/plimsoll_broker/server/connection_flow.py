"""ConnectionFlow: the states of a client connection, and the order of its replies.  No I/O.

`Session` owns one for each connection, tells it what happens, and does what it says.

States and what happens in them:

    OPEN         The peer sends requests and gets replies.
    HALF_CLOSED  The peer has closed its sending half.  Requests that are here are answered, then
                 the connection is closed.
    REFUSED      The broker has refused the peer (a failed login).  The reply that says so is the
                 last one; no request is served any more.
    CLOSED       The transport is closed or lost.  Nothing is served or sent.

`TRANSITIONS` is the whole table.  A connection never leaves CLOSED.

Beside its state a connection has holds, each with one owner that sets and releases it: the peer
takes no replies (OUTPUT_FULL), the client is throttled (MUTED), the turn of the event loop has
spent its budget (NO_TURN).  No request is served while there is a hold.  Requests that wait for
their replies hold up the next one only by their number, or if the reply of one may be long.

Reading follows: the transport is read in OPEN while the next request may be served and there is
memory for it, and is paused otherwise.  Replies leave in the order of their requests.

`Muting`: stop reading a connection for its throttle time. Bytes in the kernel stay there; pending
requests get their replies. A large request that has arrived in part is still received and served:
otherwise its memory would be held, and the rest not be read, until the muting ends. Source:
KIP-219.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar


class FlowState(Enum):
    OPEN = "open"
    HALF_CLOSED = "half-closed"
    REFUSED = "refused"
    CLOSED = "closed"


class FlowEvent(Enum):
    """The events that change the state of a connection (`TRANSITIONS`)."""

    PEER_ENDED = "the peer closed its sending half"
    REFUSED = "the broker refused the peer"
    CLOSED = "the transport was closed or lost"


TRANSITIONS: dict[FlowState, dict[FlowEvent, FlowState]] = {
    FlowState.OPEN: {
        FlowEvent.PEER_ENDED: FlowState.HALF_CLOSED,
        FlowEvent.REFUSED: FlowState.REFUSED,
        FlowEvent.CLOSED: FlowState.CLOSED,
    },
    FlowState.HALF_CLOSED: {
        FlowEvent.PEER_ENDED: FlowState.HALF_CLOSED,
        FlowEvent.REFUSED: FlowState.REFUSED,
        FlowEvent.CLOSED: FlowState.CLOSED,
    },
    FlowState.REFUSED: {
        FlowEvent.PEER_ENDED: FlowState.REFUSED,
        FlowEvent.REFUSED: FlowState.REFUSED,
        FlowEvent.CLOSED: FlowState.CLOSED,
    },
    FlowState.CLOSED: {
        FlowEvent.PEER_ENDED: FlowState.CLOSED,
        FlowEvent.REFUSED: FlowState.CLOSED,
        FlowEvent.CLOSED: FlowState.CLOSED,
    },
}

OUTPUT_FULL, MUTED, NO_TURN = 1, 2, 4
_REFUSED, _CLOSED = 8, 16
"""Bits of `ConnectionFlow.held` that follow from the state. They stand beside the holds, so that
one check of `held` is enough."""
_HELD_BY = {
    FlowState.OPEN: 0,
    FlowState.HALF_CLOSED: 0,
    FlowState.REFUSED: _REFUSED,
    FlowState.CLOSED: _CLOSED,
}
_NOT_SENDING = OUTPUT_FULL | _CLOSED


class NextStep(Enum):
    """The next action of the session on its transport: start or stop reading, close it, or
    nothing."""

    KEEP = "keep"
    PAUSE = "pause reading"
    RESUME = "resume reading"
    CLOSE = "close when everything is sent"


class WaitingRequest(Protocol):
    """A handled request with a reply that was not sent yet. `future` delivers the reply; None if
    the reply is ready."""

    @property
    def future(self) -> Any: ...


W = TypeVar("W", bound=WaitingRequest)


class ConnectionFlow(Generic[W]):
    """The state of one connection. `held`: the bits of its holds, 0 if there is none. `waiting`:
    handled requests without a sent reply, the oldest first. `reading`: True if the transport is
    being read."""

    __slots__ = ("_in_flight_max", "_long", "held", "reading", "state", "waiting")

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        self.state = FlowState.OPEN
        self.held = 0
        self.reading = True
        self.waiting: deque[W] = deque()
        # The request whose reply may be long, while that is made.
        self._long: W | None = None

    # --- events ---------------------------------------------------------------------------------

    def peer_ended(self) -> None:
        self.reading = False
        self._change(FlowEvent.PEER_ENDED)

    def refuse(self) -> None:
        self._change(FlowEvent.REFUSED)

    def close(self) -> None:
        self.reading = False
        self._change(FlowEvent.CLOSED)

    def _change(self, event: FlowEvent) -> None:
        self.held &= ~(_REFUSED | _CLOSED)
        self.state = TRANSITIONS[self.state][event]
        self.held |= _HELD_BY[self.state]

    def hold(self, reason: int) -> None:
        self.held |= reason

    def release(self, reason: int) -> None:
        self.held &= ~reason

    # --- requests and replies -------------------------------------------------------------------

    def is_full(self) -> bool:
        """Return True if no further request is served until a waiting one is answered: there are
        too many, or one has a long reply."""
        return self._long is not None or len(self.waiting) >= self._in_flight_max

    def add(self, request: W, *, long: bool = False) -> None:
        """Queue a handled request for its reply. `long`: the reply may be long, so no later request
        is served until it is ready."""
        self.waiting.append(request)
        if long:
            self._long = request

    def replied(self, request: W) -> bool:
        """Record that the reply of this request is ready. If the request was added as `long`, later
        requests may be served again. Return True if it is the oldest that waits for its reply, and
        replies may be sent now."""
        if request is self._long:
            self._long = None
        waiting = self.waiting
        return bool(waiting) and waiting[0] is request and not self.held & _NOT_SENDING

    def next_due(self) -> W | None:
        """Remove and return the oldest waiting request if its reply is ready and may be sent.
        Otherwise remove nothing and return None."""
        waiting = self.waiting
        if not waiting or self.held & _NOT_SENDING:
            return None
        future = waiting[0].future
        if future is not None and not future.done():
            return None
        return waiting.popleft()

    def drop_all(self) -> list[W]:
        """Remove and return all waiting requests: the transport is lost, so they are not
        answered."""
        dropped = list(self.waiting)
        self.waiting.clear()
        self._long = None
        return dropped

    # --- the transport --------------------------------------------------------------------------

    def next_step(self, *, may_serve: bool, has_room: bool) -> NextStep:
        """Return the next action on the transport, and set `reading` accordingly. `may_serve`: True
        if the next request could be served. `has_room`: True if there is memory for more bytes."""
        state = self.state
        if state is FlowState.HALF_CLOSED:
            return NextStep.CLOSE if may_serve and not self.waiting else NextStep.KEEP
        wanted = state is FlowState.OPEN and may_serve and has_room
        if wanted == self.reading or state is FlowState.CLOSED:
            return NextStep.KEEP
        self.reading = wanted
        return NextStep.RESUME if wanted else NextStep.PAUSE


class Muting:
    """Stops reading a throttled connection by the hold MUTED of its `ConnectionFlow`, and releases
    it when the throttle time is over. It refers to its session only while the connection is
    muted."""

    __slots__ = ("_flow", "_loop", "_timer", "spares", "until_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: ConnectionFlow[Any]) -> None:
        self._loop = loop
        self._flow = flow
        # None while it is not muted.
        self._timer: asyncio.TimerHandle | None = None
        # By the loop's clock; 0 if it was never muted.
        self.until_s = 0.0
        # True if one request is served despite the muting.
        self.spares = False

    def mute(self, throttle_ms: int, resume: Callable[[], None], came: int = 0) -> None:
        """Stop serving the connection for `throttle_ms`, then call `resume`. An earlier muting that
        ends later is not shortened; for 0 do nothing. `came`: the received bytes of an unfinished
        large request. If there are any, that request is still received and served, since it holds
        memory."""
        if not throttle_ms:
            return
        if self._timer is None:
            self.spares = came > 0
        until_s = self._loop.time() + throttle_ms / 1000
        if until_s > self.until_s:
            self.until_s = until_s
            self.end()
            self._timer = self._loop.call_at(until_s, self._over, resume)
        if self._timer is not None and not self.spares:
            self._flow.hold(MUTED)

    def spare_no_more(self) -> None:
        """Hold the connection from now on, if it is muted: the one request that was served despite
        the muting has been served."""
        self.spares = False
        if self._timer is not None:
            self._flow.hold(MUTED)

    def _over(self, resume: Callable[[], None]) -> None:
        self._timer = None
        self._flow.release(MUTED)
        resume()

    def end(self) -> None:
        """Cancel the timer, if one is set, for a longer muting or because the connection is lost.
        The hold MUTED of the flow stays set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
