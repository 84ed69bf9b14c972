"""The API server as the operator sees it: a few verbs, over a transport that sends one request.

`KubeApi` is what all other modules take.  It reads afresh (a read is used as evidence), answers
each call once, and reports with `kube.errors` what the API server would not do.  `Transport` is
what differs between a real API server and one in memory.  Called by every room that reads or
writes objects; knows nothing of HTTP libraries.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from plimsoll_operator.kube.resources import Kind

Object = dict[str, Any]

JSON = "application/json"
OPENID_CONFIGURATION = "/.well-known/openid-configuration"
"""Who issues ServiceAccounts' tokens;"""
OPENID_KEYS = "/openid/v1/jwks"
"""and the public keys that verify them."""
TIMEOUT_SECONDS = 10.0


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an API server, before any transport."""

    method: str
    path: str
    """From the root, without the query: `/api/v1/namespaces/kafka/pods`."""
    params: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The query, not yet encoded."""
    body: bytes = b""
    """Goes out as it is: what repeats a request repeats its bytes."""
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Others than these, and than those of the transport itself."""
    timeout_s: float = TIMEOUT_SECONDS
    """From the connection to the last byte of the answer; of a watch, how long it may be silent."""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An API server's answer, whatever its status."""

    status: int
    body: bytes
    server_ms: int | None = None
    """The API server's clock, in milliseconds since 1970: its `Date` header, whole seconds."""


class Transport(Protocol):
    """Requests to one API server, over connections of its own."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """One attempt.  Raises `Unavailable` with status 0 when it is unknown whether the request
        happened, or still will: it timed out, the connection was lost."""

    def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """The answer's lines as they come, one event (JSON) each, until the API server ends it.

        Raises what `kube.errors.error` makes of a status from 400 on, and `Unavailable` with
        status 0 when the connection is lost, or silent for longer than `timeout_s`."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A complete list as of `resource_version`; `server_ms` is the API server's clock."""

    items: tuple[Object, ...]
    resource_version: str
    server_ms: int | None


class KubeApi(Protocol):
    """Objects of an API server.  Every call raises `kube.errors.ApiError`: certain answers
    (`NotFound`, `Conflict`, `Rejected`), or `Unavailable` when the outcome is unknown."""

    answered_ms: int | None
    """The API server's clock (milliseconds since 1970) in the last answer that said it."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """One object, fresh."""

    async def document(self, path: str) -> Object:
        """What the API server publishes beside its objects."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> Listed:
        """All objects, fresh: a quorum read of one consistent snapshot."""

    async def first(self, kind: Kind, namespace: str, *, label_selector: str) -> Object | None:
        """Any one object that the selector takes, fresh."""

    def changes(
        self,
        kind: Kind,
        namespace: str | None,
        selector: str | None,
        version: str,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Object, None]:
        """Watch events after `version`, for half a minute; close it to end it earlier."""

    async def create(
        self, kind: Kind, manifest: Object, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """The object as stored; `Conflict` when its name is taken."""

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

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        """Server-side apply: what the manifest states becomes so; the rest is left alone."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """A merge patch: compare-and-set if the patch states a resourceVersion."""

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Object, *, version: str = ""
    ) -> Object:
        """Apply the status, and only the status, of an object that exists.  `Conflict` unless it is
        as of the resourceVersion `version`; empty: however it is, and whichever bears the name."""

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
        """Delete exactly the object with `uid`; another one under its name gives `Conflict`, and so
        does one that is not as of the resourceVersion `version`; empty: however it is.
        `grace_seconds` 0 deletes a pod without its kubelet's word."""
