"""Calls to the API server: every one with a timeout, none repeated behind the caller's back.

A compare-and-set write passes a resourceVersion or a uid; a 409 is then certain. Lists and reads
never ask for a cached answer (they send no resourceVersion), because they are used as evidence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec

from plimsoll_operator.kube.one_call import call, decoded
from plimsoll_operator.kube.port import (
    JSON,
    TIMEOUT_SECONDS,
    HttpRequest,
    Listed,
    Object,
    Transport,
)
from plimsoll_operator.kube.resources import Kind

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


class Kube:
    """`kube.port.KubeApi` over a transport. A caller that must not wait for others takes a Kube of
    its own."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # See `KubeApi`.
        self.answered_ms: int | None = None

    # --- reading ------------------------------------------------------------------------------

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = TIMEOUT_SECONDS
    ) -> Object:
        path = kind.path(namespace, name)
        request = HttpRequest(method="GET", path=path, timeout_s=timeout_s)
        return (await self._call(request))[0]

    async def document(self, path: str) -> Object:
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
        """List in pages; all pages are of the snapshot that the first was read from."""
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
        """Watch for `WATCH_SECONDS`. Raises `Unavailable` if the connection is silent for
        longer."""
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

    # --- writing ------------------------------------------------------------------------------

    async def apply(self, kind: Kind, manifest: Object) -> Object:
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
        stated = {"resourceVersion": version} if version else {}
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace, **stated},
            "status": status,
        }
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
        wanted = {"uid": uid, **({"resourceVersion": version} if version else {})}
        options: Object = {"preconditions": wanted, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = kind.path(namespace, name)
        await self._write(HttpRequest(method="DELETE", path=path, body=_encoded(options)))

    # --- the one door -------------------------------------------------------------------------

    async def _write(self, request: HttpRequest) -> Object:
        return (await self._call(request))[0]

    async def _call(self, request: HttpRequest) -> tuple[Object, int | None]:
        answer = await call(self._transport, request)
        if answer[1] is not None:
            self.answered_ms = answer[1]
        return answer


def _encoded(body: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(body)
