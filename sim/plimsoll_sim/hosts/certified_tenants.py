"""Clients that log in by a certificate: the newest that they have, an earlier one, a forged one, or
none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from plimsoll_operator.pki.authority import KeyPair
from plimsoll_sim.environment.certificates import ders, why_unusable
from plimsoll_sim.environment.simulated_tls import CERTIFICATE, DATA, HELLO, Records, record
from plimsoll_sim.hosts.client_calls import ClientConnection, Lost
from plimsoll_sim.hosts.tenants import CERTIFIED_PORT, RightsWitness, Tenancy, Tenant

FORMER_SHARE, FORGED_SHARE, NONE_SHARE = 0.15, 0.1, 0.05
"""Probabilities with which a tenant presents an outdated certificate, a forged one, or none."""


class CertifiedConnection(ClientConnection):
    """A client's end of simulated TLS. It does not verify the server."""

    def __init__(self, shown: KeyPair | None) -> None:
        super().__init__()
        assert shown is None or not why_unusable(shown), "it has the key"
        self._shown = b"" if shown is None else ders(shown.certificate)[0]
        self._records = Records()
        self._shaken = False
        # Data to send once the handshake is over.
        self._queued: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._put(HELLO, b"")

    def data_received(self, data: bytes) -> None:
        self._records.receive(data)
        while (found := self._records.next()) is not None:
            kind, body = found
            if kind == DATA:
                super().data_received(body)
            elif kind == CERTIFICATE:
                self._put(CERTIFICATE, self._shown)
                self._shaken = True
                queued, self._queued = self._queued, []
                for frame in queued:
                    self._put(DATA, frame)
            else:
                self.close()

    def _write(self, frame: bytes) -> None:
        if self._shaken:
            self._put(DATA, frame)
        else:
            self._queued.append(frame)

    def _put(self, kind: int, body: bytes) -> None:
        self._transport.write(record(kind, body))


class CertifiedTenant(Tenant):
    """A client that logs in by certificates. `pairs`: all key pairs that its user has had, the
    newest last; `forged`: returns an intruder's pair."""

    def __init__(
        self,
        tenancy: Tenancy,
        rng: random.Random,
        witness: RightsWitness,
        pairs: Callable[[], list[KeyPair]],
        forged: Callable[[], KeyPair],
    ) -> None:
        super().__init__(tenancy, rng, witness)
        self.name = tenancy.user.removeprefix("CN=")
        self._pairs = pairs
        self._forged = forged

    def shown(self, what: str) -> KeyPair | None:
        """Return the key pair that `what` names: the newest, the one before, the first, a forged
        one, or None for no certificate. Raises Lost if there is no such pair."""
        if what == "nothing":
            return None
        if what == "forged":
            return self._forged()
        number = {"newest": -1, "former": -2, "first": 0}[what]
        known = self._pairs()
        if len(known) < max(-number, 1):
            raise Lost("it has none")
        return known[number]

    def _choice(self) -> str:
        drawn = self._rng.random()
        if drawn < FORMER_SHARE:
            return self._rng.choice(("former", "first"))
        drawn -= FORMER_SHARE
        if drawn < FORGED_SHARE:
            return "forged"
        return "nothing" if drawn < FORGED_SHARE + NONE_SHARE else "newest"

    async def _session(self, host: str, topic: str) -> None:
        pair = self.shown(self._choice())
        connection = await self.log_in_by(host, pair)
        try:
            await self._ask_on(connection, host, topic)
        finally:
            connection.close()

    async def log_in_by(self, host: str, pair: KeyPair | None) -> ClientConnection:
        """Log in with a certificate, and return a connection on which a request was answered.
        Raises Lost if the login is refused."""
        told = self._told(host)
        connection = await self._connected_by(host, pair)
        try:
            if pair is None:
                await self.ask_first(connection, host)
            else:
                await self.metadata(connection, host, "")
                self._witness.certified_by(told, pair)
        except Lost:
            connection.close()
            raise
        return connection

    async def _connected_by(self, host: str, pair: KeyPair | None) -> ClientConnection:
        try:
            async with asyncio.timeout(2.0):
                loop = asyncio.get_running_loop()
                made = await loop.create_connection(
                    cast("Any", lambda: CertifiedConnection(pair)), host, CERTIFIED_PORT
                )
        except (OSError, TimeoutError) as error:
            raise Lost(str(error)) from None
        return cast("ClientConnection", made[1])
