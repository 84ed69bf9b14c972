"""ClientListeners: opens and closes a broker's listeners for clients while the broker runs, and
registers their endpoints.

The metadata declare the listeners; without any, the broker's configuration has one. After each
change the endpoints are registered anew, so that a listener's clients are told of the brokers on
which the listener is open. A TLS listener opens once its certificate is there; open ones look for a
renewed certificate every few seconds. A listener that cannot be opened is tried again, and does not
affect others.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from plimsoll_broker.config import BrokerConfig
from plimsoll_broker.server.client_memory import ClientMemory
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener, ClientCertificates
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
"""The most connections of a TLS listener that declares no limit. Each TLS connection has
buffers of its own."""
CONNECTIONS_MIN = 64
HALF_OPEN_MIN = 16
_HALF_OPEN_PART = 8
WHY_CHARACTERS_MAX = 200
LOGINS = frozenset({*SPEC_NAMES.values(), *TOKEN_LOGINS, TLS_LOGIN})
"""The supported authentication mechanisms. A listener that requires another one is not opened."""

Register = Callable[[tuple[Endpoint, ...]], Awaitable[bool]]
"""Has the controller commit these client endpoints; returns True once they are committed."""


def connections_room(files: int | None) -> int | None:
    """Return the number of client connections of all listeners together: three eighths of the
    descriptors `files` that the process may have, so that logs have half and everything else an
    eighth. None if there is no limit."""
    return None if files is None else max(3 * files // 8, CONNECTIONS_MIN)


class ClientListeners:
    """Opens and closes a broker's listeners for clients as the metadata declare, and registers
    their endpoints. `settle` does it once; the task `run` repeats it."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatch: Dispatch,
        limits: ListenerLimits,
        memory: ClientMemory,
        quotas: Quotas | None = None,
        certificates: ClientCertificates | None = None,
    ) -> None:
        """Take the parts that each listener gets. `certificates`: checks clients' certificates;
        None if no listener may ask for them."""
        self._config = config
        self._dispatch = dispatch
        self._limits = limits
        self._memory = memory
        self._quotas = quotas
        self._certificates = certificates
        self.thread_waited_ms: Callable[[], int] = lambda: 0
        """Returns the time in ms for which the event loop's thread has waited for a processor. The
        owner of the process replaces this function before the listeners are opened."""
        # CA certificates of the newest image, for clients' certificates.
        self._trusted: tuple[bytes, ...] = ()
        # Open listeners, by name.
        self._open: dict[str, BrokerListener] = {}
        # The listeners of the newest image.
        self._wanted: tuple[Listener, ...] = ()
        # Why a wanted listener is not open, by name.
        self._unopened: dict[str, str] = {}
        # The endpoints that were registered last.
        self._registered: tuple[Endpoint, ...] = (implicit_endpoint(config),)
        self._changed = asyncio.Event()

    @property
    def servers(self) -> Mapping[str, BrokerListener]:
        """The open listeners, by their names in metrics."""
        implicit = {listener_peers.CLIENTS: "clients"}
        return {implicit.get(name, name): server for name, server in self._open.items()}

    @property
    def closed(self) -> dict[str, str]:
        """For each listener that should be open and is not, by name: the reason. The texts are
        shortened for status reports."""
        return {name: why[:WHY_CHARACTERS_MAX] for name, why in self._unopened.items()}

    @property
    def memory(self) -> ClientMemory:
        return self._memory

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the open listeners, in the order of the listeners' names. An external
        listener is left out while the metadata have no address for this broker."""
        found = (self._endpoint(name, server) for name, server in sorted(self._open.items()))
        return tuple(endpoint for endpoint in found if endpoint is not None)

    def _endpoint(self, name: str, server: BrokerListener) -> Endpoint | None:
        """Return the endpoint that clients of this open listener are told. Return None for an
        external listener while the metadata have no address for this broker."""
        if name == listener_peers.CLIENTS:
            return implicit_endpoint(self._config)
        if not server.listener.external:
            return Endpoint(name=name, host=self._config.reachable.host, port=server.port)
        told = server.listener.advertised_of(self._config.id)
        return None if told is None else Endpoint(name=name, host=told.host, port=told.port)

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Wake the task if the declared listeners or the trusted CAs differ between the two images.
        Subscribed to the metadata stream."""
        if new.listeners != old.listeners or new.security.authorities != old.security.authorities:
            self._changed.set()

    async def run(self, image: Callable[[], ClusterImage], register: Register) -> None:
        """Open and close listeners, and look for renewed certificates, every LOOK_S seconds and
        after changes. Run until cancelled. Raise the bug that a request met on the commit path."""
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
        """Have the controller commit the endpoints of the open listeners, if they differ from those
        that it committed last. If that fails, the next call tries again."""
        endpoints = self.endpoints
        if endpoints != self._registered and await register(endpoints):
            self._registered = endpoints

    async def settle(self, image: ClusterImage) -> None:
        """Close the listeners that the image does not declare, and try to open those that it
        declares and that are not open. A listener that cannot be opened is recorded in `closed`."""
        self._wanted = image.listeners or (listener_peers.IMPLICIT,)
        authorities = image.security.authorities
        self._trusted = tuple(der for one in authorities for der in one.certificates)
        wanted = {listener.name: listener for listener in self._wanted}
        for server in list(self._open.values()):
            await self._keep_or_close(server)
        for name, listener in wanted.items():
            if name not in self._open:
                self._say(name, await self._try_to_open(listener))
        for server in self._open.values():
            self._bound(server)
        for name in set(self._unopened) - set(wanted):
            del self._unopened[name]

    async def _keep_or_close(self, server: BrokerListener) -> None:
        """Keep the listener open if one with the same port, TLS and authentication is declared, and
        apply its name, limits and TLS settings. Otherwise stop it, with its connections."""
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
        logger.info(
            "this broker closed its listener %s with all connections, because the LogCluster "
            "no longer has that listener or has changed its port, TLS or authentication",
            name,
        )

    def _give_up_name(self, server: BrokerListener) -> None:
        """Remove the listener from the open ones under its present name, unless another listener
        has that name by now: two listeners may exchange their names."""
        if self._open.get(server.listener.name) is server:
            del self._open[server.listener.name]

    def _way_in(self, listener: Listener) -> tuple[int, bool, tuple[str, ...]]:
        """Return the port, use of TLS and authentication of a declared listener. An open listener
        may serve another declaration that agrees in these."""
        return self._port(listener), listener.tls, listener.authentication

    def _port(self, listener: Listener) -> int:
        if listener.name == listener_peers.CLIENTS:
            return self._config.listen.port
        return listener.port + self._config.port_shift

    def _limits_of(self, listener: Listener) -> ListenerLimits:
        """Return the limits of one of the wanted listeners. If all together ask for more
        connections than there is room for, those that ask for least are served first."""
        asked = sorted((self._asked_by(one), one.name) for one in self._wanted)
        left = connections_room(self._config.open_files_max)
        for others, (number, name) in zip(range(len(asked), 0, -1), asked, strict=True):
            given = number if left is None else min(number, left // others)
            if name == listener.name:
                return replace(self._limits, connections_max=given)
            left = None if left is None else left - given
        raise AssertionError(f"{listener.name} is wanted")

    def _asked_by(self, listener: Listener) -> int:
        number = self._limits.connections_max
        stated = min(number, TLS_CONNECTIONS_MAX) if listener.tls else number
        return listener.connections_max or stated

    def _bound(self, server: BrokerListener) -> None:
        """Apply the limits that depend on the other listeners: of connections, and of handshakes,
        which have an eighth of the room beside the connections."""
        limits = self._limits_of(server.listener)
        if limits != server.limits:
            server.rename(server.listener, limits)
        room = connections_room(self._config.open_files_max)
        if room is not None and server.handshakes is not None:
            shared = sum(listener.tls for listener in self._wanted)
            server.handshakes.limit(max(room // _HALF_OPEN_PART // shared, HALF_OPEN_MIN))

    def _clients_of(self, listener: Listener) -> ClientTrust | None:
        """Return the CAs that this listener trusts for clients' certificates. Return None if it
        does not ask for certificates."""
        if TLS_LOGIN not in listener.authentication:
            return None
        return ClientTrust(self._trusted, required=listener.authentication == (TLS_LOGIN,))

    async def _try_to_open(self, listener: Listener) -> str:
        """Open the listener, and return an empty string. If it cannot be opened now, return the
        reason; but raise OSError if the implicit listener's port cannot be used."""
        asks = TLS_LOGIN in listener.authentication
        if not set(listener.authentication) <= LOGINS or (asks and self._certificates is None):
            return (
                "this broker's release does not support the listener's authentication; run a "
                "newer release"
            )
        certificate = None
        if listener.tls_version_min is not None:
            if self._config.certificates is None:
                return (
                    "the listener needs a certificate, but this broker was started without a "
                    "directory of certificates"
                )
            directory = Path(self._config.certificates)
            certificate = ShownCertificate(
                directory, listener.name, listener.tls_version_min, self._clients_of(listener)
            )
            if not certificate.look():
                return certificate.error
        limits = self._limits_of(listener)
        server = BrokerListener(
            self._dispatch, limits, self._memory, listener, certificate, self._quotas
        )
        server.clients = self._certificates if asks else None
        server.slices.thread_waited_ms = self.thread_waited_ms
        try:
            await server.start(self._config.listen.host, self._port(listener))
        except OSError as error:
            if listener.name == listener_peers.CLIENTS:
                raise
            why = (
                os.strerror(error.errno) if error.errno else str(error)
            )  # asyncio's message is longer
            return f"the listener's port {self._port(listener)} cannot be used: {why}"
        server.on_failure(self._changed.set)
        self._open[listener.name] = server
        if listener.name != listener_peers.CLIENTS:
            logger.info("listener %s of this broker is open on port %d", listener.name, server.port)
        return ""

    def _say(self, name: str, why: str) -> None:
        """Record `why` the listener with this name is not open, and log a reason that has changed.
        An empty reason means that it is open, and removes an earlier one."""
        if not why:
            self._unopened.pop(name, None)
        elif self._unopened.get(name) != why:
            logger.warning(
                "this broker cannot open listener %s and tries again; until then no client "
                "can connect to it: %s",
                name,
                why,
            )
            self._unopened[name] = why

    async def stop(self) -> None:
        """Stop all listeners: no more requests are read or answered."""
        await asyncio.gather(*(server.stop() for server in self._open.values()))


def implicit_endpoint(config: BrokerConfig) -> Endpoint:
    """Return the endpoint of the one listener that a broker has if the metadata declare none."""
    reachable = config.reachable
    return Endpoint(name=listener_peers.CLIENTS, host=reachable.host, port=reachable.port)
