"""A broker's listeners for clients: which are open now, and which endpoints that makes.

The metadata says which there are to be; without any, the one of the broker's configuration.  They
are opened and closed while the broker runs, and after each change its endpoints are registered
anew, so that clients of a listener are told of the brokers where it is open.  A listener with TLS
opens once its certificate is there; those that are open look for a renewed one every few seconds.
What cannot be opened is tried again, and keeps no other listener from being open.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.server.client_memory_waits import ClientMemory
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import ClientCertificates, Server
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage, Endpoint
from plimsoll_core.security.client_certificates import TLS_LOGIN
from plimsoll_core.security.scram import SPEC_NAMES
from plimsoll_core.security.tokens import TOKEN_LOGINS
from plimsoll_net.shown_certificate import LOOK_S, ShownCertificate
from plimsoll_net.tls_policy import ClientTrust
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.listeners")

TLS_CONNECTIONS_MAX = 2000
"""Where a listener with TLS states none: each connection has buffers of its own for it."""
WHY_CHARACTERS_MAX = 200
LOGINS = frozenset({*SPEC_NAMES.values(), *TOKEN_LOGINS, TLS_LOGIN})
"""How clients can prove a user name here; a listener that asks for another way is not opened."""

Register = Callable[[tuple[Endpoint, ...]], Awaitable[bool]]
"""Commit these endpoints of the clients'; whether that was done."""


class ClientListeners:
    """`settle` brings them to what the image says, `run` does so for good."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatch: Dispatch,
        limits: ListenerLimits,
        memory: ClientMemory,
        quotas: Quotas | None = None,
        certificates: ClientCertificates | None = None,
    ) -> None:
        """`certificates`: judges those that clients show; None: a listener that asks for one is not
        opened."""
        self._config = config
        self._dispatch = dispatch
        self._limits = limits
        self._memory = memory
        self._quotas = quotas
        self._certificates = certificates
        # Whose certificates clients may show, as the newest image says.
        self._trusted: tuple[bytes, ...] = ()
        # Open now, by the name of the listener.
        self._open: dict[str, Server] = {}
        # What the newest image says.
        self._wanted: tuple[Listener, ...] = ()
        # Why a listener that is wanted is not open.
        self._unopened: dict[str, str] = {}
        # What was registered last.
        self._registered: tuple[Endpoint, ...] = (implicit_endpoint(config),)
        self._changed = asyncio.Event()

    @property
    def servers(self) -> Mapping[str, Server]:
        """Those that are open, by name as metrics show it."""
        implicit = {listener_peers.CLIENTS: "clients"}
        return {implicit.get(name, name): server for name, server in self._open.items()}

    @property
    def closed(self) -> dict[str, str]:
        """Why a listener that is wanted is not open, by its name; for people."""
        return {name: why[:WHY_CHARACTERS_MAX] for name, why in self._unopened.items()}

    @property
    def memory(self) -> ClientMemory:
        return self._memory

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Of those that are open, in the order of their names."""
        host = self._config.reachable.host
        return tuple(
            implicit_endpoint(self._config)
            if name == listener_peers.CLIENTS
            else Endpoint(name=name, host=host, port=server.port)
            for name, server in sorted(self._open.items())
        )

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """The metadata stream's callback."""
        if new.listeners != old.listeners or new.security.authorities != old.security.authorities:
            self._changed.set()

    async def run(self, image: Callable[[], ClusterImage], register: Register) -> None:
        """Until cancelled.  Raises the bug that a request met on the commit path."""
        while True:
            await set_within(self._changed, LOOK_S)
            self._changed.clear()
            for server in self._open.values():
                server.raise_failure()
                if server.certificate is not None:
                    server.certificate.look()
            await self.settle(image())
            await self.register(register)

    async def register(self, register: Register) -> None:
        """Have the endpoints committed, if they are others than were."""
        endpoints = self.endpoints
        if endpoints != self._registered and await register(endpoints):
            self._registered = endpoints

    async def settle(self, image: ClusterImage) -> None:
        """Close what is not wanted any more, open what is."""
        self._wanted = image.listeners or (listener_peers.IMPLICIT,)
        authorities = image.security.authorities
        self._trusted = tuple(der for one in authorities for der in one.certificates)
        wanted = {listener.name: listener for listener in self._wanted}
        for server in list(self._open.values()):
            await self._keep_or_close(server)
        for name, listener in wanted.items():
            if name not in self._open:
                self._say(name, await self._try_to_open(listener))
        for name in set(self._unopened) - set(wanted):
            del self._unopened[name]

    async def _keep_or_close(self, server: Server) -> None:
        """The same port, spoken to in the same way, stays open under whatever name."""
        name = server.listener.name
        for listener in self._wanted:
            if self._way_in(listener) == self._way_in(server.listener):
                if listener != server.listener:
                    self._give_up_name(server)
                    server.rename(listener, self._limits_of(listener))
                    self._open[listener.name] = server
                if server.certificate is not None and listener.tls_version_min is not None:
                    server.certificate.speak(
                        listener.name, listener.tls_version_min, self._clients_of(listener)
                    )
                return
        self._give_up_name(server)
        await server.stop()
        logger.info("listener %s is closed", name)

    def _give_up_name(self, server: Server) -> None:
        """Another may have it by now, where names are exchanged."""
        if self._open.get(server.listener.name) is server:
            del self._open[server.listener.name]

    def _way_in(self, listener: Listener) -> tuple[int, bool, tuple[str, ...]]:
        return self._port(listener), listener.tls, listener.authentication

    def _port(self, listener: Listener) -> int:
        if listener.name == listener_peers.CLIENTS:
            return self._config.listen.port
        return listener.port + self._config.port_shift

    def _limits_of(self, listener: Listener) -> ListenerLimits:
        number = self._limits.connections_max
        stated = min(number, TLS_CONNECTIONS_MAX) if listener.tls else number
        return replace(self._limits, connections_max=listener.connections_max or stated)

    def _clients_of(self, listener: Listener) -> ClientTrust | None:
        """None: they are not asked for certificates."""
        if TLS_LOGIN not in listener.authentication:
            return None
        return ClientTrust(self._trusted, required=listener.authentication == (TLS_LOGIN,))

    async def _try_to_open(self, listener: Listener) -> str:
        """Why it is not open; empty: it is."""
        asks = TLS_LOGIN in listener.authentication
        if not set(listener.authentication) <= LOGINS or (asks and self._certificates is None):
            return "this broker does not know how its clients would authenticate"
        certificate = None
        if listener.tls_version_min is not None:
            if self._config.certificates is None:
                return "this broker was started without a directory of certificates"
            directory = Path(self._config.certificates)
            certificate = ShownCertificate(
                directory, listener.name, listener.tls_version_min, self._clients_of(listener)
            )
            if not certificate.look():
                return certificate.error
        limits = self._limits_of(listener)
        server = Server(self._dispatch, limits, self._memory, listener, certificate, self._quotas)
        server.clients = self._certificates if asks else None
        try:
            await server.start(self._config.listen.host, self._port(listener))
        except OSError as error:
            if listener.name == listener_peers.CLIENTS:
                raise
            why = os.strerror(error.errno) if error.errno else str(error)  # asyncio's is longer
            return f"port {self._port(listener)} cannot be used: {why}"
        server.on_failure(self._changed.set)
        self._open[listener.name] = server
        if listener.name != listener_peers.CLIENTS:
            logger.info("listener %s is open on port %d", listener.name, server.port)
        return ""

    def _say(self, name: str, why: str) -> None:
        if not why:
            self._unopened.pop(name, None)
        elif self._unopened.get(name) != why:
            logger.warning("listener %s is not open: %s", name, why)
            self._unopened[name] = why

    async def stop(self) -> None:
        """No request is read or answered any more."""
        await asyncio.gather(*(server.stop() for server in self._open.values()))


def implicit_endpoint(config: BrokerConfig) -> Endpoint:
    """Of the one listener of a cluster that declares none."""
    reachable = config.reachable
    return Endpoint(name=listener_peers.CLIENTS, host=reachable.host, port=reachable.port)
