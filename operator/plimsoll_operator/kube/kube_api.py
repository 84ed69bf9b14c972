"""The API server as the operator sees it: a few verbs, over a transport that sends one request.

All other modules take a `KubeApi`. Every call has a timeout, is executed once, and raises
`kube.errors` when the API server refuses. A compare-and-set write passes a resourceVersion or a
uid; a 409 is then certain. Lists and reads never ask for a cached answer (they send no
resourceVersion), because they are used as evidence; a watch event is only a reason to read. A real
API server and one in memory differ in their `Transport`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from plimsoll_operator.kube.errors import Unavailable, answered
from plimsoll_operator.kube.resources import Kind

Object = dict[str, Any]

JSON = "application/json"
OPENID_CONFIGURATION = "/.well-known/openid-configuration"
"""Path of the issuer of ServiceAccount tokens."""
OPENID_KEYS = "/openid/v1/jwks"
"""Path of the public keys that verify ServiceAccount tokens."""
TIMEOUT_SECONDS = 10.0


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an API server, independent of the transport."""

    method: str
    path: str
    """The path from the root, without the query: `/api/v1/namespaces/kafka/pods`."""
    params: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The query, not yet encoded."""
    body: bytes = b""
    """Sent unchanged, so that a repeated request has the same bytes."""
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Headers beside these and the transport's own."""
    timeout_s: float = TIMEOUT_SECONDS
    """Time from the connection to the last byte of the answer; for a watch, the maximum silence."""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An API server's answer, whatever its status."""

    status: int
    body: bytes
    server_ms: int | None = None
    """The API server's clock, in milliseconds since 1970: its `Date` header, whole seconds."""


class Transport(Protocol):
    """Requests to one API server, over connections of its own."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Make one attempt. Raises `Unavailable` with status 0 if the request timed out or its
        connection was lost: it may have happened, or may still happen."""

    def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield the answer's lines as they come, one event (JSON) each, until the API server ends
        it.

        Raises the error of `kube.errors.error` for a status from 400 on, and `Unavailable` with
        status 0 if the connection is lost, or silent for longer than `timeout_s`.
        """

    async def close(self) -> None:
        """Close all connections of the transport."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A complete list as of `resource_version`; `server_ms` is the API server's clock."""

    items: tuple[Object, ...]
    resource_version: str
    server_ms: int | None


async def call(transport: Transport, request: HttpRequest) -> tuple[Object, int | None]:
    """Return the answer's body and the server's time, None if not stated. Raises ApiError."""
    response = await transport.send(request)
    if response.status >= 400:
        raise answered(request.method, request.path, response.status, response.body)
    return decoded(response.body, request), response.server_ms


def decoded(text: bytes, request: HttpRequest) -> Object:
    """Decode an answer. Raises Unavailable if it is not a JSON object."""
    try:
        return dict(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as failure:
        raise Unavailable(0, f"{request.method} {request.path}: no JSON object") from failure


FIELD_MANAGER = "plimsoll-operator"
PAGE_ITEMS = 500
WATCH_SECONDS = 30
WATCH_SILENCE_SECONDS = WATCH_SECONDS + 5.0
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ANY_JSON = "application/json, */*"
"""Media types for documents; key sets are application/jwk-set+json."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class KubeApi:
    """Objects of an API server. Every call raises `kube.errors.ApiError`: certain answers
    (`NotFound`, `Conflict`, `Rejected`), or `Unavailable` when the outcome is unknown. A caller
    that must not wait for others takes a KubeApi of its own."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.answered_ms: int | None = None
        """The API server's clock (milliseconds since 1970) in the last answer that stated it."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """Read one object afresh."""
        path = kind.path(namespace, name)
        request = HttpRequest(method="GET", path=path, timeout_s=timeout_s)
        return (await self._call(request))[0]

    async def document(self, path: str) -> Object:
        """Read a document that the API server publishes beside its objects."""
        request = HttpRequest(method="GET", path=path, accept=ANY_JSON)
        return (await self._call(request))[0]

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> Listed:
        """List all objects afresh: a quorum read of one consistent snapshot, in pages."""
        accept = METADATA_LIST if metadata_only else JSON
        items: list[Object] = []
        params = {"limit": str(PAGE_ITEMS)}
        if label_selector is not None:
            params["labelSelector"] = label_selector
        if field_selector is not None:
            params["fieldSelector"] = field_selector
        while True:
            path = kind.path(namespace)
            request = HttpRequest(method="GET", path=path, params=dict(params), accept=accept)
            page, server_ms = await self._call(request)
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
        """Read any one object that the selector matches, afresh, or None."""
        request = HttpRequest(
            method="GET",
            path=kind.path(namespace),
            params={"limit": "1", "labelSelector": label_selector},
        )
        page, _ = await self._call(request)
        items: list[Object] = page.get("items") or []
        return items[0] if items else None

    async def changes(
        self,
        kind: Kind,
        namespace: str | None,
        selector: str | None,
        version: str,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Object, None]:
        """Watch events after `version`, for `WATCH_SECONDS`; close it to end it earlier. Raises
        `Unavailable` if the connection is silent for longer."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        if selector is not None:
            params["labelSelector"] = selector
        request = HttpRequest(
            method="GET",
            path=kind.path(namespace),
            params=params,
            accept=METADATA if metadata_only else JSON,
            timeout_s=WATCH_SILENCE_SECONDS,
        )
        async with aclosing(self._transport.watch(request)) as lines:
            async for line in lines:
                yield decoded(line, request)

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        """Apply server-side: set what the manifest states and leave the rest alone."""
        meta = manifest["metadata"]
        return await self._write(
            HttpRequest(
                method="PATCH",
                path=kind.path(meta.get("namespace"), meta["name"]),
                params={"fieldManager": FIELD_MANAGER, "force": "true"},
                body=_encoded(manifest),
                content_type=APPLY,
            )
        )

    async def create(
        self, kind: Kind, manifest: Object, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """Create an object and return it as stored. Raises `Conflict` if its name is taken."""
        return await self._write(
            HttpRequest(
                method="POST",
                path=kind.path(manifest["metadata"].get("namespace")),
                params={"fieldManager": FIELD_MANAGER},
                body=_encoded(manifest),
                timeout_s=timeout_s,
            )
        )

    async def replace(
        self,
        kind: Kind,
        manifest: Object,
        *,
        timeout_s: float = TIMEOUT_SECONDS,
        dry_run: bool = False,
    ) -> Object:
        """Replace by compare-and-set on the manifest's resourceVersion. With `dry_run` return the
        object as it would be stored, with the server's defaults, and store nothing."""
        meta = manifest["metadata"]
        trial = {"dryRun": "All"} if dry_run else {}
        return await self._write(
            HttpRequest(
                method="PUT",
                path=kind.path(meta.get("namespace"), meta["name"]),
                params={"fieldManager": FIELD_MANAGER, **trial},
                body=_encoded(manifest),
                timeout_s=timeout_s,
            )
        )

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Apply a merge patch: compare-and-set if the patch states a resourceVersion."""
        return await self._write(
            HttpRequest(
                method="PATCH",
                path=kind.path(namespace, name),
                params={"fieldManager": FIELD_MANAGER},
                body=_encoded(patch),
                content_type=MERGE,
            )
        )

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Object, *, version: str = ""
    ) -> Object:
        # A uid would not do: for the status of a custom resource the API server ignores it.
        """Apply the status, and only the status, of an existing object.

        Raises `Conflict` unless the object has the resourceVersion `version`; an empty `version`
        applies to any object of that name.
        """
        stated = {"resourceVersion": version} if version else {}
        manifest = kind.manifest({"name": name, "namespace": namespace, **stated}, status=status)
        return await self._write(
            HttpRequest(
                method="PATCH",
                path=kind.path(namespace, name) + "/status",
                params={"fieldManager": FIELD_MANAGER, "force": "true"},
                body=_encoded(manifest),
                content_type=APPLY,
            )
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str,
        version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete exactly the object with `uid`.

        Raises `Conflict` for another object of that name, or for another resourceVersion than
        `version` (any if empty). `grace_seconds` 0 deletes a pod without waiting for its kubelet.
        """
        wanted = {"uid": uid, **({"resourceVersion": version} if version else {})}
        options: Object = {"preconditions": wanted, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = kind.path(namespace, name)
        await self._write(HttpRequest(method="DELETE", path=path, body=_encoded(options)))

    async def _write(self, request: HttpRequest) -> Object:
        return (await self._call(request))[0]

    async def _call(self, request: HttpRequest) -> tuple[Object, int | None]:
        answer = await call(self._transport, request)
        if answer[1] is not None:
            self.answered_ms = answer[1]
        return answer


def _encoded(body: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(body)


async def follow(
    kube: KubeApi,
    kind: Kind,
    namespace: str | None = None,
    selector: str | None = None,
    *,
    metadata_only: bool = False,
) -> AsyncGenerator[Listed | Object, None]:
    """Yield a list of everything, then each change after it (`{"type", "object"}`, no bookmarks).
    End when the API server no longer knows the following changes: follow again. Raises
    `kube.errors.ApiError`. Close it to end the watch."""
    listed = await kube.list(kind, namespace, label_selector=selector, metadata_only=metadata_only)
    yield listed
    version = listed.resource_version
    while True:
        changes = kube.changes(kind, namespace, selector, version, metadata_only=metadata_only)
        async with aclosing(changes):
            async for change in changes:
                if change["type"] == "ERROR":
                    return
                version = change["object"]["metadata"]["resourceVersion"]
                if change["type"] != "BOOKMARK":
                    yield change


async def list_watched(kube: KubeApi, kind: Kind, namespaces: Sequence[str]) -> Listed:
    """List a kind in `namespaces`, in all namespaces if empty. `server_ms` is that of the first
    list. Raises ApiError."""
    if not namespaces:
        return await kube.list(kind)
    found: list[Object] = []
    lists = [await kube.list(kind, namespace) for namespace in namespaces]
    for listed in lists:
        found += listed.items
    return Listed(
        items=tuple(found),
        resource_version=lists[0].resource_version,
        server_ms=lists[0].server_ms,
    )
