"""The few requests the Kubernetes shell makes, over a connection of its own.

Decides one thing: what an answer proves.  A request without an answer (timeout, reset, 5xx) is
`Unanswered`: it may have happened, and may still happen later.  Called by `ring` and
`kube_snapshots` alone.  The client library's request path is not used: it encodes bodies anew,
and its timeout is minutes; only its configuration (address, certificates, token) is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import msgspec

READ_FACTOR = 5
LARGE_BYTES = 256 * 1024
UNKNOWN_OUTCOMES = frozenset({408, *range(500, 600)})


class Unanswered(Exception):
    """Nobody knows whether the request happened, or will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes

    @property
    def sentence(self) -> str:
        """What the API server says about a request that it did not carry out."""
        try:
            message = msgspec.json.decode(self.body, type=_Status).message
        except msgspec.MsgspecError:
            message = self.body[:200].decode(errors="replace")
        return f"{self.status}: {message}"


class _Status(msgspec.Struct, frozen=True):
    message: str = ""


class Api(Protocol):
    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """One attempt.  `Unanswered` when its outcome is not known."""

    async def close(self) -> None: ...


class HttpApi:
    """`Api` over HTTP, with the address and credentials of a `kubernetes.aio` client."""

    def __init__(self, api_client: Any, timeout_ms: int) -> None:
        self._configuration = api_client.configuration
        self._ssl = api_client.rest_client.ssl_context
        self._timeout_s = timeout_ms / 1000
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        try:
            async with self._open_session().request(
                method,
                self._configuration.host + path,
                params=params,
                data=body or None,
                headers=await self._headers(),
                timeout=self._timeout(method, len(body)),
            ) as response:
                answer = Answer(status=response.status, body=await response.read())
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unanswered(f"{method} {path}: {error or type(error).__name__}") from error
        if answer.status in UNKNOWN_OUTCOMES:
            raise Unanswered(f"{method} {path}: {answer.sentence}")
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A few connections: appends go one at a time, first-time slots several at once.
            connector = aiohttp.TCPConnector(limit=16, ssl=self._ssl)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    def _timeout(self, method: str, size: int) -> aiohttp.ClientTimeout:
        """What is large may take longer, lest a slow server never gets to finish it."""
        factor = READ_FACTOR if method == "GET" else 1 + size / LARGE_BYTES
        return aiohttp.ClientTimeout(total=self._timeout_s * factor)

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        token = await self._configuration.get_api_key_with_prefix(
            "BearerToken", alias="authorization"
        )
        if token:
            headers["Authorization"] = token
        return headers
