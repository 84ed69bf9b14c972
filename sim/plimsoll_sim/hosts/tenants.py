"""Clients that log in: each has a user and a password, and sends both permitted and forbidden
requests. The witness (`RightsWitness`) compares the answers with what was committed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_sim.hosts.client_calls import (
    Caller,
    ClientConnection,
    Lost,
    Sent,
    fetch_values,
    produce_values,
    sealed,
)
from plimsoll_wire.api_versions import ApiKey

SECURED_PORT = 9095
CERTIFIED_PORT = 9096
OTHER_PASSWORD_SHARE = 0.1
STRANGER_SHARE = 0.1
"""Probability that a tenant sends a request before its login."""
REQUESTS = ("metadata", "metadata", "produce", "produce", "fetch", "fetch", "fetch", "create")
FETCH_MS = 2_000
WAITING_SHARE = 0.7
"""Share of fetches at the end of the log, which wait for records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuestion:
    """One request of a tenant: the host that answered, when it was sent (virtual microseconds), and
    the end offset of the committed metadata then."""

    host: str
    user: str
    since_us: int
    committed: int


class RightsWitness(Protocol):
    """Receives reports of the answers that tenants get."""

    def logged_in(self, told: TenantQuestion, password: str) -> None: ...
    def certified_by(self, told: TenantQuestion, shown: KeyPair) -> None: ...
    def answered_first(self, told: TenantQuestion) -> None: ...
    def topic(self, told: TenantQuestion, operation: str, name: str, *, allowed: bool) -> None: ...
    def topics(self, told: TenantQuestion, names: set[str]) -> None: ...
    def created(self, told: TenantQuestion, name: str, code: int) -> None: ...
    def wrote(self, told: TenantQuestion, size: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """Settings of a tenant. `passwords`: those that it knows, the newest last. `leader`: returns
    the host that leads a topic's first partition, or None. `greedy`: True if it writes without
    pause, whatever the answers."""

    user: str
    hosts: tuple[str, ...]
    topics: tuple[str, ...]
    passwords: Callable[[], list[str]]
    leader: Callable[[str], str | None]
    now_us: Callable[[], int]
    committed: Callable[[], int]
    stopped: Callable[[], bool]
    think_ms: tuple[int, int]
    greedy: bool = False


class Tenant(Caller):
    """A client that logs in with a password. `forever` is the main coroutine of its process."""

    def __init__(self, tenancy: Tenancy, rng: random.Random, witness: RightsWitness) -> None:
        super().__init__(tenancy.user)
        self._tenancy = tenancy
        self._rng = rng
        self._witness = witness
        self._number = 0

    async def forever(self) -> None:
        while not self._tenancy.stopped():
            topic = self._rng.choice(self._tenancy.topics)
            host = self._tenancy.leader(topic) or self._rng.choice(self._tenancy.hosts)
            with contextlib.suppress(Lost):
                await self._session(host, topic)
            await self._think()
        await asyncio.Event().wait()

    async def _think(self) -> None:
        least, most = self._tenancy.think_ms
        await asyncio.sleep(self._rng.uniform(least, most) / 1_000)

    async def _session(self, host: str, topic: str) -> None:
        connection = await self.connected(host)
        try:
            if self._rng.random() < STRANGER_SHARE:
                await self.ask_first(connection, host)
                return
            await self.log_in(connection, host, self._password())
            await self._ask_on(connection, host, topic)
        finally:
            connection.close()

    async def _ask_on(self, connection: ClientConnection, host: str, topic: str) -> None:
        """Send requests after a login."""
        while not self._tenancy.stopped():
            if self._tenancy.greedy:
                await self.produce(connection, host, topic)
                continue
            await getattr(self, self._rng.choice(REQUESTS))(connection, host, topic)
            await self._think()

    def _password(self) -> str:
        known = self._tenancy.passwords()
        if self._rng.random() < OTHER_PASSWORD_SHARE:
            return self._rng.choice(["guess", *known])
        return known[-1]

    async def connected(self, host: str) -> ClientConnection:
        try:
            async with asyncio.timeout(2.0):
                loop = asyncio.get_running_loop()
                _, made = await loop.create_connection(ClientConnection, host, SECURED_PORT)
        except (OSError, TimeoutError) as error:
            raise Lost(str(error)) from None
        return made

    def _told(self, host: str) -> TenantQuestion:
        return TenantQuestion(
            host=host,
            user=self._tenancy.user,
            since_us=self._tenancy.now_us(),
            committed=self._tenancy.committed(),
        )

    # --- what it asks -----------------------------------------------------------------------------

    async def ask_first(self, connection: ClientConnection, host: str) -> None:
        """Send a request before a login; any answer is a violation."""
        told = self._told(host)
        await self.ask(connection, ApiKey.METADATA, 9, _metadata())
        self._witness.answered_first(told)

    async def log_in(self, connection: ClientConnection, host: str, password: str) -> None:
        """Log in with a password. Raises Lost if the login is refused."""
        told, scram = self._told(host), ScramClient(self._tenancy.user, password)
        mechanism = {"mechanism": "SCRAM-SHA-512"}
        reply = await self.ask(connection, ApiKey.SASL_HANDSHAKE, 1, mechanism)
        for message in (lambda _: scram.first(), scram.last):
            if int(reply.error_code):
                raise Lost("no login")
            said = bytes(getattr(reply, "auth_bytes", b""))
            values = {"auth_bytes": message(said)}
            reply = await self.ask(connection, ApiKey.SASL_AUTHENTICATE, 1, values)
        if int(reply.error_code):
            raise Lost("no login")
        self._witness.logged_in(told, password)

    async def metadata(self, connection: ClientConnection, host: str, _: str) -> set[str]:
        """Return the names of all topics in the broker's answer to a Metadata request."""
        told = self._told(host)
        reply = await self.ask(connection, ApiKey.METADATA, 9, _metadata())
        names = {str(topic.name) for topic in reply.topics}
        self._witness.topics(told, names)
        return names

    async def produce(self, connection: ClientConnection, host: str, topic: str) -> int:
        """Produce one batch. Return the error code."""
        told = self._told(host)
        self._number += 1
        sent = Sent(f"{self.name}{self._number}".encode(), 0, 1)
        batch = sealed(sent, None)
        values = produce_values(TopicPartition(topic, 0), 1, batch)
        reply = await self.ask(connection, ApiKey.PRODUCE, 9, values)
        code = int(reply.responses[0].partition_responses[0].error_code)
        self._decided(told, "Write", topic, code)
        if code == Code.NONE:
            self._witness.wrote(told, len(batch))
        return code

    async def fetch(self, connection: ClientConnection, host: str, topic: str) -> int:
        """Fetch from the end of the log, or far beyond it. Return the error code."""
        if self._rng.random() < WAITING_SHARE:
            return await self.wait_for_records(connection, host, topic)
        return await self._fetch(connection, host, topic, 2**40)

    async def wait_for_records(self, connection: ClientConnection, host: str, topic: str) -> int:
        """Fetch from the end of the log and wait for records. Return the error code."""
        end = await self._end(connection, topic)
        return await self._fetch(connection, host, topic, end)

    async def _fetch(self, connection: ClientConnection, host: str, topic: str, offset: int) -> int:
        told = self._told(host)
        values = fetch_values(TopicPartition(topic, 0), offset, -1, FETCH_MS)
        reply = await self.ask(connection, ApiKey.FETCH, 11, {**values, "min_bytes": 2**19})
        code = int(reply.responses[0].partitions[0].error_code)
        self._decided(told, "Read", topic, code)
        return code

    async def _end(self, connection: ClientConnection, topic: str) -> int:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": topic, "partitions": [partition]}]
        values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        reply = await self.ask(connection, ApiKey.LIST_OFFSETS, 6, values)
        return max(int(reply.topics[0].partitions[0].offset), 0)

    async def create(self, connection: ClientConnection, host: str, topic: str) -> int:
        """Create a topic. Return the error code."""
        told = self._told(host)
        wish: dict[str, Any] = {
            "name": f"{topic}-of-{self.name}",
            "num_partitions": 1,
            "replication_factor": 3,
            "assignments": [],
            "configs": [],
        }
        values = {"topics": [wish], "timeout": 30_000, "validate_only": False}
        reply = await self.ask(connection, ApiKey.CREATE_TOPICS, 5, values)
        code = int(reply.topics[0].error_code)
        self._witness.created(told, wish["name"], code)
        return code

    def _decided(self, told: TenantQuestion, operation: str, topic: str, code: int) -> None:
        allowed = code != Code.TOPIC_AUTHORIZATION_FAILED
        self._witness.topic(told, operation, topic, allowed=allowed)


def _metadata() -> dict[str, Any]:
    """Return the body of a Metadata request for all topics."""
    return {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


# --- a client's side of SCRAM-SHA-512 (RFC 5802) --------------------------------------------------

HASH = "sha512"
_GS2 = b"n,,"


@cache
def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password of SCRAM. Results are cached, since the computation is slow on
    purpose."""
    return hashlib.pbkdf2_hmac(HASH, password.encode(), salt, iterations)


def stored_key(password: str, salt: bytes, iterations: int) -> bytes:
    """Return the key that a server stores for this password."""
    client_key = hmac.digest(salted(password, salt, iterations), b"Client Key", HASH)
    return hashlib.new(HASH, client_key).digest()


class ScramClient:
    """The client's side of a SCRAM login. Call `first`, then `last` with the server's first
    message."""

    def __init__(self, user: str, password: str) -> None:
        self._password = password
        self._bare = f"n={user},r={base64.b64encode(os.urandom(12)).decode()}".encode()

    def first(self) -> bytes:
        return _GS2 + self._bare

    def last(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations = base64.b64decode(said["s"]), int(said["i"])
        client_key = hmac.digest(salted(self._password, salt, iterations), b"Client Key", HASH)
        without = f"c={base64.b64encode(_GS2).decode()},r={said['r']}".encode()
        signed = b",".join((self._bare, challenge, without))
        key = stored_key(self._password, salt, iterations)
        signature = hmac.digest(key, signed, HASH)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without + b",p=" + base64.b64encode(proof)
