"""ConnectionFlow: its table, its holds and the order of replies; and a session under any events."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_broker.server.connection_flow import (
    MUTED,
    NO_TURN,
    OUTPUT_FULL,
    TRANSITIONS,
    ConnectionFlow,
    FlowEvent,
    FlowState,
    NextStep,
)
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch, RequestContext
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

HOLDS = (OUTPUT_FULL, MUTED, NO_TURN)


@dataclass(eq=False)
class Request:
    """`future` None: its reply is there."""

    future: Reply | None = None


@dataclass
class Reply:
    there: bool = False

    def done(self) -> bool:
        return self.there


def flow(in_flight_max: int = 5) -> ConnectionFlow[Request]:
    return ConnectionFlow(in_flight_max)


def after(*events: FlowEvent) -> ConnectionFlow[Request]:
    made = flow()
    calls = {
        FlowEvent.PEER_ENDED: made.peer_ended,
        FlowEvent.REFUSED: made.refuse,
        FlowEvent.CLOSED: made.close,
    }
    for event in events:
        calls[event]()
    return made


def test_table_names_every_state_and_event() -> None:
    assert set(TRANSITIONS) == set(FlowState)
    assert all(set(row) == set(FlowEvent) for row in TRANSITIONS.values())


@pytest.mark.parametrize("event", FlowEvent)
def test_closed_connection_stays_closed(event: FlowEvent) -> None:
    assert after(FlowEvent.CLOSED, event).state is FlowState.CLOSED


@given(st.lists(st.sampled_from(FlowEvent)))
def test_state_follows_the_table(events: list[FlowEvent]) -> None:
    state = FlowState.OPEN
    for event in events:
        state = TRANSITIONS[state][event]
    made = after(*events)
    assert made.state is state
    assert bool(made.held) == (state in (FlowState.REFUSED, FlowState.CLOSED))
    if events:
        assert made.next_step(may_serve=not made.held, has_room=True) is not NextStep.RESUME or (
            state is FlowState.OPEN
        )


@given(st.lists(st.tuples(st.sampled_from(HOLDS), st.booleans())))
def test_one_hold_outlives_release_of_others(changes: list[tuple[int, bool]]) -> None:
    made, held = flow(), set()
    for reason, holds in changes:
        (made.hold if holds else made.release)(reason)
        (held.add if holds else held.discard)(reason)
        assert made.held == sum(held)


def test_released_hold_does_not_reopen_closed_connection() -> None:
    made = after(FlowEvent.CLOSED)
    for reason in HOLDS:
        made.release(reason)
    assert made.held


def test_replies_leave_in_the_order_of_requests() -> None:
    made = flow()
    first, second = Request(Reply()), Request(Reply(there=True))
    made.add(first)
    made.add(second)
    assert made.next_due() is None
    assert first.future is not None
    first.future.there = True
    assert [made.next_due(), made.next_due(), made.next_due()] == [first, second, None]


def test_full_output_holds_replies_back() -> None:
    made, request = flow(), Request()
    made.add(request)
    made.hold(OUTPUT_FULL)
    assert made.next_due() is None
    assert not made.replied(request)
    made.release(OUTPUT_FULL)
    assert made.replied(request)
    assert made.next_due() is request


def test_muted_connection_still_sends_replies() -> None:
    made, request = flow(), Request()
    made.add(request)
    made.hold(MUTED | NO_TURN)
    assert made.next_due() is request


def test_long_reply_delays_requests_until_ready() -> None:
    made, request = flow(), Request(Reply())
    made.add(request, long=True)
    assert made.is_full()
    made.replied(request)
    assert not made.is_full()


def test_requests_in_flight_are_bounded() -> None:
    made = flow(in_flight_max=2)
    made.add(Request(Reply()))
    assert not made.is_full()
    made.add(Request(Reply()))
    assert made.is_full()


def test_half_closed_connection_closes_once_answered() -> None:
    made = flow()
    made.add(Request())
    made.peer_ended()
    assert made.next_step(may_serve=True, has_room=False) is NextStep.KEEP
    made.next_due()
    assert made.next_step(may_serve=False, has_room=False) is NextStep.KEEP
    assert made.next_step(may_serve=True, has_room=False) is NextStep.CLOSE


def test_reading_pauses_and_resumes_once() -> None:
    made = flow()
    assert made.next_step(may_serve=False, has_room=True) is NextStep.PAUSE
    assert made.next_step(may_serve=True, has_room=False) is NextStep.KEEP
    assert made.next_step(may_serve=True, has_room=True) is NextStep.RESUME
    assert made.next_step(may_serve=True, has_room=True) is NextStep.KEEP


def test_request_that_has_its_peer_refused_is_answered() -> None:
    made, request = after(FlowEvent.REFUSED), Request()
    made.add(request)
    assert made.next_due() is request


def test_refused_peer_is_not_read() -> None:
    made = after(FlowEvent.REFUSED)
    assert made.next_step(may_serve=False, has_room=False) is NextStep.PAUSE
    assert made.next_step(may_serve=True, has_room=True) is NextStep.KEEP


# --- a session under any sequence of events -------------------------------------------------------


class Transport:
    """Refuses what an asyncio transport would, or what the flow promises not to do."""

    def __init__(self) -> None:
        self.reading, self.closed, self.sent = True, False, bytearray()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 9) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        assert not self.closed, "written after the close"
        self.sent += data

    def writelines(self, pieces: Sequence[bytes]) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def answered(self) -> list[int]:
        """Correlation ids."""
        found, at = [], 0
        while at < len(self.sent):
            length, correlation_id = struct.unpack_from(">ii", self.sent, at)
            found.append(correlation_id)
            at += 4 + length
        return found


class Peer:
    """A session, its peer, and what the model knows."""

    def __init__(self) -> None:
        limits = ListenerLimits(in_flight_max=3)
        self.server = BrokerListener(Dispatch({ApiKey.HEARTBEAT: self._handle}), limits)
        self.session = self.server._session()
        self.transport = Transport()
        self.session.connection_made(self.transport)  # type: ignore[arg-type]
        self.sent = 0
        self.served: list[int] = []
        self.pending: dict[int, asyncio.Future[bytes | None]] = {}
        self.ended = self.refused = self.full = self.muted = self.lost = False

    def _handle(self, context: RequestContext) -> Any:
        number = context.correlation_id
        assert not self.transport.closed, "served after the close"
        held = self.refused or self.full or self.muted
        assert not held, "served while held"
        assert len(self.pending) < 3, "more in flight than allowed"
        self.served.append(number)
        if number % 2:
            return b"at once"
        if number % 32 == 6:  # as a failed login, which is answered later
            self.refuse()
        self.pending[number] = asyncio.get_running_loop().create_future()
        return self.pending[number]

    @property
    def over(self) -> bool:
        return self.lost or self.transport.closed

    def send(self, count: int) -> None:
        """So many requests in one read."""
        if not self.transport.reading or self.ended or self.over:
            return
        frames = b""
        for _ in range(count):
            values = {
                "group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None,
            }  # fmt: skip
            body = encode_request(ApiKey.HEARTBEAT, 3, values)
            frames += request_frame(ApiKey.HEARTBEAT, 3, self.sent, "c", body)
            self.sent += 1
        self.session.get_buffer(-1)[: len(frames)] = frames
        self.session.buffer_updated(len(frames))

    def reply(self, which: int) -> None:
        if self.pending:
            number = sorted(self.pending)[which % len(self.pending)]
            future = self.pending.pop(number)
            if not future.done():
                future.set_result(b"later")

    def full_or_not(self, full: bool) -> None:
        if full != self.full and not self.lost:
            self.full = full
            (self.session.pause_writing if full else self.session.resume_writing)()

    def mute(self) -> None:
        if not self.over and not self.muted:
            self.muted = True
            self.session._muting.mute(3_600_000, self.session.wake)

    def unmute(self) -> None:
        if self.muted:
            self.muted = False
            self.session._muting.end()
            self.session._muting._over(self.session.wake)

    def end(self) -> None:
        if not self.ended and not self.over:
            self.ended = True
            if not self.session.eof_received():
                self.transport.closed = True

    def refuse(self) -> None:
        if not self.over:
            self.refused = True
            self.session._connection.ends("failed-login")

    def close(self) -> None:
        self.session.close("test")

    def lose(self) -> None:
        if not self.lost:
            self.lost = self.transport.closed = True
            self.session.connection_lost(None)
            assert all(future.cancelled() for future in self.pending.values())
            self.pending.clear()

    def check(self) -> None:
        answered = self.transport.answered()
        assert self.served == list(range(len(self.served))), "served out of order"
        assert answered == self.served[: len(answered)], "answered out of order"
        if self.session._flow.held and not self.over:
            assert self.session._flow.state is not FlowState.CLOSED


async def _turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def _live_through(events: list[tuple[str, int]]) -> None:
    peer = Peer()
    acts = {
        "send": lambda n: peer.send(n % 4 + 1),
        "reply": peer.reply,
        "full": lambda n: peer.full_or_not(bool(n % 2)),
        "mute": lambda n: peer.mute(),
        "unmute": lambda n: peer.unmute(),
        "end": lambda n: peer.end(),
        "refuse": lambda n: peer.refuse(),
        "close": lambda n: peer.close(),
        "lose": lambda n: peer.lose(),
    }
    for what, number in events:
        if what == "turn":
            await _turns()
        else:
            acts[what](number)
        peer.check()
    peer.full_or_not(False)
    peer.unmute()
    while True:
        await _turns()
        peer.check()
        if not peer.pending:
            break
        peer.reply(0)
    if not peer.over and not peer.refused:
        assert peer.transport.answered() == list(range(peer.sent)), "not all are answered"
        assert peer.transport.reading
        assert not peer.ended, "a half-closed peer was answered, and stayed"
    if peer.ended and not (peer.refused or peer.lost):
        assert peer.transport.closed
    peer.lose()
    assert peer.server.connections == 0
    assert peer.server.stats.waiting == 0


COMMON = ("send", "reply", "full", "mute", "unmute", "turn")
EVENTS = st.lists(
    st.tuples(st.sampled_from(COMMON * 3 + ("end", "refuse", "close", "lose")), st.integers(0, 7)),
    max_size=30,
)


@given(EVENTS)
def test_session_keeps_its_promises_under_any_events(events: list[tuple[str, int]]) -> None:
    asyncio.run(_live_through(events))
