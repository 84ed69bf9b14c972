"""Complete, fresh list of a kind in every namespace, or in the watched namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_operator.kube.port import KubeApi, Listed, Object
from plimsoll_operator.kube.resources import Kind


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
