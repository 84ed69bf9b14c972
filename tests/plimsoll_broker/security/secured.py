"""A broker's clients' port with logins and rights, over an image that a test changes, and a client
that speaks the protocol frame by frame."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from tests.plimsoll_broker.described import a_broker, an_image
from tests.plimsoll_core.security.scram_client import ScramClient, a_credential

from plimsoll_broker.handlers.cluster_view import ClusterView, ImageWatch
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import admin_handlers
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_broker.handlers.security.logins import login_handlers
from plimsoll_broker.security.audit_log import AuditLog
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.dispatch import Dispatch, Handler
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer
from plimsoll_core.security.acl import Acl, AclOperation, AclPermission, ResourceType
from plimsoll_core.security.state import Authorization, Mode
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

WAIT_S = 30
NO_OPERATIONS = {
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
SECURED = Listener(name="secured", port=0, authentication=("ScramSha256", "ScramSha512"))
OPEN = Listener(name="open", port=0)
LISTENERS = ("open", "pods", "secured", "tls")
"""On which the brokers are reached."""


def a_rule(
    operation: AclOperation,
    name: str = "orders",
    resource: ResourceType = ResourceType.TOPIC,
    **more: Any,
) -> Acl:
    plain = {"principal": "User:alice", "resource": resource, "name": name}
    return Acl(**{**plain, "operation": operation, **more})


def denying(operation: AclOperation, name: str = "orders", **more: Any) -> Acl:
    return a_rule(operation, name, permission=AclPermission.DENY, **more)


class Secured:
    """`change` commits records; `commands`: what the controller was asked."""

    def __init__(self, mode: Mode = Mode.ENFORCE, *acls: Acl) -> None:
        broker = a_broker(0)
        named = (replace(broker.endpoints[0], name=name) for name in LISTENERS)
        broker = replace(broker, endpoints=(*broker.endpoints, *named))
        image = an_image(broker, a_broker(1), a_broker(2, fenced=True))
        image = replace(image, metadata_version=3)
        self.watch = ImageWatch(image)
        self.authority = Authority(image, AuditLog(1), makes_topics=True)
        self.quotas = Quotas()
        self.commands: list[Any] = []
        self.answer: Answer | None = None
        self.change(
            r.AuthorizationConfigured(cause="t", authorization=Authorization(mode=mode)),
            r.ScramCredentialSet(cause="t", credential=a_credential()),
            r.ScramCredentialSet(cause="t", credential=a_credential("bob")),
        )
        if acls:
            self.allow(*acls)
        view = ClusterView(
            broker_id=BrokerId(1), watch=self.watch, command=self.command, configs={}
        )
        self.handlers: dict[ApiKey, Handler] = admin_handlers(view)
        self.handlers |= login_handlers(self.authority, Aside())

    async def command(self, request: Any, timeout_ms: int) -> Answer:
        self.commands.append(request)
        assert self.answer is not None, f"nothing answers {request}"
        return self.answer

    def change(self, *records: r.Record) -> None:
        for record in records:
            old = self.watch.image
            new = apply(old, record)
            self.watch.update(old, new)
            self.authority.update(old, new)
            self.quotas.update(old, new)

    def allow(self, *acls: Acl) -> None:
        self.change(r.AclsAdded(cause="t", acls=acls))

    def forbid(self, *acls: Acl) -> None:
        self.change(r.AclsRemoved(cause="t", acls=acls))

    @asynccontextmanager
    async def served(self, listener: Listener = SECURED):
        dispatch = Dispatch(guarded(self.handlers, self.authority, Aside()))
        server = BrokerListener(dispatch, listener=listener, quotas=self.quotas)
        await server.start("127.0.0.1", 0)
        try:
            yield server
        finally:
            await server.stop()


def codes_in(value: Any) -> set[int]:
    """Every error code of an answer."""
    found: set[int] = set()
    if isinstance(value, tuple):
        for item in value:
            found |= codes_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            one = getattr(value, name)
            found |= {int(one)} if name == "error_code" else codes_in(one)
    return found


class Closed(Exception):
    """The broker closed the connection."""


class Connection:
    """Requests and answers, one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._correlation = 0

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        self.send(key, version, encode_request(key, version, values))
        return await self.answer(key, version)

    def send(self, key: ApiKey, version: int, body: bytes) -> None:
        self._correlation += 1
        self.writer.write(request_frame(key, version, self._correlation, "test", body))

    async def answer(self, key: ApiKey, version: int) -> Any:
        async with asyncio.timeout(WAIT_S):
            try:
                (length,) = struct.unpack(">i", await self.reader.readexactly(4))
                frame = await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise Closed from error
        head = 4 + (is_flexible(key, version) and key != ApiKey.API_VERSIONS)
        return decode_response(key, version, frame[head:])

    async def closed(self) -> None:
        """Until the broker closes it."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(1024):
                    pass
            except ConnectionError:
                pass

    async def log_in(
        self, user: str = "alice", password: str = "secret", mechanism: str = "SCRAM-SHA-512"
    ) -> Any:
        found = await self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
        assert found.error_code == 0, found
        client = ScramClient(user, password, mechanism)  # type: ignore[arg-type]
        told = await self.sasl(client.first())
        assert told.error_code == 0, told
        told = await self.sasl(client.last(told.auth_bytes))
        if not told.error_code:
            assert client.check(told.auth_bytes)
        return told

    async def sasl(self, message: bytes) -> Any:
        return await self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})

    async def topics(self, *names: str, version: int = 9) -> dict[str, int]:
        """Of Metadata: each topic's code; without names all."""
        asked = [{"name": name} for name in names] if names else None
        values = {"topics": asked, "allow_auto_topic_creation": False, **NO_OPERATIONS}
        found = await self.ask(ApiKey.METADATA, version, values)
        return {topic.name: int(topic.error_code) for topic in found.topics}


@asynccontextmanager
async def connected(server: BrokerListener):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
