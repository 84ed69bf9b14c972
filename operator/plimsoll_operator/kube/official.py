"""The transport over the official Kubernetes client: its configuration, TLS and connections.

Only `RESTClientObject` is used: the client's generated calls would turn every object into a model
of theirs, and the operator wants the raw answers. Features that this operator must not rely on are
disabled in the client's own settings: retries, proxies of the environment, redirects. The only
module with an HTTP client; called where a process is composed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from plimsoll_operator.kube.access import Access
from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.port import HttpRequest, HttpResponse

USER_AGENT = "plimsoll-operator"
CONNECT_SECONDS = 5.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
OCTETS = "application/octet-stream"
ON_THE_WIRE = "X-Content-Type-On-The-Wire"
NO_OTHER_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""Replaces the client's five minutes."""
LOST = (aiohttp.ClientError, TimeoutError, OSError)


class OfficialTransport:
    """`kube.port.Transport`, with a pool of `connections` (0: as many as there are requests).

    A closed one is not opened again."""

    def __init__(self, access: Access, *, connections: int = 8) -> None:
        configuration = copy.deepcopy(access.configuration)
        configuration.connection_pool_maxsize = connections
        configuration.retries = None
        # `trust_env` would send requests through the environment's proxies, which must not see
        # them.
        configuration.client_session_kwargs = {"trust_env": False, "middlewares": (_one_attempt,)}
        self._access = Access(configuration)
        self._client = RESTClientObject(configuration)

    async def send(self, request: HttpRequest) -> HttpResponse:
        """See `Transport`."""
        try:
            # The client's own timeout does not cover reading a token.
            async with asyncio.timeout(request.timeout_s):
                response = await self._request(request, NO_OTHER_TIMEOUT)
                body = await response.read()
        except LOST as failure:
            raise _lost(request, failure) from failure
        return HttpResponse(
            status=response.status, body=body, server_ms=_milliseconds(response.headers.get("Date"))
        )

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """See `Transport`."""
        silent = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=request.timeout_s
        )
        try:
            async with asyncio.timeout(request.timeout_s):
                begun = await self._request(request, silent)
            async with begun as response:
                try:
                    if response.status >= 400:
                        body = await response.read()
                        raise answered(request.method, request.path, response.status, body)
                    async for line in response.content:
                        yield line
                finally:
                    _drop(response)
        except (*LOST, ValueError) as failure:  # ValueError: a line beyond the client's buffer
            raise _lost(request, failure) from failure

    async def close(self) -> None:
        await self._client.close()

    async def _request(
        self, request: HttpRequest, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send a request; return once the answer begins.

        `RESTClientObject.request` re-encodes a JSON body, and passes bytes on only for other types.
        The ring repeats an append by the same bytes, so every body goes in as octets, and
        `_one_attempt` sets its real content type on the wire.
        """
        headers = {
            "Content-Type": OCTETS,
            ON_THE_WIRE: request.content_type,
            "Accept": request.accept,
            "User-Agent": USER_AGENT,
            **request.headers,
        }
        if authorization := await self._access.authorization():
            headers["Authorization"] = authorization
        query = f"?{urlencode(request.params)}" if request.params else ""
        answer: Any = await self._client.request(
            request.method,
            self._access.configuration.host + request.path + query,
            headers=headers,
            body=request.body,
            _request_timeout=timeout,
        )
        response: aiohttp.ClientResponse = answer.response
        return response


def _said(failure: Exception) -> str:
    """Return the library's text for a failure; it has none for a timeout."""
    return str(failure) or repr(failure)


async def _one_attempt(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Client middleware that sends each request at most once.

    aiohttp sends a GET, PUT or DELETE again if its connection breaks before an answer, and follows
    redirects. Both raise `Unavailable` here.
    """
    request.headers["Content-Type"] = request.headers.pop(ON_THE_WIRE)
    try:
        response = await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as failure:
        raise Unavailable(0, f"{request.method} {request.url.path}: {_said(failure)}") from failure
    if response.status in REDIRECTS:
        response.close()
        raise Unavailable(0, f"{request.method} {request.url.path}: redirected elsewhere")
    return response


def _drop(response: aiohttp.ClientResponse) -> None:
    """Close the connection of an answer that is not read to its end. aiohttp would begin TLS's
    shutdown and forget the connection, so `close` would not wait for it."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _lost(request: HttpRequest, failure: Exception) -> Unavailable:
    return Unavailable(0, f"{request.method} {request.path}: {_said(failure)}")


@lru_cache(maxsize=1)  # answers within a second share a Date; parsing delays appends
def _milliseconds(date: str | None) -> int | None:
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None  # perhaps a proxy's: do not use it
