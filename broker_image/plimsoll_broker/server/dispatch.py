"""Which handler answers which request, and what ApiVersions says about it.

Called by the sessions.  What has no handler is not advertised (the protocol's negotiation rules);
a version we do not serve closes the connection, except ApiVersions, which answers in version 0.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll_broker.server.client_memory_pools import Account, RequestAccount
from plimsoll_broker.server.rejected_sequences import RejectedSequences
from plimsoll_core.addresses import network_of
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.quotas.rates import Allowance
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_core.security.inside import Peer
from plimsoll_core.security.sasl import SaslSession, mechanisms_of
from plimsoll_wire.api_versions import SUPPORTED, ApiKey, Versions
from plimsoll_wire.messages import decode_request, encode_response

Buffer = bytes | bytearray | memoryview
Reply = Buffer | Sequence[Buffer]
"""A response's body, in one piece or several."""

_UNSUPPORTED_VERSION = 35
_INVALID_REQUEST = 42
_SOFTWARE_VERSION = 3
"""From here on a client tells the name and the version of its software (KIP-511)."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


_SOFTWARE_BYTES_MAX = 4096
"""Of the whole body; more is no name of a software."""


class CloseConnection(Exception):
    """A handler's way to say that this client gets no answer but a closed connection."""


class Closable(Protocol):
    """What must hear that its connection is gone."""

    def close(self) -> None: ...


class WorkOwner(Protocol):
    """Whoever has something done that takes longer than a turn of the event loop.

    `holder`: the principal that it is counted for.  `waits`: its pieces of work that wait for their
    turn, closed when it is lost.
    """

    @property
    def holder(self) -> str: ...

    @property
    def waits(self) -> dict[Closable, None]: ...


SERVING: ContextVar[WorkOwner | None] = ContextVar("serving", default=None)
"""Whose request is served.  Tasks that a handler makes have it from there."""


def _nobody_to_cut_off(_: str) -> None:
    """Of a connection that no session has."""


def _nobody_to_refuse() -> None:
    """Of a connection that no session has."""


class ConnectionState:
    """What handlers remember of one connection, for as long as it lasts.

    `fetch_replied_ms`: when the last reply to a follower's fetch was made.  `fetch_session`: what
    that follower's fetches build on.  `refused`: batches that none sent later may overtake.
    `account`: what it holds of the memory for replies, `requests` for requests.
    `is_broker`: a registered broker's.
    `line`: the last produce that those sent later wait for.  `listener`: the one that accepted it.
    `address`: of its client, the /64 of an IPv6 address.
    `sasl`: its login, None: none is asked for.  `login`: the mark of the key by which it has logged
    in (`OnBehalf`), empty: by none.  `principal`, `host` and `client`: who is at its other end.
    `holder`: the principal that what it holds and uses is counted for: its user, or its address
    where there is no login, or none yet.
    `inside_peer`: whom its certificate names, None: it showed none.
    `rights`: what is remembered of decisions about it.  `forget`: called when it is lost.
    `waits`: its work that waits for a thread, let go when it is lost; `is_lost`: it was.
    `ending`: why it is closed once its last reply is sent; empty: it is not.  `limits`: the quotas
    that hold for who is at its other end, with what was used of them.
    """

    __slots__ = (
        "_refuse",
        "account",
        "address",
        "client",
        "cut_off",
        "ending",
        "fetch_replied_ms",
        "fetch_session",
        "forget",
        "holder",
        "host",
        "inside_peer",
        "is_broker",
        "is_lost",
        "limits",
        "line",
        "listener",
        "login",
        "principal",
        "refused",
        "requests",
        "rights",
        "sasl",
        "waits",
    )

    def __init__(
        self,
        account: Account | None = None,
        listener: Listener = listener_peers.IMPLICIT,
        requests: RequestAccount | None = None,
    ) -> None:
        self.account = Account(None, 0) if account is None else account
        self.requests = RequestAccount(None) if requests is None else requests
        self.listener = listener
        self.fetch_replied_ms: int | None = None
        self.fetch_session: Closable | None = None
        self.is_broker = False
        self.refused: RejectedSequences | None = None
        self.line: asyncio.Task[Any] | None = None
        self.sasl: SaslSession | None = None
        if listener.authentication:
            self.sasl = SaslSession(mechanisms_of(listener.authentication))
        self.principal = ANONYMOUS
        self.login = b""
        self.host = self.address = self.client = self.holder = ""
        self.inside_peer: Peer | None = None
        self.rights: Any = None
        self.limits: Any = None
        self.ending = ""
        # The session's own way to close it.
        self.cut_off: Callable[[str], None] = _nobody_to_cut_off
        self._refuse: Callable[[], None] = _nobody_to_refuse
        self.forget: Callable[[], None] | None = None
        self.waits: dict[Closable, None] = {}
        self.is_lost = False

    @property
    def listener_name(self) -> str:
        return self.listener.name

    @property
    def let_in(self) -> bool:
        """True if authenticated or no login is required; stays True during re-authentication."""
        return self.sasl is None or self.sasl.identity is not None

    def opened(
        self,
        transport: asyncio.BaseTransport,
        cut_off: Callable[[str], None],
        refuse: Callable[[], None],
    ) -> None:
        """Note the client's address.  `cut_off` closes the connection at once, `refuse` has no
        further request served."""
        self._refuse = refuse
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host, self.client, self.cut_off = peer[0], f"{peer[0]}:{peer[1]}", cut_off
        self.address = network_of(peer[0])
        self._belongs_to_holder()

    def logged_in_as(self, principal: str) -> None:
        """What it holds is this principal's from now on."""
        self.principal = principal
        self._belongs_to_holder()

    def ends(self, reason: str) -> None:
        """Serve no further request, and close the connection once its last reply is sent."""
        self.ending = reason
        self._refuse()

    def _belongs_to_holder(self) -> None:
        self.holder = self.address if self.principal == ANONYMOUS else self.principal
        self.account.belongs_to(self.holder)
        self.requests.belongs_to(self.holder)

    def speaks_for(self, replica_id: int | None) -> bool:
        """Whether it may call itself this broker, as far as its certificate says."""
        peer = self.inside_peer
        return peer is None or peer.broker_id == replica_id

    def check(self, api_key: int) -> None:
        """Whether a request of it is answered now; raises CloseConnection."""
        if self.sasl is not None and (why := self.sasl.refuses(api_key)):
            raise CloseConnection(why)

    def lost(self) -> None:
        """For good: whoever remembers it forgets it."""
        self.is_lost = True
        self.close()
        for wait in tuple(self.waits):
            wait.close()
        self.cut_off, self._refuse = _nobody_to_cut_off, _nobody_to_refuse
        self.rights = None
        forget, self.forget = self.forget, None
        if forget is not None:
            forget()

    def belongs_to_broker(self) -> None:
        """It is a follower's: outside the clients' budget, and closed for no client."""
        if not self.is_broker:
            self.is_broker = True
            self.account.close()

    def close(self) -> None:
        """It is lost, or what was built on it is given up."""
        session, self.fetch_session = self.fetch_session, None
        if session is not None:
            session.close()


class RequestContext:
    """One request.  `body` is writable and belongs to the handler.
    `rights`: what it may be answered; None: no rights are asked for.  `charges`: what it uses of
    its client's quotas; None: none holds, or it was allowed before; then its time is taken off
    `time_ahead`."""

    __slots__ = (
        "api_key",
        "api_version",
        "body",
        "charges",
        "client_id",
        "connection",
        "correlation_id",
        "rights",
        "time_ahead",
    )

    def __init__(
        self,
        api_key: ApiKey,
        api_version: int,
        correlation_id: int,
        body: memoryview,
        connection: ConnectionState | None = None,
        client_id: str | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.body = body
        self.connection = ConnectionState() if connection is None else connection
        self.client_id = client_id
        self.rights: Any = None
        self.charges: Any = None
        self.time_ahead: Allowance | None = None


Result = Reply | Awaitable[Reply | None] | None
Handler = Callable[[RequestContext], Result]
"""None (or an awaitable of it): no reply.  May raise MalformedMessage or CloseConnection."""


@dataclass(frozen=True, slots=True)
class Route:
    """A served API."""

    versions: Versions
    handler: Handler


class Dispatch:
    """The table.  ApiVersions is made from it."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self._routes = {key: Route(SUPPORTED[key], handler) for key, handler in handlers.items()}
        assert ApiKey.API_VERSIONS not in handlers, "ApiVersions is this table's own"
        own = Route(SUPPORTED[ApiKey.API_VERSIONS], self._api_versions)
        self._routes[ApiKey.API_VERSIONS] = own

    def find(self, key: int, version: int) -> Route | None:
        """The route for a request, or None: close the connection."""
        # An IntEnum hashes like its int.
        route: Route | None = self._routes.get(key)  # type: ignore[call-overload]
        if route is not None:
            versions = route.versions
            if versions.first <= version <= versions.last:
                return route
        return None

    def _api_versions(self, context: RequestContext) -> bytes:
        version = context.api_version
        if version >= _SOFTWARE_VERSION and not _tells_its_software(version, context.body):
            values = {"error_code": _INVALID_REQUEST, "api_keys": []}
            return encode_response(ApiKey.API_VERSIONS, version, values)
        return self.api_versions(version, 0)

    def api_versions(self, version: int, code: int) -> bytes:
        """Encode the ApiVersions response."""
        api_keys = [
            {
                "api_key": int(key),
                "min_version": route.versions.lowest_advertised,
                "max_version": route.versions.last,
            }
            for key, route in sorted(self._routes.items())
        ]
        values = {"error_code": code, "api_keys": api_keys}
        return encode_response(ApiKey.API_VERSIONS, version, values)

    def unsupported_version(self, key: int) -> bytes:
        """For a client that asks in a version from the future.  ApiVersions is how a client finds
        out, so it alone gets an answer: version 0's body, and the list."""
        if key != ApiKey.API_VERSIONS:
            raise CloseConnection("unsupported-version")
        return self.api_versions(0, _UNSUPPORTED_VERSION)


def _tells_its_software(version: int, body: Buffer) -> bool:
    """Whether name and version are what KIP-511 allows."""
    if len(body) > _SOFTWARE_BYTES_MAX:
        return False
    asked = decode_request(ApiKey.API_VERSIONS, version, body)
    names = (asked.client_software_name, asked.client_software_version)
    return all(map(_SOFTWARE.fullmatch, names))
