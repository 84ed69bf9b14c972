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
from plimsoll_operator.kube.resources import EVICTIONS, PODS, Kind

Object = dict[str, Any]

JSON = "application/json"
OPENID_CONFIGURATION = "/.well-known/openid-configuration"
"""URL path of the OpenID document that names the issuer of ServiceAccount tokens."""
OPENID_KEYS = "/openid/v1/jwks"
"""URL path of the public keys that verify ServiceAccount tokens."""
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
    """Further headers, besides those that the other fields and the transport set."""
    timeout_s: float = TIMEOUT_SECONDS
    """Seconds from opening the connection to the last byte of the answer. For a watch: the longest
    time without a byte."""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An API server's answer, with any HTTP status."""

    status: int
    body: bytes
    server_ms: int | None = None
    """The API server's clock when it answered, in milliseconds since 1970: its header `Date`, in
    whole seconds. None if it sent none."""


class Transport(Protocol):
    """Sends requests to one API server, over a pool of connections of its own. Implemented by
    `OfficialTransport`, by the API server in memory, and by the simulator."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send the request once and return the answer, with any HTTP status. Raises `Unavailable`
        with status 0 on a timeout or a lost connection: the API server may have executed the
        request, or still may."""

    def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield each line of the answer, one watch event as JSON, until the API server ends the
        answer.

        Raises the error of `kube.errors.error` for a status from 400 on, and `Unavailable` with
        status 0 if the connection is lost, or silent for longer than `timeout_s`.
        """

    async def close(self) -> None:
        """Close all connections of the transport."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All objects of a list, as of one `resource_version`. `server_ms`: the API server's clock in
    the last answer, in milliseconds since 1970; None if it stated none."""

    items: tuple[Object, ...]
    resource_version: str
    server_ms: int | None


async def call(transport: Transport, request: HttpRequest) -> tuple[Object, int | None]:
    """Send a request. Return the decoded answer, and the API server's clock in milliseconds since
    1970, or None if the answer does not state it. Raises ApiError for a status from 400 on."""
    response = await transport.send(request)
    if response.status >= 400:
        raise answered(request.method, request.path, response.status, response.body)
    return decoded(response.body, request), response.server_ms


def decoded(text: bytes, request: HttpRequest) -> Object:
    """Return the JSON object in the text of an answer to `request`. Raises Unavailable if the text
    is not a JSON object."""
    try:
        return dict(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as failure:
        raise Unavailable(
            0, f"the API server's answer to {request.method} {request.path} is not a JSON object"
        ) from failure


FIELD_MANAGER = "plimsoll-operator"
PAGE_ITEMS = 500
WATCH_SECONDS = 30
WATCH_SILENCE_SECONDS = WATCH_SECONDS + 5.0
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ANY_JSON = "application/json, */*"
"""Value of the header Accept for documents that may have any JSON media type, as key sets
(application/jwk-set+json) do."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class KubeApi:
    """Reads and writes objects over one transport. Every method raises `kube.errors.ApiError`:
    `NotFound`, `Conflict` or `Rejected` if nothing was changed, `Unavailable` if the outcome is
    unknown. Callers that share a KubeApi share its connections, and may wait for each other."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.answered_ms: int | None = None
        """The API server's clock (milliseconds since 1970) in the last answer that stated it."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """Return one object, read from etcd and not from a cache. Raises `NotFound` if it does not
        exist."""
        path = kind.path(namespace, name)
        request = HttpRequest(method="GET", path=path, timeout_s=timeout_s)
        return (await self._call(request))[0]

    async def document(self, path: str) -> Object:
        """Return the JSON document at a URL path that is not of an object of a kind, such as the
        OpenID configuration."""
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
        """Return all objects of a kind that the selectors match (None: every object), in one
        namespace (None: in all). It is a quorum read of one consistent snapshot, fetched in pages.
        `metadata_only`: the objects have nothing but their metadata."""
        accept = METADATA_LIST if metadata_only else JSON
        params = {"limit": str(PAGE_ITEMS)}
        if label_selector is not None:
            params["labelSelector"] = label_selector
        if field_selector is not None:
            params["fieldSelector"] = field_selector
        items: list[Object] = []
        async for page in self._pages(kind.path(namespace), params, accept):
            items += page.items
            last = page
        return Listed(
            items=tuple(items), resource_version=last.resource_version, server_ms=last.server_ms
        )

    async def pages(
        self, kind: Kind, namespace: str, *, label_selector: str, limit: int
    ) -> AsyncGenerator[Listed, None]:
        """Yield the objects of a list like that of `list`, at most `limit` at a time, for a caller
        that does not keep them all. Close the generator to end it earlier."""
        params = {"limit": str(limit), "labelSelector": label_selector}
        async for page in self._pages(kind.path(namespace), params, JSON):
            yield page

    async def _pages(
        self, path: str, params: dict[str, str], accept: str
    ) -> AsyncGenerator[Listed, None]:
        while True:
            request = HttpRequest(method="GET", path=path, params=dict(params), accept=accept)
            page, server_ms = await self._call(request)
            metadata = page["metadata"]
            yield Listed(
                items=tuple(page.get("items") or ()),
                resource_version=metadata.get("resourceVersion", ""),
                server_ms=server_ms,
            )
            if not (token := metadata.get("continue")):
                return
            params["continue"] = token

    async def first(self, kind: Kind, namespace: str, *, label_selector: str) -> Object | None:
        """Return any one object that the selector matches, read from etcd, or None if there is
        none."""
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
        """Yield the watch events after the resourceVersion `version`, bookmarks and a final ERROR
        event included, for at most `WATCH_SECONDS`; then return. Close the generator to end it
        earlier. Raises `Unavailable` if no byte arrives for `WATCH_SILENCE_SECONDS`."""
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
        """Apply the manifest server-side, and take its fields over from other managers; create the
        object if it does not exist. Fields that the manifest does not state stay, unless this
        operator's last apply stated them: those are removed. Return the stored object."""
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
        """Replace an object if it still has the resourceVersion that the manifest states, else
        raise `Conflict`. Return the stored object. With `dry_run` store nothing, and return the
        object as it would be stored, with the server's defaults."""
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
        """Apply an RFC 7386 merge patch to an existing object and return the stored object. Raises
        `Conflict` if the patch states another resourceVersion than the object has."""
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

    async def merge_status(
        self, kind: Kind, namespace: str, name: str, status: Object, *, version: str
    ) -> Object:
        """Apply an RFC 7386 merge patch to the status of an existing object and return the stored
        object; fields of the status that the patch does not state stay. Raises `Conflict` unless
        the object has the resourceVersion `version`."""
        patch: Object = {"metadata": {"resourceVersion": version}, "status": status}
        return await self._write(
            HttpRequest(
                method="PATCH",
                path=kind.path(namespace, name) + "/status",
                params={"fieldManager": FIELD_MANAGER},
                body=_encoded(patch),
                content_type=MERGE,
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

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """Evict exactly the pod with `uid`. Raises `Unavailable` with status 429, and evicts
        nothing, if a PodDisruptionBudget forbids it now."""
        body = EVICTIONS.manifest(
            {"name": name, "namespace": namespace}, deleteOptions={"preconditions": {"uid": uid}}
        )
        path = PODS.path(namespace, name) + "/eviction"
        await self._write(HttpRequest(method="POST", path=path, body=_encoded(body)))

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
    """Yield a `Listed` of all objects, then a watch event (`{"type", "object"}`) for each later
    change; bookmarks are left out. Return when the watch's resourceVersion has expired: the caller
    then calls `follow` again. Raises `kube.errors.ApiError`. Close the generator to end the
    watch."""
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
    """Return the objects of a kind in `namespaces`; in all namespaces if it is empty.
    `resource_version` and `server_ms` are those of the first list. Raises ApiError."""
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
