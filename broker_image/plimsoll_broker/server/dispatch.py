"""Dispatch: finds the handler of a request, and answers ApiVersions.

Called by the sessions. ApiVersions does not list an API without a handler (the protocol's
negotiation rules). A request in an unsupported version closes the connection, except ApiVersions,
which is answered in version 0.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll_broker.server.connection_state import CloseConnection, ConnectionState
from plimsoll_core.errors import Code
from plimsoll_core.quotas.rates import Allowance
from plimsoll_wire.api_versions import OWN_COPIES, SUPPORTED, ApiKey, Versions
from plimsoll_wire.messages import NUMBERS_MAX, decode_and_count, decode_request, encode_response

Buffer = bytes | bytearray | memoryview
Reply = Buffer | Sequence[Buffer]
"""A response body, in one piece or several."""
Change = Callable[[dict[str, Any]], None]
"""Changes the values of a reply in place."""

_SOFTWARE_VERSION = 3
"""The ApiVersions version from which on a client states the name and version of its software
(KIP-511)."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


_SOFTWARE_BYTES_MAX = 4096
"""The largest body of an ApiVersions request, in bytes. A larger one cannot be the name of a
client's software."""


class RequestContext:
    """One request, as its handler gets it. `body` is writable and belongs to the handler.

    `rights`: what the client is authorized to do; None if no authorization is required. `charges`:
    the quota usage of the request; None if no quota applies, or if it was allowed ahead. In the
    latter case its time is subtracted from `time_ahead`. `parsed`: the memory, in bytes, for which
    the parsed request is counted; None until it is parsed. `settle`: counts it so, where the most
    was assumed before; None if that is not needed. `changes`: what the guard changes in the values
    of the reply. `applies_changes`: True if the handler does so itself, before it encodes them.
    `weight`: that of the array items of the parsed request.
    """

    # Not set for each request: a short one is answered before it matters.
    settle: Callable[[int], None] | None = None
    changes: tuple[Change, ...] = ()
    applies_changes = False
    weight = 0
    _request: Any = None

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
        self.parsed: int | None = None
        self.rights: Any = None
        self.charges: Any = None
        self.time_ahead: Allowance | None = None

    def decoded(self, weight_max: int = NUMBERS_MAX) -> Any:
        """Return the parsed request; it is parsed once. May be called in a thread; then call
        `settled` afterwards. Raises MalformedMessage; TooManyItems if it has to be parsed and its
        array items weigh more than `weight_max`."""
        if self._request is None:
            self._request, parsed, self.weight = decode_and_count(
                self.api_key, self.api_version, self.body, weight_max
            )
            self.parsed = max(parsed, self.parsed or 0)  # a guard may have left out refused items
        return self._request

    def replace_body(self, body: memoryview) -> None:
        """Serve this request body in place of the client's own."""
        self.body, self._request = body, None

    def settled(self) -> None:
        """Count the parsed request for what it takes, instead of the most that it could."""
        if self.settle is not None and self.parsed is not None:
            self.settle(self.parsed)


Result = Reply | Awaitable[Reply | None] | None
Handler = Callable[[RequestContext], Result]
"""Handles a request. A result of None, or an awaitable of None, means that no reply is sent. A
handler may raise MalformedMessage or CloseConnection."""


@dataclass(frozen=True, slots=True)
class Route:
    """A served API: its handler and the versions that it handles."""

    versions: Versions
    handler: Handler


class Dispatch:
    """The handlers of one port by API. It serves ApiVersions itself, from this table. `hidden`:
    returns the APIs that are not served at the time."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        hidden: Callable[[], Container[int]] = frozenset,
    ) -> None:
        self._hidden = hidden
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
            values = {"error_code": Code.INVALID_REQUEST, "api_keys": []}
            return encode_response(ApiKey.API_VERSIONS, version, values)
        return self.api_versions(version, 0)

    def api_versions(self, version: int, code: int) -> bytes:
        """Return an encoded ApiVersions response of this version, with this error code and the
        version ranges of all served APIs; from version 3 on also with the supported feature."""
        hidden = self._hidden()
        api_keys = [
            {
                "api_key": int(key),
                "min_version": route.versions.lowest_advertised,
                "max_version": route.versions.last,
            }
            for key, route in sorted(self._routes.items())
            if key not in hidden
        ]
        values: dict[str, Any] = {"error_code": code, "api_keys": api_keys}
        if version >= _SOFTWARE_VERSION:
            values["supported_features"] = [OWN_COPIES]
        return encode_response(ApiKey.API_VERSIONS, version, values)

    def unsupported_version(self, key: int) -> bytes:
        """Return the reply to a request of an API or version that is not served. For ApiVersions it
        is a version 0 response with UNSUPPORTED_VERSION and the served versions. Raises
        CloseConnection for any other API."""
        if key != ApiKey.API_VERSIONS:
            raise CloseConnection("unsupported-version")
        return self.api_versions(0, Code.UNSUPPORTED_VERSION)


def _tells_its_software(version: int, body: Buffer) -> bool:
    """Return True if an ApiVersions request names the client's software and its version in valid
    form (KIP-511)."""
    if len(body) > _SOFTWARE_BYTES_MAX:
        return False
    asked = decode_request(ApiKey.API_VERSIONS, version, body)
    names = (asked.client_software_name, asked.client_software_version)
    return all(map(_SOFTWARE.fullmatch, names))
