"""The transport over the official Kubernetes client: credentials, TLS and connections.

The client's loaders read addresses and credentials, from inside a pod or by a kubeconfig file, and
again every minute by the monotonic clock, because the kubelet rotates tokens (the official refresh
uses the wall clock). Apart from the loaders only the client's `RESTClientObject` is used: its
generated calls would convert every object into a class, and the operator needs the raw answers.
Features that this operator must not rely on are disabled: retries, proxies of the environment,
redirects. This is the only module with an HTTP client. It is imported where a process is composed.
"""

from __future__ import annotations

import asyncio
import copy
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse

TOKEN_SECONDS = 60.0
_UNREADABLE = (ConfigException, OSError, yaml.YAMLError, TypeError, ValueError)
"""Exceptions that the official client's loaders raise if credentials cannot be read; the last two
for a file that is malformed or half written."""


class NoCluster(Exception):
    """Neither a pod's ServiceAccount nor a usable kubeconfig was found."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address of an API server, its CA, and the credentials for it."""

    configuration: Configuration
    """Configuration of the official client. Only its own refresh hook changes it; each transport
    works on a copy."""

    async def authorization(self) -> str | None:
        """Return the value of the header `Authorization`, or None if there is no token. Credentials
        that are older than a minute are loaded again first; raises `Unavailable` if that fails."""
        found: str | None = await self.configuration.get_api_key_with_prefix("BearerToken")
        return found


Load = Callable[[Configuration], Awaitable[None]]


async def find_access() -> Access:
    """Return the access that this process has: by the pod's ServiceAccount inside a cluster, else
    by the current context of `KUBECONFIG` or `~/.kube/config`. Raises `NoCluster`."""
    if os.environ.get(SERVICE_HOST_ENV_NAME) and Path(SERVICE_TOKEN_FILENAME).exists():
        return await _loaded(_load_service_account, "This pod's ServiceAccount")
    paths = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return await from_kubeconfig(paths)


def namespace_of(paths: str, context: str | None = None) -> str:
    """Return the namespace that a context of the kubeconfig files (`paths`, separated by colons)
    sets, or `default` if it sets none. `context` None, or one that is not in the files: the current
    context. Raises `NoCluster` if the files cannot be read."""
    try:
        contexts, current = list_kube_config_contexts(paths)
    except _UNREADABLE as error:
        raise NoCluster(
            f"Cannot connect to Kubernetes. The kubeconfig {paths} cannot be used: {error}"
        ) from error
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str((chosen.get("context") or {}).get("namespace") or "default")


async def from_kubeconfig(paths: str, context: str | None = None) -> Access:
    """Return the access by one context (None: the current one) of kubeconfig files, separated by
    colons. Credentials are reloaded every minute; an exec plug-in then runs within the timeout of
    the request that needs it. Raises `NoCluster`."""
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep)):
        raise NoCluster(
            "Cannot connect to Kubernetes: this process does not run in a pod, and there is no "
            f"kubeconfig at {paths}. Set KUBECONFIG."
        )

    async def load(configuration: Configuration) -> None:
        await load_kube_config(
            config_file=paths,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )

    return await _loaded(load, f"The kubeconfig {paths}")


async def _load_service_account(configuration: Configuration) -> None:
    load_incluster_config(client_configuration=configuration, try_refresh_token=False)


async def _loaded(load: Load, source: str) -> Access:
    configuration = Configuration()
    try:
        await load(configuration)
    except _UNREADABLE as error:
        raise NoCluster(
            f"Cannot connect to Kubernetes. {source} cannot be used: {error}"
        ) from error
    configuration.refresh_api_key_hook = Refresh(load)
    return Access(configuration)


class Refresh:
    """The hook that the official client calls before each request. It loads credentials again that
    were loaded over a minute ago, and raises `Unavailable` if that fails."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loaded_s = time.monotonic()

    async def __call__(self, configuration: Configuration) -> None:
        now_s = time.monotonic()
        if now_s - self._loaded_s < TOKEN_SECONDS:
            return
        try:
            await self._load(configuration)
        except _UNREADABLE as error:
            raise Unavailable(
                0, f"cannot reload the credentials for the API server: {error}"
            ) from error
        self._loaded_s = now_s


NESTED_MAX = 10_000
"""Greatest nesting of JSON that Go decodes. The API server accepts it wherever a schema leaves a
field open, from any user with write access to one object in any namespace. Python's JSON decoders,
ours and kopf's, stop at the recursion limit of 1,000: one such object would end every list and
watch of its kind."""
AROUND = 50
"""Levels of nesting that a list or a watch event adds around an object."""
_LIMIT = NESTED_MAX + AROUND + 1_950
"""The recursion limit that `allow_nesting` sets; it includes the frames of callers. With it the
decoders stay within a thread's stack of 8 MiB. The API server refuses deeper objects."""


def allow_nesting() -> None:
    """Raise Python's recursion limit, so that deeply nested objects can be decoded. Call it before
    the process's first request to an API server."""
    sys.setrecursionlimit(_LIMIT)


USER_AGENT = "plimsoll-operator"
CONNECT_SECONDS = 5.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
OCTETS = "application/octet-stream"
ON_THE_WIRE = "X-Content-Type-On-The-Wire"
NO_OTHER_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""Value that switches off the HTTP client's default timeout of five minutes."""
LOST = (aiohttp.ClientError, TimeoutError, OSError)


class OfficialTransport:
    """The `Transport` to a real API server, over a pool of at most `connections` connections (0:
    without a limit). It cannot be reopened after `close`."""

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
        """Send a request and return the response once its headers have arrived.

        `RESTClientObject.request` encodes a JSON body anew, and passes bytes on unchanged only for
        other types. A repeated append to the metadata log must have the same bytes, so every body
        is passed as octets, and `_one_attempt` sets its real content type.
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
    """Return the text of an HTTP library's exception, or its `repr` if the text is empty, as for a
    timeout."""
    return str(failure) or repr(failure)


async def _one_attempt(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request at most once: a client middleware of aiohttp.

    aiohttp would send a GET, PUT or DELETE again if its connection breaks before an answer, and
    would follow redirects. Both raise `Unavailable` here.
    """
    request.headers["Content-Type"] = request.headers.pop(ON_THE_WIRE)
    try:
        response = await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as failure:
        raise Unavailable(
            0,
            f"the API server did not answer {request.method} {request.url.path}: {_said(failure)}",
        ) from failure
    if response.status in REDIRECTS:
        response.close()
        raise Unavailable(
            0,
            f"the API server's answer to {request.method} {request.url.path} is a redirect, which"
            " is not followed",
        )
    return response


def _drop(response: aiohttp.ClientResponse) -> None:
    """Abort the connection of a response that was not read to its end. aiohttp would begin TLS's
    shutdown and forget the connection, so that `close` would not wait for it."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _lost(request: HttpRequest, failure: Exception) -> Unavailable:
    return Unavailable(
        0, f"the API server did not answer {request.method} {request.path}: {_said(failure)}"
    )


@lru_cache(maxsize=1)  # answers within a second share a Date; parsing delays appends
def _milliseconds(date: str | None) -> int | None:
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None  # perhaps a proxy's: do not use it
