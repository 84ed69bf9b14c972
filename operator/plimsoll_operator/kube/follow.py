"""List and watch of one kind through a `KubeApi`, the basis of every watch of the operator.

A watch event is a reason to read, never evidence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from plimsoll_operator.kube.port import KubeApi, Listed, Object
from plimsoll_operator.kube.resources import Kind


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
