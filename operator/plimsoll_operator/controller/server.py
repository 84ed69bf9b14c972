"""The controllers' TCP server: frames in, requests to the right controller, replies out.

Brokers open two kinds of connections: commands (replies may overtake, each carries its correlation
id) and the metadata stream.  One server serves every cluster of the process; for a cluster it does
not lead it answers NOT_CONTROLLER.  It decides nothing.  Garbage closes the connection that sent
it and touches nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from itertools import count
from typing import cast
from uuid import UUID

from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages import (
    AllocateProducerIds,
    AlterPartition,
    Answer,
    Forwarded,
    Heartbeat,
    Refused,
    RegisterBroker,
    Registered,
)
from plimsoll_core.reasons import Reason
from plimsoll_core.stream_messages import FetchMetadata
from plimsoll_operator.controller.commit import refused
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.controller.sessions import Enrich, Evidence, Lifetime, Sessions
from plimsoll_operator.failures import HandlerFailures
from plimsoll_wire import control
from plimsoll_wire.framing import Framer, FrameTooLarge

logger = logging.getLogger("plimsoll.controller.server")

CONNECTIONS_MAX = 2_000
IN_FLIGHT_MAX = 256
"""Beyond it nothing more is read, heartbeats neither: no broker that keeps to its own bounds, and
to the next one, gets there."""
FORWARDED_MAX = 64
"""Clients' requests that one broker may have waiting here; further ones are refused."""
FIRST_FRAME_MS_MAX = 10_000
WRITE_BUFFER_BYTES_MAX = 64 * 1024 * 1024


class ControllerServer:
    """Owns the listener and its connections; controllers are added and removed by cluster."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._controllers: dict[UUID, tuple[Controller, Sessions]] = {}
        self.connections: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._accepted = count(1)
        self.failures = HandlerFailures()

    @property
    def port(self) -> int:
        assert self._server is not None, "started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def next_number(self) -> int:
        """Connections are numbered in the order in which they were accepted."""
        return next(self._accepted)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self._host, self._port)

    def add(
        self,
        controller: Controller,
        evidence: Evidence | None = None,
        enrich: Enrich | None = None,
    ) -> None:
        """Serve this controller's cluster from now on."""
        sessions = Sessions(controller, evidence, enrich)
        self._controllers[controller.cluster_id] = (controller, sessions)

    async def remove(self, cluster_id: UUID) -> None:
        """Brokers of the cluster hear NOT_CONTROLLER from now on."""
        found = self._controllers.pop(cluster_id, None)
        if found is not None:
            await found[1].close()

    def controller(self, cluster_id: UUID) -> Controller | None:
        found = self._controllers.get(cluster_id)
        return found[0] if found else None

    def sessions(self, cluster_id: UUID) -> Sessions | None:
        found = self._controllers.get(cluster_id)
        return found[1] if found else None

    async def close(self) -> None:
        """Stop the controllers before this: whoever closes sockets must not decide any more."""
        if self._server is not None:
            self._server.close()
        for cluster_id in list(self._controllers):
            await self.remove(cluster_id)
        for connection in list(self.connections):
            connection.close("the controller's server stops")
        if self._server is not None:
            await self._server.wait_closed()


class Connection(asyncio.Protocol):
    """One broker's connection.  Requests are decided in the order in which they arrive."""

    def __init__(self, server: ControllerServer) -> None:
        self._server = server
        self._number = server.next_number()
        self._framer = Framer(control.REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[asyncio.Future[None], str] = {}
        self._forwarded = 0
        self._lifetimes: dict[UUID, set[Lifetime]] = {}
        self._closed_by_us = False
        self._first_frame: asyncio.TimerHandle | None = None
        self._reading = True
        self._handling = "Frame"

    # --- asyncio's calls ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections[self] = None
        if len(self._server.connections) > CONNECTIONS_MAX:
            self.close("too many connections")
            return
        loop = asyncio.get_running_loop()
        self._first_frame = loop.call_later(
            FIRST_FRAME_MS_MAX / 1000, self.close, "no whole request came"
        )

    def data_received(self, data: bytes) -> None:
        try:
            self._framer.receive(data)
            while not self._closed_by_us and (frame := self._framer.next_frame()) is not None:
                self._dispatch(control.decode_request(frame))
        except (control.MalformedControlMessage, FrameTooLarge) as error:
            self.close(f"not a control message: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, only this connection pays
            self._broke(self._handling, error)

    def _broke(self, kind: str, error: BaseException) -> None:
        """A bug of ours.  One in a decision has ended the controller's term as well."""
        self._server.failures.met(kind, error)
        self.close("a request failed here")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        if self._first_frame is not None:
            self._first_frame.cancel()
        for task in self._tasks:
            task.cancel()
        for cluster_id, lifetimes in self._lifetimes.items():
            sessions = self._server.sessions(cluster_id)
            if sessions is not None:
                sessions.lost(self, lifetimes, by_peer=not self._closed_by_us)

    def close(self, why: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            logger.info("closing %s: %s", self._transport.get_extra_info("peername"), why)
            self._closed_by_us = True
            self._transport.abort()

    # --- requests -------------------------------------------------------------------------------

    def _dispatch(self, request: control.ControlRequest) -> None:
        if self._first_frame is not None:
            self._first_frame.cancel()
            self._first_frame = None
        body = request.body
        self._handling = _kind(body)
        work: asyncio.Future[None]
        if isinstance(body, FetchMetadata):
            work = asyncio.ensure_future(self._stream(request.correlation_id, body))
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
            text = f"No controller of cluster {command.cluster_id} runs here."
            self._reply(correlation_id, None, refused(Reason.NotController, text))
            return _finished_future()
        sessions = self._server.sessions(command.cluster_id)
        if isinstance(command.request, RegisterBroker) and sessions and sessions.enrich:
            found = sessions.enrich(command.request)
            return asyncio.ensure_future(self._enriched(correlation_id, controller, command, found))
        if sessions is not None and not self._may_propose(sessions, command.request):
            self.close("its broker has a newer connection")
            return _finished_future()
        forwarded = isinstance(command.request, Forwarded)
        if forwarded and self._forwarded >= FORWARDED_MAX:
            text = f"{FORWARDED_MAX} requests of clients wait for the controller. Ask again later."
            self._reply(correlation_id, controller, refused(Reason.TooManyWaiting, text))
            return _finished_future()
        # Decided here and now, in arrival order; only the answer waits.
        answer = controller.submit(command.request)
        self._note(command)
        work = asyncio.ensure_future(self._answer(correlation_id, controller, command, answer))
        if forwarded:
            self._forwarded += 1
            work.add_done_callback(self._forwarded_one)
        return work

    def _forwarded_one(self, _: asyncio.Future[None]) -> None:
        self._forwarded -= 1

    def _may_propose(self, sessions: Sessions, request: control.BrokerRequest) -> bool:
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
        """A registration that somebody adds to first.  A broker sends nothing else meanwhile.

        When its connection goes, this is cancelled: an earlier process never registers late.
        """
        request = await found
        if isinstance(request, Refused):
            self._reply(correlation_id, controller, request)
        else:
            answer = controller.submit(request)
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
            self._speaks_for(command.cluster_id, (command.request.broker_id, answer.broker_epoch))
        self._reply(correlation_id, controller, answer)

    def _note(self, command: control.Command) -> None:
        request = command.request
        if isinstance(request, Heartbeat | AlterPartition | AllocateProducerIds):
            self._speaks_for(command.cluster_id, (request.broker_id, request.broker_epoch))

    def _speaks_for(self, cluster_id: UUID, lifetime: Lifetime) -> None:
        known = self._lifetimes.setdefault(cluster_id, set())
        sessions = self._server.sessions(cluster_id)
        if lifetime in known or sessions is None:
            return
        known.add(lifetime)
        if self._transport is None or self._transport.is_closing():
            sessions.lost(self, {lifetime}, by_peer=not self._closed_by_us)
        else:
            sessions.heard(self, lifetime)

    async def _stream(self, correlation_id: int, fetch: FetchMetadata) -> None:
        controller = self._server.controller(fetch.cluster_id)
        if controller is None:
            text = f"No controller of cluster {fetch.cluster_id} runs here."
            refusal = refused(Reason.NotController, text)
            self._send(correlation_id, _no_update(ControllerEpoch(0), refusal))
            return
        update = await controller.fetch_metadata(fetch)
        if isinstance(update, Refused):
            self._send(correlation_id, _no_update(controller.epoch, update))
        else:
            reply = control.MetadataReply(controller_epoch=controller.epoch, update=update)
            self._send(correlation_id, reply)

    def _reply(self, correlation_id: int, controller: Controller | None, answer: Answer) -> None:
        reply = control.CommandReply(
            controller_epoch=controller.epoch if controller else ControllerEpoch(0),
            unconfirmed=controller.unconfirmed if controller else False,
            answer=answer,
            metadata_end=controller.image.next_offset if controller else MetadataOffset(0),
            session_timeout_ms=controller.settings.session_timeout_ms if controller else 0,
        )
        self._send(correlation_id, reply)

    def _send(
        self, correlation_id: int, body: control.CommandReply | control.MetadataReply
    ) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX:
            self.close("the broker does not read its replies")
            return
        self._transport.write(control.encode_reply(correlation_id, body))


def _kind(body: control.Command | FetchMetadata) -> str:
    request = body if isinstance(body, FetchMetadata) else body.request
    return type(request).__name__


def _no_update(epoch: ControllerEpoch, refusal: Refused) -> control.MetadataReply:
    return control.MetadataReply(controller_epoch=epoch, refused=refusal)


def _finished_future() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
