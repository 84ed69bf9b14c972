"""Session: one client connection. It reads frames and sends replies in the order of the requests.

Made by `BrokerListener`. Requests are handled as they arrive and may be pipelined. A request that
waits delays only the replies behind it. The resources of a client are bounded: requests in flight,
unsent replies (the session stops reading) and, with all other clients, memory. A client that breaks
the protocol is disconnected, and so is one with a request that meets a bug; both are counted by
reason, and no other connection is affected. A client that half-closes still gets its replies.

`ServerStats`: a listener's counts of connections and requests, and the requests' durations.

`SessionOwner`: the objects that a listener provides to each of its sessions. Made by `listener`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from plimsoll_broker.handler_failures import CommitPathFailed, HandlerFailures
from plimsoll_broker.server.client_memory import ClientMemory, MemoryAccount, RequestAccount
from plimsoll_broker.server.client_quotas import MUTATING, QuotaCharges, Quotas, measured
from plimsoll_broker.server.connection_flow import (
    MUTED,
    NO_TURN,
    OUTPUT_FULL,
    ConnectionFlow,
    FlowState,
    Muting,
    NextStep,
)
from plimsoll_broker.server.connection_limits import (
    Activity,
    AddressAdmission,
    Conduct,
    ListenerLimits,
    lately,
    seconds_since,
)
from plimsoll_broker.server.connection_state import SERVING, CloseConnection, ConnectionState
from plimsoll_broker.server.dispatch import Buffer, Dispatch, Reply, RequestContext, Result
from plimsoll_broker.server.requests_and_replies import (
    AT_ONCE,
    LATER,
    LONG_REPLIES,
    SMALL_BYTES,
    Later,
    ReplyLater,
    ReplySender,
    ReplySlot,
    RequestReceiver,
    told,
)
from plimsoll_broker.server.turn_budget import TurnBudget
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.security.client_certificates import CertificateProof
from plimsoll_core.security.inside import Peer
from plimsoll_net.tls_connection import CLIENT_PROOF, INSIDE_PEER
from plimsoll_process.durations import Durations
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.framing import FrameTooLarge
from plimsoll_wire.headers import RequestHeader, parse_request_header
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.tail_stream import ACKNOWLEDGE, is_acknowledgement


class RequestTimes(dict[int, Durations]):
    """Histograms of request durations by API key. A duration lasts from reading a request until its
    reply was handed to the socket or, without a reply, until its handler returned."""

    def __missing__(self, api_key: int) -> Durations:
        made = self[api_key] = Durations()
        return made


@dataclass(slots=True)
class ServerStats:
    """A listener's counts of connections, requests and bytes, for the metrics. They never decrease,
    except `waiting`."""

    accepted: int = 0
    turned_away: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    waiting: int = 0
    """The number of requests without a reply so far, of all connections."""
    requests: Counter[int] = field(default_factory=Counter)
    times: RequestTimes = field(default_factory=RequestTimes)
    follower_fetches: Durations = field(default_factory=Durations)
    """The durations of brokers' fetches, which `times` leaves out."""
    closed_for: Counter[str] = field(default_factory=Counter)
    handler_failures: HandlerFailures = field(default_factory=HandlerFailures)

    def took(self, api_key: int, began_ns: int, *, by_broker: bool) -> None:
        """Record the duration of a request that is answered now: a broker's fetch in
        `follower_fetches`, all others in `times`. `began_ns`: the monotonic time at which it was
        read. `by_broker`: True if the connection is a registered broker's."""
        seconds = (time.monotonic_ns() - began_ns) / 1e9
        if by_broker and api_key == ApiKey.FETCH:
            self.follower_fetches.observe(seconds)
        else:
            self.times[api_key].observe(seconds)


_API_KEYS = {int(key): key for key in ApiKey}
_PRODUCE = int(ApiKey.PRODUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOwner:
    """What a listener gives to each of its sessions: configuration, limits, shared state and
    callbacks.

    `listener` returns the current configuration. `opened` is called with a new session and returns
    False if the connection must be closed. `heard` is called when a session has made a request,
    `closed` when it ends. `failed` takes an error on the commit path. `proved` takes a connection
    and the proof of its client certificate. `quotas` is None if this listener has no quotas.
    `admission` is None if addresses are not limited, or were checked before the session was made.
    """

    dispatch: Dispatch
    listener: Callable[[], Listener]
    limits: ListenerLimits
    memory: ClientMemory | None
    stats: ServerStats
    turns: TurnBudget
    quotas: Quotas | None
    admission: AddressAdmission | None
    opened: Callable[[Any], bool]
    heard: Callable[[Any], None]
    closed: Callable[[Any], None]
    failed: Callable[[BaseException], None]
    proved: Callable[[ConnectionState, CertificateProof], None]

    def admits(self, transport: asyncio.Transport) -> bool:
        return self.admission is None or self.admission.arrived(transport)

    def left(self, host: str) -> None:
        if self.admission is not None:
            self.admission.left(host)

    def broke(self, api_key: int, error: BaseException) -> None:
        """Count an unexpected error of a handler; the session then closes its connection. An error
        on the commit path is passed to the listener instead, and ends the process."""
        if isinstance(error, CommitPathFailed):
            self.failed(error)
        else:
            self.stats.handler_failures.met(api_key, error)

    def context(
        self, header: RequestHeader, frame: bytearray, connection: ConnectionState, began_ns: int
    ) -> RequestContext:
        """Return the context of a request of a served API, and set SERVING to its connection. If a
        quota applies, the context has its charges, or for a Produce that was allowed ahead the
        allowance. `began_ns`: the monotonic time at which the request was read."""
        if SERVING.get() is not connection:  # it mostly is: a transport has a context of its own
            SERVING.set(connection)
        key, version, correlation_id, client_id, body_at = header
        assert body_at is not None, "a version that is served has a body"
        body = memoryview(frame)[body_at:]
        context = RequestContext(
            _API_KEYS[key], version, correlation_id, body, connection, client_id
        )
        quotas = self.quotas
        if quotas is not None and quotas.limits_clients:
            held = connection.limits
            if (
                key == _PRODUCE
                and held is not None
                and held.covers(quotas.committed, client_id, len(body), began_ns)
            ):
                context.time_ahead = held.time_ahead
            else:
                context.charges = quotas.charges(connection, key, client_id, began_ns)
        if quotas is not None and key in MUTATING:
            context.charges = quotas.mutating(context.charges, connection, client_id, began_ns)
        return context

    def charges_of_steps(self, connection: ConnectionState) -> QuotaCharges | None:
        """Return the charges for the later steps of a request that was allowed ahead; None if none
        apply."""
        return None if self.quotas is None else self.quotas.steps(connection)

    def serves(self, connection: ConnectionState, api_key: int, version: int) -> bool:
        """Return True if this version of the API is served to this connection. A client that has
        not logged in is served nothing here, so it may send nothing large."""
        return connection.let_in and self.dispatch.find(api_key, version) is not None


_STEPS: dict[NextStep, Callable[[asyncio.Transport], None]] = {
    NextStep.PAUSE: lambda transport: transport.pause_reading(),
    NextStep.RESUME: lambda transport: transport.resume_reading(),
    NextStep.CLOSE: lambda transport: transport.close(),
}


class Session(asyncio.BufferedProtocol):
    """The asyncio protocol of one client connection: it receives requests, calls their handlers,
    and sends the replies. The listener calls `conduct` to find overdue connections."""

    def __init__(self, owner: SessionOwner) -> None:
        self._owner = owner
        self._limits = limits = owner.limits
        self._output_bytes_max = limits.output_bytes_max
        memory = owner.memory
        self._replies = None if memory is None else memory.replies
        self._flow: ConnectionFlow[ReplySlot] = ConnectionFlow(limits.in_flight_max)
        self._transport: asyncio.Transport | None = None
        self._admitted = False
        self._handling = -1
        self._loop = loop = asyncio.get_running_loop()
        account = MemoryAccount(self._replies, limits.output_bytes_max)
        requests = RequestAccount(None if memory is None else memory.requests)
        self._connection = ConnectionState(account, owner.listener(), requests)
        self._connection.slices = owner.turns.slices
        self._sender = ReplySender(account, loop)
        self._receiver = RequestReceiver(limits, partial(owner.serves, self._connection), requests)
        self.activity = Activity(loop.time())
        self._muting = Muting(loop, self._flow)

    # --- the transport's calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=self._limits.output_bytes_max, low=0)
        self._sender.connected(transport)
        self._connection.opened(transport, self.close, self._flow.refuse, self._push)
        self._connection.inside_peer = transport.get_extra_info(INSIDE_PEER)
        self._admitted = self._owner.admits(transport)
        if not self._admitted:
            self._gone()
        elif not self._owner.opened(self):
            transport.abort()
        elif (proof := transport.get_extra_info(CLIENT_PROOF)) is not None:
            self._owner.proved(self._connection, proof)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()
        dropped = self._flow.drop_all()
        self._owner.stats.waiting -= len(dropped)
        for slot in dropped:
            self._receiver.let_go(slot)
            if slot.future is not None:
                slot.future.cancel()
        if self._admitted:
            self._owner.left(self._connection.host)
        self._connection.lost()
        self._muting.end()
        if self._replies is not None:
            self._connection.account.forget_to_serve(self)
        self._receiver.close(self)
        self._sender.lost()
        self._owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.activity.heard_s = self._loop.time()
        self._owner.stats.bytes_in += nbytes
        if self._receiver.received(nbytes) or not self._goes_on():
            self._pump()

    def eof_received(self) -> bool:
        """Handle a half-close by the peer. Return True to keep the transport open while requests
        are pending, and False to close it. Followers never half-close, so a follower's connection
        is treated as lost."""
        self.activity.half_closed_s = self._loop.time()
        self._flow.peer_ended()
        return not self.is_broker and bool(self._flow.waiting or not self._may_serve())

    def pause_writing(self) -> None:
        self._flow.hold(OUTPUT_FULL)

    def resume_writing(self) -> None:
        self._flow.release(OUTPUT_FULL)
        self._sender.settle()
        self._send_what_is_due()

    # --- the server's -----------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        return self._connection.is_broker

    @property
    def inside_peer(self) -> Peer | None:
        return self._connection.inside_peer

    @property
    def holder(self) -> str:
        return self._connection.holder

    def moved_to(self, listener: Listener) -> None:
        """Use this configuration of the listener from now on. Called when the listener was renamed
        or its limits changed; the session keeps the limits that it began with."""
        self._connection.listener = listener

    def conduct(self, now: float, *, wanted: bool = False) -> Conduct:
        """Return the behaviour of the connection as of `now` (seconds of the loop's clock), by
        which the listener chooses connections to close. `wanted`: True if others wait for memory
        that its principal's requests hold."""
        self._sender.settle()
        activity, let_in = self.activity, self._connection.let_in
        silent = activity.silent_for(now, self._muting.until_s, let_in=let_in)
        limits = self._limits
        if silent > limits.sweep_ms / 1000:
            self._receiver.rest()
        draining, taken = self._sender.draining(now, lately(limits.unread_short_ms_max))
        return Conduct(
            silent=silent,
            spoken=activity.spoken,
            waiting=bool(self._flow.waiting),
            owing=seconds_since(activity.owing_s, now),
            came=self._receiver.came_within(now, activity.owing_s, lately(limits.owing_ms(wanted))),
            starved=seconds_since(activity.starved_s, now),
            unread=self._sender.unread(now),
            draining=draining,
            taken=taken,
            half_closed=seconds_since(activity.half_closed_s, now),
        )

    def close(self, reason: str) -> None:
        """Close the connection at once, without sending pending replies, and count `reason`. Its
        pending requests are cancelled. Do nothing if it is closed already."""
        if self._transport is not None:
            self._owner.stats.closed_for[reason] += 1
            self._owner.closed(self)
            self._transport.abort()
            self._gone()

    def _gone(self) -> None:
        self._transport = None
        self._flow.close()

    # --- requests ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Serve the requests that have been received, if memory and the other limits permit it now.
        Do nothing if the connection is lost."""
        if self._transport is not None:
            self._pump()

    def _go_on(self) -> None:
        """Release the hold NO_TURN and serve requests again: the turn of the event loop for which
        this session was queued has come."""
        self._flow.release(NO_TURN)
        self._pump()

    def _pump(self) -> None:
        """Serve the frames that have been received until a limit is reached or the turn's budget is
        spent, and start or stop reading accordingly. A malformed request, or a bug, closes the
        connection."""
        may_serve, idle, receiver, turns = True, False, self._receiver, self._owner.turns
        try:
            while may_serve := self._may_serve():
                if not receiver.unfinished:
                    idle = True
                    break
                if turns.is_spent(self._loop):
                    may_serve = False
                    self._wait_for_turn()
                    break
                received = receiver.next_request(self)
                if received is None:
                    break
                self._serve(*received)
        except FrameTooLarge:
            self.close("frame-too-large")
        except MalformedMessage:
            self.close("malformed")
        except CloseConnection as refusal:
            self.close(str(refusal) or "refused")
        except Exception as error:  # noqa: BLE001 - any bug costs only this connection
            self._broke(self._handling, error)
        if idle and self._flow.reading and self.activity.starved_s is None:
            self.activity.owing_s = None  # the usual case after a request: reading goes on
        else:
            self._adjust_reading(may_serve=may_serve)

    def _wait_for_turn(self) -> None:
        """Hold the connection (NO_TURN), and queue the session for a later turn of the event
        loop."""
        self._flow.hold(NO_TURN)
        self._owner.turns.wait(self._loop, self._connection.holder, self._go_on)

    def _may_serve(self) -> bool:
        """Return True if the next request may be served. If only memory for its reply is missing,
        also queue the session to be woken when there may be some."""
        flow = self._flow
        if flow.held:
            return False
        connection = self._connection
        if flow.waiting and (
            flow.is_full()
            or connection.account.held >= self._output_bytes_max
            or not connection.requests.may_hold
        ):
            return False
        replies = self._replies
        if replies is None or replies.shares.used * 2 < replies.limit:
            return True  # too little is used for any principal to hold its share
        account = connection.account
        if account.may_serve:
            return True
        account.wait_to_serve(self)
        return False

    def _goes_on(self) -> bool:
        """Take memory for the next bytes of an unfinished large request, and return True if they
        may be read. Return False while the connection is muted, or if there is no memory; then the
        session is woken. A limit that is reached meanwhile stops the next request, not this one."""
        activity = self.activity
        if activity.owing_s is None and self._may_serve():
            activity.owing_s = activity.heard_s
        reading = activity.owing_s is not None and not self._flow.held & MUTED
        return reading and self._receiver.may_receive(self)

    def _adjust_reading(self, *, may_serve: bool) -> None:
        activity, flow, transport = self.activity, self._flow, self._transport
        if transport is None or transport.is_closing():
            return
        is_open = flow.state is FlowState.OPEN
        has_room = is_open and may_serve and self._receiver.may_receive(self)
        step = flow.next_step(may_serve=may_serve, has_room=has_room)
        if step is not NextStep.KEEP:
            _STEPS[step](transport)
        if flow.state is FlowState.HALF_CLOSED:
            return
        owing = has_room and self._receiver.unfinished
        # Memory is not asked for while another limit stops the connection.
        starved = may_serve and self._receiver.starved
        activity.waits(self._loop.time(), owing=owing, starved=starved)

    def _serve(self, frame: bytearray, charged: int) -> None:
        self.activity.owing_s = None
        if self._muting.spares:
            self._muting.spare_no_more()
        began_ns = time.monotonic_ns()
        try:
            owner, connection = self._owner, self._connection
            if is_acknowledgement(frame) and self._acknowledged(frame):
                return
            header = parse_request_header(frame)
            key = self._handling = header.api_key
            owner.stats.requests[key] += 1
            connection.check(key)
            route = owner.dispatch.find(key, header.api_version)
            if route is None or header.body_at is None:
                self._answer(header, owner.dispatch.unsupported_version(key), began_ns)
                return
            context = owner.context(header, frame, connection, began_ns)
            result = route.handler(context)
            if context.charges is not None:
                result = self._charge(context.charges, header, result)
            elif (ahead := context.time_ahead) is not None:
                ahead.left -= time.monotonic_ns() - began_ns
            if connection.sasl is None or connection.let_in:
                self.activity.spoken = True
                owner.heard(self)
            if result is None:
                owner.stats.took(key, began_ns, by_broker=connection.is_broker)
                return
            if isinstance(result, AT_ONCE):
                self._answer(header, result, began_ns)
                return
            slot = ReplySlot(header, began_ns)
            slot.charges = context.charges
            self._receiver.keeps(slot, frame, charged, context)
            charged = 0
        finally:
            if charged:
                self._receiver.give_back(charged)
        self._wait_for(slot, result, frame, context)

    def _acknowledged(self, frame: bytearray) -> bool:
        """Hand a follower's acknowledgement to the connection's fetch session, if that still
        exists, and return True. Return False if the peer is not known to be a broker."""
        self._handling = ACKNOWLEDGE
        session = self._connection.fetch_session
        if session is not None:
            session.acknowledge(frame)
        return self._connection.is_broker

    def _wait_for(
        self, slot: ReplySlot, result: Any, frame: bytearray, context: RequestContext
    ) -> None:
        """Queue a request that is answered later; replies to later requests wait for its reply. Any
        result but a ReplyLater or a future is run as a task."""
        future: Later
        if isinstance(result, ReplyLater):
            future = result
        else:
            if context.time_ahead is not None:
                # The coroutine has not begun: its steps run in later turns and are charged there.
                context.charges = self._owner.charges_of_steps(self._connection)
                slot.charges = context.charges
            self._owner.turns.begins_task()
            future = asyncio.ensure_future(result)
        slot.future = future
        self._flow.add(slot, long=slot.header.api_key in LONG_REPLIES)
        self._owner.stats.waiting += 1
        future.add_done_callback(partial(self._completed, slot))
        if len(frame) > SMALL_BYTES:
            # The transport itself still has a view of the frame.
            self._loop.call_soon(self._receiver.free, slot, frame)

    def _charge(self, charges: QuotaCharges, header: RequestHeader, result: Result) -> Result:
        """Charge a request for its use of quotas so far, mute the connection if it has to be
        throttled, and return its result: a ready reply with the throttle time, or a coroutine
        wrapped such that its later steps are charged, too."""
        charges.took()
        if charges.throttle_ms:
            self._muting.mute(charges.throttle_ms, self.wake)
        if result is None or isinstance(result, AT_ONCE):
            return result and told(result, header.api_key, header.api_version, charges)
        if isinstance(result, LATER):
            return result
        return measured(charges, result)  # type: ignore[arg-type]  # all but Sequence

    # --- replies ----------------------------------------------------------------------------------

    def _answer(self, header: RequestHeader, reply: Reply, began_ns: int) -> None:
        if self._flow.waiting:
            slot = ReplySlot(header, began_ns, reply)
            slot.held = self._sender.hold(reply)
            self._flow.add(slot)
            self._owner.stats.waiting += 1
        else:
            self._send(header, reply, None, began_ns)

    def _push(self, pieces: Sequence[Buffer]) -> bool:
        """Send a frame that is no reply, given in `pieces`, and return True. Return False, and send
        nothing, while the peer takes nothing: replies that are ready wait then, too."""
        if self._transport is None or self._flow.held & OUTPUT_FULL:
            return False
        self._owner.stats.bytes_out += self._sender.push(pieces)
        return True

    def _completed(self, slot: ReplySlot, future: Later) -> None:
        """Store a reply that has become ready in its slot, and send all replies that are next in
        order and ready. If this reply must wait for earlier ones, count its bytes on the
        connection's account. Never raises to the code that made the reply: a bug closes the
        connection."""
        is_due = self._flow.replied(slot)
        try:
            self._receiver.let_go(slot)
            if self._transport is not None:
                self._take(slot, future, holds=not is_due)
                self._send_what_is_due()
            elif not future.cancelled() and (error := future.exception()) is not None:
                self._report(slot, error)
        except Exception as error:  # noqa: BLE001 - only this client pays
            self._broke(slot.header.api_key, error)

    def _take(self, slot: ReplySlot, future: Later, *, holds: bool) -> None:
        """Store the reply of a completed future in its slot, with its throttle time, for which the
        connection is muted. Do nothing if that was done already (the reply may be sent before its
        callback runs) or if the request failed. `holds`: True to count the reply's bytes on the
        account."""
        if slot.reply is None and not future.cancelled() and future.exception() is None:
            slot.reply = future.result()
            if slot.charges is not None and self._transport is not None:
                self._muting.mute(slot.charges.throttle_ms, self.wake, self._receiver.came)
                slot.reply = slot.reply and told(slot.reply, *slot.header[:2], slot.charges)
            if holds and slot.reply is not None:
                slot.held = self._sender.hold(slot.reply)

    def _send_what_is_due(self) -> None:
        """Send all replies that are next in order and ready, as long as the peer takes them."""
        flow = self._flow
        while (slot := flow.next_due()) is not None:
            future = slot.future
            self._owner.stats.waiting -= 1
            if future is not None and slot.reply is None:
                self._take(slot, future, holds=False)
                if not self._went_well(slot, future):
                    return
            if slot.reply is not None:
                self._send(slot.header, slot.reply, slot.held, slot.began_ns)
            else:
                by_broker = self._connection.is_broker
                self._owner.stats.took(slot.header.api_key, slot.began_ns, by_broker=by_broker)
        if not flow.reading:
            # Serve what has arrived meanwhile, but not inside the code that made a reply.
            self._loop.call_soon(self.wake)

    def _went_well(self, slot: ReplySlot, future: Later) -> bool:
        """Return True if the request succeeded. If it failed or was cancelled, close the
        connection, report a bug, and return False."""
        if future.cancelled():
            self.close("cancelled")
            return False
        error = future.exception()
        if error is not None:
            reason = str(error) if isinstance(error, CloseConnection) else "malformed"
            self._report(slot, error)
            self.close(reason or "refused")
            return False
        return True

    def _report(self, slot: ReplySlot, error: BaseException) -> None:
        """Treat an error of a request as a bug, unless it is the client's."""
        if not isinstance(error, MalformedMessage | CloseConnection):
            self._broke(slot.header.api_key, error)

    def _broke(self, api_key: int, error: BaseException) -> None:
        self._owner.broke(api_key, error)
        self.close("handler-failed")

    def _send(self, header: RequestHeader, reply: Reply, held: int | None, began_ns: int) -> None:
        """Send a reply, if the connection is open, and record the request's duration. `held`: as in
        `ReplySender.send`. `began_ns`: the monotonic time at which the request was read."""
        if self._transport is not None:
            stats, connection = self._owner.stats, self._connection
            stats.bytes_out += self._sender.send(header, reply, held)
            stats.took(header.api_key, began_ns, by_broker=connection.is_broker)
            if (reason := connection.ending) and not self._flow.waiting:
                stats.closed_for[reason] += 1
                self._transport.close()  # what was sent still arrives
