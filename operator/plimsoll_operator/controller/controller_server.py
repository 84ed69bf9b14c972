"""The controllers' TCP server: decodes requests, passes each to the controller of its cluster, and
sends the replies.

Brokers open two kinds of connections: for commands, where replies may overtake one another and each
carries its correlation id, and for the metadata stream. One server serves every cluster of the
process; a request for a cluster that the process does not lead is answered NOT_CONTROLLER. The
server decides nothing. An invalid frame closes only the connection that sent it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import cast
from uuid import UUID

from plimsoll_core.addresses import host_and_port, to_listen
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.errors import Reason
from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_core.messages.metadata_copy import CopyWanted, OfferMetadataCopy
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    AlterPartition,
    Answer,
    BrokerRequest,
    Forwarded,
    Refused,
    RegisterBroker,
    Registered,
)
from plimsoll_core.security.inside import Peer
from plimsoll_net.tls_connection import INSIDE_PEER
from plimsoll_operator.control_failures import ControlFailures
from plimsoll_operator.controller.broker_sessions import BrokerSessions, Enrich, Evidence, Lifetime
from plimsoll_operator.controller.connection_identity import (
    STRANGER_MS_MAX,
    ConnectionIdentity,
    Strangers,
)
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.controller.forwarded_requests import ForwardedRequests
from plimsoll_operator.controller.inside_server import InsideServer
from plimsoll_operator.controller.refusals import refused
from plimsoll_process.log_lines import LineLimit
from plimsoll_wire import control
from plimsoll_wire.control import CommandReply
from plimsoll_wire.framing import Framer, FrameTooLarge

logger = logging.getLogger("plimsoll.controller_server")

CONNECTIONS_MAX = 2_000
IN_FLIGHT_MAX = 256
"""Maximum unanswered requests of one connection. At that number the server stops reading from the
connection, heartbeats included, until fewer than half remain. A broker that keeps its own limits
never reaches it."""
FIRST_FRAME_MS_MAX = 10_000
SHOWN_MS_MAX = 3_000
"""How long a client's request waits for the heartbeat that identifies its connection, in
milliseconds; a broker sends a heartbeat every second."""
REGISTRATION_BYTES_MAX = 64 * 1024
"""Maximum size of a registration, which is committed as received."""
WRITE_BUFFER_BYTES_MAX = 64 * 1024 * 1024


def command_reply(controller: Controller | None, answer: Answer) -> CommandReply:
    """Return the reply that carries `answer`, with the controller's epoch, its end of the metadata
    log and its settings. If `controller` is None (this process runs none for the broker's cluster),
    the epoch is 0 and the rest is left out."""
    if controller is None:
        return CommandReply(controller_epoch=ControllerEpoch(0), answer=answer)
    return CommandReply(
        controller_epoch=controller.epoch,
        unconfirmed=controller.unconfirmed,
        answer=answer,
        metadata_end=controller.image.next_offset,
        session_timeout_ms=controller.settings.session_timeout_ms,
        log_output=controller.settings.log_output,
        topic_defaults=_topic_defaults(controller.settings),
        drill=controller.drill_orders.live,
    )


def _topic_defaults(settings: Settings) -> TopicDefaults:
    return TopicDefaults(
        partitions=settings.default_partitions,
        replication_factor=settings.default_replication_factor,
        min_isr=settings.default_min_isr,
    )


ONE_AT_A_TIME = (RegisterBroker.__name__, FetchMetadata.__name__, OfferMetadataCopy.__name__)
"""Kinds of requests of which one connection may have only one unanswered; a second one closes the
connection."""


def kind_of(body: control.RequestBody) -> str:
    request = body.request if isinstance(body, control.Command) else body
    return type(request).__name__


def no_update(epoch: ControllerEpoch, refusal: Refused) -> control.MetadataReply:
    return control.MetadataReply(controller_epoch=epoch, refused=refusal)


def finished_future() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


def not_here(cluster_id: UUID) -> Refused:
    return refused(
        Reason.NotController,
        f"This operator process runs no controller of cluster {cluster_id}; ask another operator.",
    )


class ClosedConnections:
    """Logs each connection that the server closes, at most one line a second: any peer that reaches
    the port may cause any number of them."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = time.monotonic if now_s is None else now_s
        self._limit = LineLimit()

    def tell(self, peer: object, why: str) -> None:
        more = self._limit.due(self._now_s())
        if more is not None:
            where = host_and_port(*peer[:2]) if isinstance(peer, tuple) else "(unknown)"
            text = (
                "the controller closed the connection of the peer at %s, which connects again by "
                "itself if it is a broker: %s%s"
            )
            logger.info(text, where, why, more)


class ControllerServer:
    """TCP server of the controllers' port. It owns the listener and the connections. Controllers
    are added and removed by their cluster's id."""

    def __init__(self, host: str, port: int, inside: InsideServer | None = None) -> None:
        """Create the server. `inside`: the TLS identities to present and the peers to accept; None:
        connections without TLS."""
        self._host = host
        self.inside = inside
        self._port = port
        self._controllers: dict[UUID, tuple[Controller, BrokerSessions]] = {}
        self.connections: dict[ServerConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._accepted = count(1)
        self.strangers = Strangers()
        self.closed = ClosedConnections()
        self.failures = ControlFailures()

    @property
    def port(self) -> int:
        assert self._server is not None, "started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def next_number(self) -> int:
        return next(self._accepted)

    async def start(self) -> None:
        loop, host, port = asyncio.get_running_loop(), self._host, self._port
        made = partial(ServerConnection, self)
        factory = made if self.inside is None else self.inside.asking_first(made)
        self._server = await loop.create_server(factory, to_listen(host), port)

    def add(
        self,
        controller: Controller,
        evidence: Evidence | None = None,
        enrich: Enrich | None = None,
    ) -> None:
        """Pass requests for this controller's cluster to it from now on. `evidence`: reads a
        broker's pod for a proof of death; None: only the refused port is proof. `enrich`: completes
        registrations; None: they are decided as received."""
        sessions = BrokerSessions(controller, evidence, enrich)
        if self.inside is not None:
            self.inside.committed[controller.cluster_id] = lambda: controller.image.inside
        self._controllers[controller.cluster_id] = (controller, sessions)

    async def remove(self, cluster_id: UUID) -> None:
        """Stop serving the cluster, and cancel the probes of its brokers. Open connections stay;
        their requests are answered NOT_CONTROLLER from now on. Does nothing for an unknown
        cluster."""
        found = self._controllers.pop(cluster_id, None)
        if self.inside is not None:
            self.inside.forget(cluster_id)
        if found is not None:
            await found[1].close()

    def controller(self, cluster_id: UUID) -> Controller | None:
        found = self._controllers.get(cluster_id)
        return found[0] if found else None

    def sessions(self, cluster_id: UUID) -> BrokerSessions | None:
        found = self._controllers.get(cluster_id)
        return found[1] if found else None

    async def close(self) -> None:
        """Close the listener and all connections. The controllers must have been stopped before, so
        that none decides once its connections are closed."""
        if self._server is not None:
            self._server.close()
        if self.inside is not None:
            self.inside.close()
        for cluster_id in list(self._controllers):
            await self.remove(cluster_id)
        for connection in list(self.connections):
            connection.close("the operator is stopping")
        if self._server is not None:
            await self._server.wait_closed()


class ServerConnection(asyncio.Protocol):
    """One connection to the controllers' port. Reads requests, passes them to the controller in the
    order of arrival, and writes the replies as they become ready."""

    def __init__(self, server: ControllerServer) -> None:
        self._server = server
        self._number = server.next_number()
        self._framer = Framer(control.REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[asyncio.Future[None], str] = {}
        self._forwarded = ForwardedRequests()
        self._identity = ConnectionIdentity()
        self._lifetimes: set[Lifetime] = set()
        self._shown = asyncio.Event()
        self._peer: Peer | None = None
        self._closed_by_us = False
        self._silent = True
        self._patience: asyncio.TimerHandle | None = None
        self._reading = True
        self._unread = 0
        self._stranger_until = asyncio.get_running_loop().time() + STRANGER_MS_MAX / 1000
        self._handling = "Frame"

    # --- asyncio's calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport; they only behave like it.
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections[self] = None
        self._peer = transport.get_extra_info(INSIDE_PEER)
        if self._peer is not None:
            self._identity.is_known(self._peer.cluster_id, self._peer.broker_id)
        if len(self._server.connections) > CONNECTIONS_MAX:
            self.close(
                f"the controller has {CONNECTIONS_MAX} connections, the most that it accepts"
            )
            return
        self._server.strangers.came(self)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(FIRST_FRAME_MS_MAX / 1000, self._out_of_patience)

    def _out_of_patience(self) -> None:
        """Close the connection if it has sent no complete request within `FIRST_FRAME_MS_MAX`, or
        is not identified as a registered broker's after `STRANGER_MS_MAX` and no request of it is
        in progress. Otherwise run again `FIRST_FRAME_MS_MAX` later. Called by a timer."""
        if self._silent:
            self.close(f"the peer sent no complete request within {FIRST_FRAME_MS_MAX // 1000} s")
        elif self._tasks or asyncio.get_running_loop().time() < self._stranger_until:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(FIRST_FRAME_MS_MAX / 1000, self._out_of_patience)
        else:
            self.close(
                "the peer did not identify itself as a registered broker within "
                f"{STRANGER_MS_MAX // 1000} s"
            )

    def data_received(self, data: bytes) -> None:
        try:
            self._framer.receive(data)
            self._unread += len(data)
            while not self._closed_by_us and (frame := self._framer.next_frame()) is not None:
                self._unread = 0
                self._dispatch(control.decode_request(frame), len(frame))
            if not self._server.strangers.holds(self, self._unread):
                self.close(
                    "connections of unknown brokers hold too many bytes of incomplete requests"
                )
        except (control.MalformedControlMessage, FrameTooLarge) as error:
            self.close(f"the peer sent no valid request to the controller: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, only this connection pays
            self._broke(self._handling, error)

    def _broke(self, kind: str, error: BaseException) -> None:
        """Report a bug in handling a request of this `kind`, and close the connection. A bug in a
        decision has already ended the controller's term."""
        self._server.failures.met(kind, error)
        self.close(
            "the operator met an internal error while it handled a request of the peer; the error "
            "is in the operator's log, please report it"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._no_stranger()
        for task in self._tasks:
            task.cancel()
        cluster_id = self._identity.cluster_id
        sessions = None if cluster_id is None else self._server.sessions(cluster_id)
        if sessions is not None:
            sessions.lost(self, self._lifetimes, by_peer=not self._closed_by_us)

    def close(self, why: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._server.closed.tell(self._transport.get_extra_info("peername"), why)
            self._closed_by_us = True
            self._transport.abort()

    # --- requests -------------------------------------------------------------------------------

    def _no_stranger(self) -> None:
        """Stop counting the connection as a stranger: its broker is known, or it is closed.
        Requests that waited for this continue."""
        self._server.strangers.left(self)
        self._shown.set()
        if self._patience is not None:
            self._patience.cancel()

    def _dispatch(self, request: control.ControlRequest, size: int) -> None:
        self._silent = False
        body = request.body
        self._handling = kind = kind_of(body)
        # An answered request may not be `_finished` yet when the broker sends the next.
        waiting = (of for work, of in self._tasks.items() if not work.done())
        if kind in ONE_AT_A_TIME and kind in waiting:
            self.close(f"the peer sent a second request {kind} before the first was answered")
            return
        if kind == RegisterBroker.__name__ and size > REGISTRATION_BYTES_MAX:
            self.close(
                f"the peer sent the registration of a broker with {size} bytes; at most "
                f"{REGISTRATION_BYTES_MAX} are accepted"
            )
            return
        work: asyncio.Future[None]
        if isinstance(body, FetchMetadata):
            work = asyncio.ensure_future(self._stream(request.correlation_id, body))
        elif isinstance(body, OfferMetadataCopy):
            work = asyncio.ensure_future(self._offer(request.correlation_id, body))
        else:
            work = self._command(request.correlation_id, body)
        self._tasks[work] = self._handling
        work.add_done_callback(self._finished)
        if self._reading and len(self._tasks) >= IN_FLIGHT_MAX and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _finished(self, work: asyncio.Future[None]) -> None:
        kind = self._tasks.pop(work, "Frame")
        if work.cancelled():
            return
        if (error := work.exception()) is not None:
            self._broke(kind, error)
        elif not self._reading and len(self._tasks) < IN_FLIGHT_MAX // 2:
            self._reading = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def _command(self, correlation_id: int, command: control.Command) -> asyncio.Future[None]:
        controller = self._server.controller(command.cluster_id)
        if controller is None:
            self._reply(correlation_id, None, not_here(command.cluster_id))
            return finished_future()
        if self._turned_away(controller):
            return finished_future()
        if (refusal := self._refused_first(command, controller)) is not None:
            self._reply(correlation_id, controller, refusal)
            return finished_future()
        sessions = self._server.sessions(command.cluster_id)
        if isinstance(command.request, RegisterBroker) and sessions and sessions.enrich:
            found = sessions.enrich(command.request)
            return asyncio.ensure_future(self._enriched(correlation_id, controller, command, found))
        if sessions is not None and not self._may_propose(sessions, command.request):
            self.close("a newer connection of the same broker has replaced this one")
            return finished_future()
        if (refusal := _of_another_term(command, controller)) is not None:
            self._reply(correlation_id, controller, refusal)
            return finished_future()
        forwarded = command.request if isinstance(command.request, Forwarded) else None
        if forwarded and (refusal := self._forwarded.refusal(forwarded)):
            self._reply(correlation_id, controller, refusal)
            return finished_future()
        if forwarded and not self._identity.shown:
            work = asyncio.ensure_future(self._once_shown(correlation_id, controller, command))
        else:
            # Decide at once, in order of arrival; only the answer waits.
            answer = controller.submit(command.request)
            self._note()
            work = asyncio.ensure_future(self._answer(correlation_id, controller, command, answer))
        if forwarded:
            self._forwarded.begun(forwarded, work)
        return work

    def _refused_first(self, command: control.Command, controller: Controller) -> Refused | None:
        """Return the refusal of a command that another broker sent over this connection, or that
        meets a metadata log which is being restored; None for any other."""
        refusal = self._identity.hear(command.cluster_id, command.request, controller.image)
        if refusal is None and controller.restores:
            return controller.hear_restoring(command.request, command.controller_epoch)
        return refusal

    def _may_propose(self, sessions: BrokerSessions, request: BrokerRequest) -> bool:
        if not isinstance(request, AlterPartition):
            return True
        return sessions.may_propose(self._number, (request.broker_id, request.broker_epoch))

    async def _enriched(
        self,
        correlation_id: int,
        controller: Controller,
        command: control.Command,
        found: Awaitable[RegisterBroker | Refused],
    ) -> None:
        """Await `found`, the result of the enrich hook. Submit the completed registration and send
        its answer, or send the hook's refusal.

        The broker sends nothing else meanwhile. The loss of the connection cancels this, so a
        broker process that has ended never registers late.
        """
        request = await found
        if isinstance(request, Refused):
            self._reply(correlation_id, controller, request)
        else:
            answer = controller.submit(request)
            await self._answer(correlation_id, controller, command, answer)

    async def _once_shown(
        self, correlation_id: int, controller: Controller, command: control.Command
    ) -> None:
        """Submit a forwarded client request once the connection is identified as a registered
        broker's. Refuse it after `SHOWN_MS_MAX`."""
        try:
            async with asyncio.timeout(SHOWN_MS_MAX / 1000):
                await self._shown.wait()
        except TimeoutError:
            text = (
                "The client's request was not forwarded: the broker that sent it is not "
                "registered with the controller. The broker registers by itself; retry."
            )
            self._reply(correlation_id, controller, refused(Reason.BrokerIdNotRegistered, text))
            return
        answer = controller.submit(command.request)
        await self._answer(correlation_id, controller, command, answer)

    async def _answer(
        self,
        correlation_id: int,
        controller: Controller,
        command: control.Command,
        future: asyncio.Future[Answer],
    ) -> None:
        answer = await future
        if isinstance(answer, Registered) and isinstance(command.request, RegisterBroker):
            self._identity.registered(answer.broker_epoch)
            self._note()
        self._reply(correlation_id, controller, answer)

    def _note(self) -> None:
        """Report the connection to `BrokerSessions` under its broker epoch, once that is known.
        Does nothing if it is reported already."""
        identity = self._identity
        if identity.broker_id is None or identity.broker_epoch is None:
            return
        assert identity.cluster_id is not None, "known with the broker's id"
        lifetime = identity.broker_id, identity.broker_epoch
        sessions = self._server.sessions(identity.cluster_id)
        if lifetime in self._lifetimes or sessions is None:
            return
        self._no_stranger()
        self._lifetimes.add(lifetime)
        if self._transport is None or self._transport.is_closing():
            sessions.lost(self, {lifetime}, by_peer=not self._closed_by_us)
        else:
            sessions.heard(self, lifetime)

    async def _stream(self, correlation_id: int, fetch: FetchMetadata) -> None:
        controller = self._server.controller(fetch.cluster_id)
        if controller is None:
            refusal = not_here(fetch.cluster_id)
            self._send(correlation_id, no_update(ControllerEpoch(0), refusal))
            return
        if self._turned_away(controller):
            return
        unknown = self._identity.hear_stream(fetch, controller.image)
        if unknown is not None:
            self._send(correlation_id, no_update(controller.epoch, unknown))
            return
        self._no_stranger()
        update = await controller.fetch_metadata(fetch)
        if isinstance(update, Refused):
            self._send(correlation_id, no_update(controller.epoch, update))
        else:
            reply = control.MetadataReply(controller_epoch=controller.epoch, update=update)
            self._send(correlation_id, reply)

    async def _offer(self, correlation_id: int, offer: OfferMetadataCopy) -> None:
        """Pass a broker's offer of its copy of the metadata to the controller, and send what it
        wants of it: nothing unless it restores its metadata log."""
        controller = self._server.controller(offer.cluster_id)
        wanted = CopyWanted()
        if controller is not None:
            if self._turned_away(controller):
                return
            if self._identity.hear_offer(offer):
                wanted = await controller.offered(offer)
        self._send(correlation_id, wanted)

    def _turned_away(self, controller: Controller) -> bool:
        """Close the connection and return True if the cluster's committed TLS mode refuses the
        peer's certificate, or a peer without one. Return False otherwise."""
        inside = self._server.inside
        reason = "" if inside is None else inside.refuses_now(controller.cluster_id, self._peer)
        if reason:
            self.close(f"the controller rejected the peer's certificate: {reason}")
        return bool(reason)

    def _reply(self, correlation_id: int, controller: Controller | None, answer: Answer) -> None:
        self._send(correlation_id, command_reply(controller, answer))

    def _send(self, correlation_id: int, body: control.ReplyBody) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX:
            self.close(
                "the peer did not read the controller's replies: more than "
                f"{WRITE_BUFFER_BYTES_MAX} bytes of them waited to be sent"
            )
            return
        self._transport.write(control.encode_reply(correlation_id, body))


def _of_another_term(command: control.Command, controller: Controller) -> Refused | None:
    """Return a refusal if the request is an ISR proposal that was addressed to another controller
    epoch, else None. The broker then sends the proposal again, to this term. Otherwise a copy
    delayed over several failovers could be committed after its leader had learned from a later term
    that the proposal is not applied (docs/protocol.md 4.6)."""
    if not isinstance(command.request, AlterPartition):
        return None
    if command.controller_epoch == controller.epoch:
        return None
    text = (
        "The proposed ISR changes are refused: they were sent to controller epoch "
        f"{command.controller_epoch}, and this controller has epoch {controller.epoch}. The "
        "broker sends them again by itself."
    )
    return refused(Reason.StaleControllerEpoch, text)
