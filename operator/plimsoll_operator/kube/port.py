"""The API server as the operator sees it: a few verbs, over a transport that sends one request.

All other modules take a `KubeApi`. It reads afresh (a read is used as evidence), executes each call
once, and raises `kube.errors` when the API server refuses. A real API server and one in memory
differ in their `Transport`. Called by every package that reads or writes objects; knows nothing of
HTTP libraries.
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
"""Path of the issuer of ServiceAccount tokens."""
OPENID_KEYS = "/openid/v1/jwks"
"""Path of the public keys that verify ServiceAccount tokens."""
TIMEOUT_SECONDS = 10.0


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an API server, independent of the transport."""

    method: str
    path: str
    """From the root, without the query: `/api/v1/namespaces/kafka/pods`."""
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


class KubeApi(Protocol):
    """Objects of an API server.  Every call raises `kube.errors.ApiError`: certain answers
    (`NotFound`, `Conflict`, `Rejected`), or `Unavailable` when the outcome is unknown."""

    answered_ms: int | None
    """The API server's clock (milliseconds since 1970) in the last answer that stated it."""

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        """Read one object afresh."""

    async def document(self, path: str) -> Object:
        """Read a document that the API server publishes beside its objects."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> Listed:
        """List all objects afresh: a quorum read of one consistent snapshot."""

    async def first(self, kind: Kind, namespace: str, *, label_selector: str) -> Object | None:
        """Read any one object that the selector matches, afresh, or None."""

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
        """Create an object and return it as stored. Raises `Conflict` if its name is taken."""

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

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        """Apply server-side: set what the manifest states and leave the rest alone."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Apply a merge patch: compare-and-set if the patch states a resourceVersion."""

    async def apply_status(
        self, kind: Kind, namespace: str, name: str, status: Object, *, version: str = ""
    ) -> Object:
        """Apply the status, and only the status, of an existing object.

        Raises `Conflict` unless the object has the resourceVersion `version`; an empty `version`
        applies to any object of that name.
        """

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
