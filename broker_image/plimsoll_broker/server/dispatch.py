"""Dispatch: which handler serves which request, and what ApiVersions advertises.

Called by the sessions. An API without a handler is not advertised (the protocol's negotiation
rules). An unsupported version closes the connection, except for ApiVersions, which is answered in
version 0.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll_broker.server.client_memory import Account, RequestAccount
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
"""A response body, in one piece or several."""

_UNSUPPORTED_VERSION = 35
_INVALID_REQUEST = 42
_SOFTWARE_VERSION = 3
"""From this version on a client states the name and version of its software (KIP-511)."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


_SOFTWARE_BYTES_MAX = 4096
"""Of the whole body; a larger one cannot be a software's name."""


class CloseConnection(Exception):
    """A handler raises it to close the connection without a reply. The message is the reason."""


class Closable(Protocol):
    """An object that is closed with its connection."""

    def close(self) -> None: ...


class WorkOwner(Protocol):
    """The connection for which work is done that takes longer than a turn of the event loop.

    `holder`: the principal that the work is counted for. `waits`: work that waits for its turn,
    closed when the connection is lost.
    """

    @property
    def holder(self) -> str: ...

    @property
    def waits(self) -> dict[Closable, None]: ...


SERVING: ContextVar[WorkOwner | None] = ContextVar("serving", default=None)
"""The connection whose request is being served. Tasks that a handler creates inherit it."""


def _nobody_to_cut_off(_: str) -> None:
    """Default of `cut_off` for a connection without a session."""


def _nobody_to_refuse() -> None:
    """Default of `_refuse` for a connection without a session."""


class ConnectionState:
    """The state of one connection that handlers use, for as long as it lasts.

    `fetch_replied_ms`: when the last reply to a follower's fetch was made. `fetch_session`: the
    follower's incremental fetch session. `refused`: rejected batches that later ones must not
    overtake. `account`: its share of the reply pool; `requests`: of the intake. `is_broker`: True
    for a registered broker. `line`: the last produce, which later ones wait for. `listener`: the
    listener that accepted it. `address`: the client's address, or the /64 of an IPv6 address.
    `sasl`: the login state, None if no login is required. `login`: the fingerprint of the key of
    its login (`OnBehalf`), or empty. `principal`, `host`, `client`: the identity of the peer.
    `holder`: the principal that its usage is counted for: the user, or the address if there is no
    login (yet). `inside_peer`: the identity in its certificate, None if it presented none.
    `rights`: cached authorization decisions. `forget`: called when it is lost. `waits`: work that
    waits for a thread, dropped when it is lost; `is_lost`: True after that. `ending`: the reason to
    close it after its last reply, or empty. `limits`: the quotas of the peer, with their usage.
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
        # The session's callback that closes the connection.
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
        """Count what the connection holds for this principal from now on."""
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
        """Return True if its certificate, if any, allows it to act as this broker."""
        peer = self.inside_peer
        return peer is None or peer.broker_id == replica_id

    def check(self, api_key: int) -> None:
        """Raise CloseConnection if the login state does not allow a request of this API."""
        if self.sasl is not None and (why := self.sasl.refuses(api_key)):
            raise CloseConnection(why)

    def lost(self) -> None:
        """The connection is lost for good: drop all that refers to it."""
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
        """Mark it as a follower's: it is outside of the clients' budget and never evicted."""
        if not self.is_broker:
            self.is_broker = True
            self.account.close()

    def close(self) -> None:
        """Close the fetch session: the connection is lost, or the session is given up."""
        session, self.fetch_session = self.fetch_session, None
        if session is not None:
            session.close()


class RequestContext:
    """One request. `body` is writable and belongs to the handler.

    `rights`: authorization of the request; None: no authorization is required. `charges`: its quota
    usage; None if no quota applies or it was allowed ahead; then its time is taken off
    `time_ahead`.
    """

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
"""None, or an awaitable of None: no reply. A handler may raise MalformedMessage or
CloseConnection."""


@dataclass(frozen=True, slots=True)
class Route:
    """A served API."""

    versions: Versions
    handler: Handler


class Dispatch:
    """The table of handlers. ApiVersions is derived from it."""

    def __init__(self, handlers: Mapping[ApiKey, Handler]) -> None:
        self._routes = {key: Route(SUPPORTED[key], handler) for key, handler in handlers.items()}
        assert ApiKey.API_VERSIONS not in handlers, "ApiVersions is this table's own"
        own = Route(SUPPORTED[ApiKey.API_VERSIONS], self._api_versions)
        self._routes[ApiKey.API_VERSIONS] = own

    def find(self, key: int, version: int) -> Route | None:
        """Return the route of a request, or None if its API or version is not served."""
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
        """Return the reply to a request of an unsupported version: for ApiVersions, version 0 with
        the list of versions. Raises CloseConnection for any other API."""
        if key != ApiKey.API_VERSIONS:
            raise CloseConnection("unsupported-version")
        return self.api_versions(0, _UNSUPPORTED_VERSION)


def _tells_its_software(version: int, body: Buffer) -> bool:
    """Return True if the software's name and version are valid (KIP-511)."""
    if len(body) > _SOFTWARE_BYTES_MAX:
        return False
    asked = decode_request(ApiKey.API_VERSIONS, version, body)
    names = (asked.client_software_name, asked.client_software_version)
    return all(map(_SOFTWARE.fullmatch, names))
