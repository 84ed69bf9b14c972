"""ControllerClient: finds the active controller for a broker, and sends the broker's commands to
it.

`node.broker`, the replica manager and the admin handlers call `command`, which sends to the current
controller again, with bounded backoff, until the caller's deadline. A controller with an epoch
below the highest seen is not believed. If a controller is silent or reports itself `unconfirmed`
(it cannot show that it is still active), the broker asks all other addresses, and changes to a
confirmed controller of a higher epoch. Source: ARCHITECTURE.md, "The controller"; docs/protocol.md
§7.2.

`ControlConnection`: one connection to a controller, with replies matched by correlation id. The
controller client uses one for commands, the metadata stream another. Replies may overtake. When the
connection is lost every request fails; callers bound their waits.

`RumouredController`: decides when a broker looks for a newer controller that a peer has reported.
Source: the protocol's rule for Fetch, the leader's side ("Controller epoch").
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast
from uuid import UUID

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_broker.inside import InsidePeers
from plimsoll_core.addresses import host_and_port, split_address
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import LogOutput, TopicDefaults
from plimsoll_core.messages.drills import DrillOrder
from plimsoll_core.messages.metadata_copy import CopyWanted, OfferMetadataCopy
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    Answer,
    BrokerRequest,
    Heartbeat,
    Refused,
)
from plimsoll_net.dialling import Link, PeerAddress
from plimsoll_wire import control
from plimsoll_wire.framing import Framer, FrameTooLarge

logger = logging.getLogger("plimsoll.controller_client")
IN_FLIGHT_MAX = 256


class ControlConnection(asyncio.Protocol):
    """One connection of a broker to a controller, made by `connect`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._framer = Framer(control.REPLY_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation_id = 0
        # The TLS state of the connection. None if it never becomes outdated.
        self.link: Link | None = None
        # The reason to close it once nothing waits, or empty.
        self._leaving = ""

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._framer.receive(data)
            while (frame := self._framer.next_frame()) is not None:
                future = self._waiting.pop(control.reply_correlation_id(frame), None)
                if future is not None and not future.done():
                    future.set_result(bytes(frame))
        except (control.MalformedControlMessage, FrameTooLarge) as error:
            self.close(
                f"the controller's reply cannot be read, so the broker connects again: {error}"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(
            "the connection to the controller was lost: "
            f"{exc or 'the controller closed the connection'}"
        )
        self._transport = None

    def close(self, why: str) -> None:
        """Abort the connection. Pending requests fail with a ConnectionError with this message."""
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    def close_when_idle(self, why: str) -> None:
        """Close the connection once its pending requests are answered; at once if there are none.
        `why`: the message of the ConnectionError that later requests get."""
        self._leaving = why
        if not self._waiting:
            self.close(why)

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(why))

    async def command(self, command: control.Command, timeout_ms: int) -> control.CommandReply:
        """Send a command and return the reply. Raises TimeoutError if there is none within
        `timeout_ms`, and ConnectionError if the connection is lost or IN_FLIGHT_MAX requests are
        pending."""
        return control.decode_command_reply(await self._call(command, timeout_ms))

    async def fetch_metadata(self, fetch: FetchMetadata, timeout_ms: int) -> control.MetadataReply:
        """Request metadata records and return the reply. Raises TimeoutError if there is none
        within `timeout_ms`, and ConnectionError if the connection is lost or IN_FLIGHT_MAX requests
        are pending."""
        return control.decode_metadata_reply(await self._call(fetch, timeout_ms))

    async def offer_copy(self, offer: OfferMetadataCopy, timeout_ms: int) -> CopyWanted:
        """Offer the copy of the metadata, or send a part of it, and return what the operator wants
        next. Raises TimeoutError if there is no reply within `timeout_ms`, and ConnectionError if
        the connection is lost."""
        return control.decode_copy_wanted(await self._call(offer, timeout_ms))

    async def _call(self, body: control.RequestBody, timeout_ms: int) -> bytes:
        """Send a request and return the reply's frame. Raise TimeoutError if there is none within
        `timeout_ms`, and ConnectionError if the connection is closed or lost, or if IN_FLIGHT_MAX
        requests are pending."""
        if self.closed or len(self._waiting) >= IN_FLIGHT_MAX:
            raise ConnectionError(
                "the connection to the controller is closed"
                if self.closed
                else f"the request was not sent: {IN_FLIGHT_MAX} requests of this broker already "
                "wait for the controller's replies"
            )
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        number = self._correlation_id
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._transport.write(control.encode_request(number, self._client_id, body))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        finally:
            self._waiting.pop(number, None)
            if self._leaving and not self._waiting:
                self.close(self._leaving)


async def connect(
    host: str, port: int, client_id: str, timeout_ms: int, inside: InsidePeers
) -> ControlConnection:
    """Return a new connection to a controller. `inside` sets up TLS as the cluster's mode requires,
    and checks the controller's identity. Raises OSError if the connection fails, and TimeoutError
    if it takes longer than `timeout_ms`."""
    async with asyncio.timeout(timeout_ms / 1000):
        connection, link = await inside.controller(
            lambda: ControlConnection(client_id), PeerAddress(host, port)
        )
    connection.link = link
    return connection


RUMOUR_MS = 5_000
"""The least time in ms between two searches for a controller that peers have reported."""


class RumouredController:
    """Keeps the newest controller epoch that peers have reported, until this broker has searched
    for that controller."""

    def __init__(self) -> None:
        # The highest epoch that a peer has reported since the last search; 0 if none has.
        self._epoch = ControllerEpoch(0)
        # No search is due before this time.
        self._next_look_ms = 0

    def heard_of(self, epoch: ControllerEpoch) -> None:
        """Record the epoch of a controller that a peer names; a lower epoch than one recorded
        before changes nothing.

        The report only causes a search with the next heartbeat. Only a controller itself can prove
        its epoch; otherwise one made-up number would leave this broker, and its peers, without any
        controller."""
        self._epoch = max(self._epoch, epoch)

    def is_due(self, highest_epoch: ControllerEpoch) -> bool:
        """If the broker should search now for the controller that a peer reported, forget the
        report and return True. Return False if no report is above `highest_epoch`, the highest
        epoch of controllers that have answered, or if the last search began less than RUMOUR_MS
        ago: made-up epochs must not keep the broker busy."""
        if self._epoch <= highest_epoch or monotonic_ms() < self._next_look_ms:
            return False
        self._next_look_ms = monotonic_ms() + RUMOUR_MS
        self._epoch = ControllerEpoch(0)
        return True


CONNECT_MS_MAX = 1_000
LOOK_MS_MAX = 2_000
"""The time limit in ms for asking all addresses once. Together with the silence that precedes the
search, it fits into a session timeout."""
ATTEMPT_MS_MAX = 5_000
BACKOFF_MS = 50
BACKOFF_MS_MAX = 1_000
ADDRESSES_MAX = 16
RENEW_S = 1.0
"""The pause in seconds before another attempt to replace an outdated connection."""
_NONE_COMMITTED = MetadataOffset(0)


class NoController(Exception):
    """No controller answered before the deadline. The outcome of the request is unknown: it may
    have been carried out."""


class ControllerAddress(NamedTuple):
    """A controller's address: one of those that the configured names resolve to."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """This broker's identity, and the addresses of its controllers as "host:port"."""

    cluster_id: UUID
    broker_id: BrokerId
    controllers: tuple[str, ...]

    @property
    def client_id(self) -> str:
        return f"broker-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """A controller's reply to a heartbeat. `confirmed`: True if the controller could show that it
    is still active. The other fields are copied from the reply."""

    answer: Answer
    confirmed: bool
    metadata_end: MetadataOffset = _NONE_COMMITTED
    session_timeout_ms: int = 0
    log_output: LogOutput | None = None
    drill: DrillOrder | None = None


class ControllerClient:
    """A broker's connection to the active controller, and the search for that controller. Used on
    the broker's event loop only."""

    def __init__(self, peers: Peers, inside: InsidePeers | None = None) -> None:
        """`inside` sets up TLS to controllers. With None, connections are in plaintext."""
        self.peers = peers
        self.inside = InsidePeers(peers.cluster_id) if inside is None else inside
        self.highest_epoch = ControllerEpoch(0)
        self._rumour = RumouredController()
        self._connection: ControlConnection | None = None
        self._address: ControllerAddress | None = None
        self._connecting = asyncio.Lock()
        self._changed = asyncio.Event()
        self._cut_off = ""
        # The task that replaces an outdated connection, and when it may run again.
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_again_s = 0.0
        # From the last confirmed controller. None if that is of an earlier release.
        self.topic_defaults: TopicDefaults | None = None
        self.moved: Callable[[], None] | None = None
        """Called when this client has connected to a controller, at the same or another address; or
        None."""
        self.regressed: Callable[[ControllerAddress], None] = lambda _: None
        """Called with the address of a controller that refuses a command because its metadata log
        went back in time."""

    @property
    def address(self) -> ControllerAddress | None:
        """The active controller's address, or None while none is known. The metadata stream opens
        its own connection to this address."""
        return self._address

    async def wait_address(self) -> ControllerAddress:
        """Wait until the active controller's address is known, without a time limit, and return
        it."""
        while self._address is None:
            self._changed.clear()
            await self._changed.wait()
        return self._address

    def believes(self, epoch: ControllerEpoch) -> bool:
        """Record a controller's epoch as the highest and return True, unless a controller of a
        higher epoch has been seen: then change nothing and return False."""
        if epoch < self.highest_epoch:
            return False
        self.highest_epoch = epoch
        return True

    async def command(
        self, request: BrokerRequest, timeout_ms: int = 30_000, *, once: bool = False
    ) -> Answer:
        """Send a request to the active controller, and again after each failure, and return its
        answer, which is committed. Raises NoController after `timeout_ms`; after `cut_off`, too,
        unless the request is for producer ids.

        `once`: never send again after the request may have been received (for clients' admin
        requests, which are not idempotent). Then NoController is also raised if the connection is
        lost."""
        backoffs = _backoffs()
        if self._cut_off and not isinstance(request, AllocateProducerIds):
            # Wait as long as without an answer, so that a caller that retries does not spin.
            await asyncio.sleep(timeout_ms / 1000)
            raise NoController(self._cut_off)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    connection = await self._connected()
                    reply = await self._attempt(connection, request, once=once)
                    if reply is not None:
                        return reply.answer
                    await asyncio.sleep(next(backoffs) / 1000)
        except TimeoutError:
            raise NoController(
                f"no controller answered this broker within {timeout_ms} ms"
            ) from None

    async def _attempt(
        self, connection: ControlConnection, request: BrokerRequest, *, once: bool
    ) -> control.CommandReply | None:
        """Send a request once and return the reply. If the connection is lost, the reply does not
        come or is malformed, or the peer is not the active controller, close the connection and
        return None, so that the caller searches for the controller and asks again; with `once`,
        raise NoController in place of None unless the peer has refused as not the controller."""
        try:
            reply = await connection.command(self._envelope(request), ATTEMPT_MS_MAX)
        except (ConnectionError, TimeoutError, control.MalformedControlMessage) as error:
            self._leave(connection, str(error) or "no answer")
            if once:
                raise NoController(
                    "the connection to the controller was lost; the outcome is "
                    "unknown: the request may have been carried out"
                ) from None
            return None
        if not self._accepts(reply):
            self._leave(connection, "the operator at that address is not the active controller")
            return None
        return reply

    async def heartbeat(self, heartbeat: Heartbeat, timeout_ms: int) -> HeartbeatResult | None:
        """Send a heartbeat once to the active controller and return the result. Return None if no
        controller answered within `timeout_ms`. If the controller is silent or unconfirmed, or a
        peer has reported a newer one, also search the other addresses before returning."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._connected()
                reply = await connection.command(self._envelope(heartbeat), timeout_ms)
        except TimeoutError:
            await self._look_elsewhere(heartbeat, silent=True)
            return None
        except (ConnectionError, control.MalformedControlMessage) as error:
            if self._connection is not None:
                self._leave(self._connection, str(error))
            return None
        if not self._accepts(reply):
            self._leave(connection, "the operator at that address is not the active controller")
            return None
        if reply.unconfirmed or self._rumour.is_due(self.highest_epoch):
            await self._look_elsewhere(heartbeat)
        if not reply.unconfirmed:
            self.topic_defaults = reply.topic_defaults
        return HeartbeatResult(
            reply.answer,
            not reply.unconfirmed,
            reply.metadata_end,
            reply.session_timeout_ms,
            reply.log_output,
            reply.drill,
        )

    def give_up(self, why: str) -> None:
        """Close the connection to the present controller, if there is one, and forget its address;
        the next request searches for a controller. `why`: the message of the ConnectionError that
        pending requests get."""
        if self._connection is not None:
            self._leave(self._connection, why)

    def heard_of(self, epoch: ControllerEpoch) -> None:
        """Record a controller epoch that a peer has reported (`RumouredController.heard_of`)."""
        self._rumour.heard_of(epoch)

    def cut_off(self, why: str) -> None:
        """From now on have `command` fail after its timeout with NoController and this message,
        except for requests of producer ids. Called when the broker can no longer apply metadata, so
        that its proposals would be outdated. Heartbeats are still sent."""
        self._cut_off = why

    def close(self) -> None:
        self.give_up("the broker is stopping")
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()

    # --- finding the controller -----------------------------------------------------------------

    def _envelope(self, request: BrokerRequest) -> control.Command:
        """Return the command to send for a request: the request with the cluster id and the highest
        controller epoch seen."""
        return control.Command(
            cluster_id=self.peers.cluster_id,
            controller_epoch=self.highest_epoch,
            request=request,
        )

    def _accepts(self, reply: control.CommandReply) -> bool:
        """If the reply is from the active controller, record its epoch as the highest and return
        True. Return False if its sender is not the controller or a higher epoch was seen."""
        answer = reply.answer
        if isinstance(answer, Refused) and answer.reason == Reason.MetadataRegressed.name:
            if self._address is not None:
                self.regressed(self._address)
            return False
        if isinstance(answer, Refused) and answer.reason == Reason.NotController.name:
            return False
        return self.believes(reply.controller_epoch)

    def _leave(self, connection: ControlConnection, why: str) -> None:
        """Close the connection. If it is the present one, forget the controller's address, and try
        this address last in the next search."""
        if self._connection is connection:
            where = self._address or "?"
            logger.info(
                "this broker closed its connection to the controller at %s and looks for the "
                "active controller: %s",
                *(where, why),
            )
            self._connection = None
            self._rotate(self._address)
            self._address = None
        connection.close(why)

    def _rotate(self, address: ControllerAddress | None) -> None:
        self._avoid = address

    _avoid: ControllerAddress | None = None

    async def _connected(self) -> ControlConnection:
        """Return the present connection, or a new one if there is none or it is closed. Then try
        all controller addresses, with growing pauses and without a time limit, which the caller
        sets. Also begin to replace an outdated connection (`_renew`)."""
        async with self._connecting:
            backoffs = _backoffs()
            while (present := self._connection) is None or present.closed:
                for address in await self._candidates():
                    connection = await self._try(address)
                    if connection is not None:
                        self._take(connection, address)
                        return connection
                await asyncio.sleep(next(backoffs) / 1000)
            self._renew(present)
            return present

    def _renew(self, present: ControlConnection) -> None:
        """Begin to replace the connection if it is outdated: its certificate was renewed, or it is
        in plaintext although TLS is available. Do nothing while a replacement is in progress, or
        for RENEW_S after one failed. Requests use the old connection until the new one is ready."""
        renewal, loop = self._renewal, asyncio.get_running_loop()
        if renewal is not None and renewal.done():
            self._renewal = None
            renewal.result()  # raises a bug in it
        address = self._address
        if self._renewal is not None or address is None or loop.time() < self._renewed_again_s:
            return
        if self.inside.is_outdated(present.link):
            self._renewal = asyncio.ensure_future(self._make_anew(present, address))

    async def _make_anew(self, present: ControlConnection, address: ControllerAddress) -> None:
        """Open a second connection to `address`, and use it in place of `present`, which is closed
        once its pending requests are answered. If it cannot be opened, keep `present` and permit
        the next attempt after RENEW_S. If `present` is no longer in use, close the new
        connection."""
        connection = await self._try(address)
        if connection is None:
            self._renewed_again_s = asyncio.get_running_loop().time() + RENEW_S
        elif self._connection is present and not present.closed:
            self._connection = connection
            present.close_when_idle("a newer connection to the controller has replaced this one")
        else:
            connection.close("the active controller is at another address")

    def _take(self, connection: ControlConnection, address: ControllerAddress) -> None:
        """Use this connection from now on, and close the previous one, if any: its pending requests
        fail. Wake callers of `wait_address`, and have the metadata stream change to this
        address."""
        before, self._connection = self._connection, connection
        if before is not None:
            before.close(
                "a newer connection to the controller has replaced this one"
            )  # a renewal may have come between
        self._address = address
        self._changed.set()
        if self.moved is not None:
            self.moved()

    async def _try(self, address: ControllerAddress) -> ControlConnection | None:
        """Return a new connection to this address, or None if it fails or takes longer than
        CONNECT_MS_MAX."""
        try:
            return await connect(*address, self.peers.client_id, CONNECT_MS_MAX, self.inside)
        except (OSError, TimeoutError):
            return None

    async def _candidates(self) -> list[ControllerAddress]:
        """Return the distinct addresses that the controllers' names resolve to, at most
        ADDRESSES_MAX; a name that cannot be resolved has none. The address of the connection that
        was closed last comes last."""
        loop = asyncio.get_running_loop()
        found: list[ControllerAddress] = []
        for name in self.peers.controllers:
            host, port = split_address(name)
            with contextlib.suppress(OSError):
                infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found += [ControllerAddress(str(info[4][0]), int(info[4][1])) for info in infos]
        unique = list(dict.fromkeys(found))[:ADDRESSES_MAX]
        return sorted(unique, key=lambda address: address == self._avoid)

    async def _look_elsewhere(self, heartbeat: Heartbeat, *, silent: bool = False) -> None:
        """Send the heartbeat to the other controller addresses for up to LOOK_MS_MAX, and change to
        a newer controller if one answers. Called if the present controller is unconfirmed, or a
        peer has reported a newer one, or, with `silent`, if it does not answer.

        After a silence the present address is asked too: only the connection may be broken, and a
        session must not end while it waits for a retransmission. All are asked at once, in a
        bounded time, so that dead addresses do not use up the session."""
        present = self._address
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_MS_MAX / 1000):
                addresses = [found for found in await self._candidates() if found != present]
                if silent and present is not None:
                    addresses.append(present)
                await self._take_first(heartbeat, addresses, present)

    async def _take_first(
        self,
        heartbeat: Heartbeat,
        addresses: list[ControllerAddress],
        present: ControllerAddress | None,
    ) -> None:
        """Send the heartbeat to all these addresses, and change to the first one that answers as a
        confirmed controller, if it has a higher epoch or is `present`. Close the other connections.
        If none is suitable, keep the present connection."""
        asked = [asyncio.ensure_future(self._ask(heartbeat, address)) for address in addresses]
        taken: ControlConnection | None = None
        try:
            for answered in asyncio.as_completed(asked):
                found = await answered
                if found is None:
                    continue
                connection, address, reply = found
                newer = reply.controller_epoch > self.highest_epoch or address == present
                if newer and not reply.unconfirmed and self._accepts(reply):
                    self.give_up(f"the controller at {address} has become the active one")
                    taken = connection
                    self._take(connection, address)
                    return
        finally:
            for task in asked:
                task.cancel()
            for left in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(left, tuple) and left[0] is not taken:
                    left[0].close(
                        "this broker looks for a newer controller, and this operator is not one"
                    )

    async def _ask(
        self, heartbeat: Heartbeat, address: ControllerAddress
    ) -> tuple[ControlConnection, ControllerAddress, control.CommandReply] | None:
        """Send the heartbeat over a new connection. Return the connection, the address and the
        reply, or None if there was no answer."""
        connection = await self._try(address)
        if connection is None:
            return None
        reply: control.CommandReply | None = None
        try:
            reply = await connection.command(self._envelope(heartbeat), CONNECT_MS_MAX)
        except (ConnectionError, TimeoutError, control.MalformedControlMessage):
            return None
        finally:
            if reply is None:
                connection.close("no answer")
        return connection, address, reply


def _backoffs() -> Iterator[int]:
    delay = BACKOFF_MS
    while True:
        yield delay
        delay = min(delay * 2, BACKOFF_MS_MAX)
