"""Calls to the API server: every one with a timeout, none repeated behind the caller's back.

Whatever must be compare-and-set passes a resourceVersion or a uid; a 409 then is certain.  Lists
and reads never ask for a cached answer: they are used as evidence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from plimsoll_operator.kube.access import Access, Token
from plimsoll_operator.kube.errors import REPLY, Unavailable, error
from plimsoll_operator.kube.resources import Kind

FIELD_MANAGER = "plimsoll-operator"
TIMEOUT_SECONDS = 10.0
PAGE_ITEMS = 500
WATCH_SECONDS = 30
WATCH_LINE_BYTES_MAX = 2**20
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A complete list as of `resource_version`; `server_ms` is the API server's clock."""

    items: tuple[Object, ...]
    resource_version: str
    server_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    params: dict[str, str] | None = None
    body: Object | None = None
    content_type: str = JSON
    timeout_s: float = TIMEOUT_SECONDS
    accept: str = JSON


class Kube:
    """One pool of connections; what must not wait for others takes a client of its own."""

    def __init__(self, access: Access, *, connections: int = 8) -> None:
        self.access = access
        self._token = Token(access)
        self.ssl = access.ssl_context()
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    def token(self) -> str | None:
        """The bearer token as of now."""
        return self._token.value()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- reading ------------------------------------------------------------------------------

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """One object, fresh."""
        call = Call(method="GET", path=kind.path(namespace, name), timeout_s=timeout_s)
        return (await self.call(call))[0]

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> Listed:
        """All objects, fresh: a quorum read, in pages of one consistent snapshot."""
        accept = METADATA_LIST if metadata_only else JSON
        items: list[Object] = []
        params = {"limit": str(PAGE_ITEMS)}
        if label_selector is not None:
            params["labelSelector"] = label_selector
        if field_selector is not None:
            params["fieldSelector"] = field_selector
        while True:
            path = kind.path(namespace)
            call = Call(method="GET", path=path, params=dict(params), accept=accept)
            page, server_ms = await self.call(call)
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return Listed(
                    items=tuple(items),
                    resource_version=page["metadata"].get("resourceVersion", ""),
                    server_ms=server_ms,
                )
            params["continue"] = token

    async def first(self, kind: Kind, namespace: str, *, label_selector: str) -> Object | None:
        """Any one object that the selector takes, fresh."""
        call = Call(
            method="GET",
            path=kind.path(namespace),
            params={"limit": "1", "labelSelector": label_selector},
        )
        page, _ = await self.call(call)
        items: list[Object] = page.get("items") or []
        return items[0] if items else None

    async def metadata_changes(
        self, kind: Kind, namespace: str | None, selector: str | None, version: str
    ) -> AsyncIterator[Object]:
        """Watch events after `version`, with objects' metadata alone, for `WATCH_SECONDS`.

        A connection that is silent for longer than that is `Unavailable`."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        if selector is not None:
            params["labelSelector"] = selector
        path = kind.path(namespace)
        quiet = aiohttp.ClientTimeout(total=None, sock_read=WATCH_SECONDS + 5, sock_connect=5)
        try:
            async with self._open().get(
                self.access.server + path,
                params=params,
                headers=self._headers(JSON, METADATA),
                timeout=quiet,
                read_bufsize=WATCH_LINE_BYTES_MAX,
            ) as response:
                if response.status >= 400:
                    text = _message(await response.read())
                    raise error(response.status, f"GET {path}: {text}")
                async for line in response.content:
                    yield dict(json.loads(line))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failure:
            raise Unavailable(0, f"GET {path}: {failure!r}") from failure

    # --- writing ------------------------------------------------------------------------------

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        """Server-side apply: what the manifest states becomes so; the rest is left alone."""
        meta = manifest["metadata"]
        call = Call(
            method="PATCH",
            path=kind.path(meta.get("namespace"), meta["name"]),
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=manifest,
            content_type=APPLY,
        )
        return (await self.call(call))[0]

    async def create(
        self, kind: Kind, manifest: Object, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        call = Call(
            method="POST",
            path=kind.path(manifest["metadata"].get("namespace")),
            params={"fieldManager": FIELD_MANAGER},
            body=manifest,
            timeout_s=timeout_s,
        )
        return (await self.call(call))[0]

    async def replace(
        self,
        kind: Kind,
        manifest: Object,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        dry_run: bool = False,
    ) -> Object:
        """Compare-and-set by the manifest's resourceVersion.  `dry_run`: what would be stored, with
        the server's defaults, and nothing is."""
        meta = manifest["metadata"]
        trial = {"dryRun": "All"} if dry_run else {}
        call = Call(
            method="PUT",
            path=kind.path(meta.get("namespace"), meta["name"]),
            params={"fieldManager": FIELD_MANAGER, **trial},
            body=manifest,
            timeout_s=timeout_s,
        )
        return (await self.call(call))[0]

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        call = Call(
            method="PATCH",
            path=kind.path(namespace, name),
            params={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type=MERGE,
        )
        return (await self.call(call))[0]

    async def apply_status(self, kind: Kind, namespace: str, name: str, status: Object) -> Object:
        """Apply the status, and only the status, of an object that exists."""
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace},
            "status": status,
        }
        call = Call(
            method="PATCH",
            path=kind.path(namespace, name) + "/status",
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=body,
            content_type=APPLY,
        )
        return (await self.call(call))[0]

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        """Delete exactly the object with `uid`; another one under its name gives 409.
        `grace_seconds` 0 deletes a pod without its kubelet's word."""
        body: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        call = Call(
            method="DELETE",
            path=kind.path(namespace, name),
            body=body,
        )
        await self.call(call)

    # --- the one door -------------------------------------------------------------------------

    async def call(self, call: Call) -> tuple[Object, int | None]:
        """The answer's body, and the server's time when it says so."""
        session = self._open()
        try:
            async with (
                asyncio.timeout(call.timeout_s),
                session.request(
                    call.method,
                    self.access.server + call.path,
                    params=call.params,
                    data=None if call.body is None else json.dumps(call.body),
                    headers=self._headers(call.content_type, call.accept),
                ) as response,
            ):
                text = await response.read()
                date = response.headers.get("Date")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise Unavailable(0, f"{call.method} {call.path}: {failure!r}") from failure
        if status >= 400:
            raise error(status, f"{call.method} {call.path}{REPLY}{_message(text)}")
        return _decoded(text, call), _milliseconds(date)

    def _headers(self, content_type: str, accept: str) -> dict[str, str]:
        headers = {"Content-Type": content_type, "Accept": accept, "User-Agent": FIELD_MANAGER}
        if token := self._token.value():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, ssl=self.ssl if self.ssl is not None else True
            )
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def _decoded(text: bytes, call: Call) -> Object:
    try:
        body = json.loads(text)
    except ValueError as failure:
        raise Unavailable(0, f"{call.method} {call.path}: not JSON") from failure
    return dict(body)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        return text[:200].decode(errors="replace")


def _milliseconds(date: str | None) -> int | None:
    return None if date is None else int(parsedate_to_datetime(date).timestamp() * 1000)
