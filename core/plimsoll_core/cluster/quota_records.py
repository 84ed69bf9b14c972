"""Applies the records about quotas.  Called by `image.apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage


def quotas_set(image: ClusterImage, record: r.QuotasSet) -> ClusterImage:
    return replace(image, quotas=image.quotas.with_row(record.row))


def quotas_removed(image: ClusterImage, record: r.QuotasRemoved) -> ClusterImage:
    return replace(image, quotas=image.quotas.without(record.entity))


APPLIERS: dict[type, Callable[[ClusterImage, Any], ClusterImage]] = {
    r.QuotasSet: quotas_set,
    r.QuotasRemoved: quotas_removed,
}
"""A part of `image`'s table."""
