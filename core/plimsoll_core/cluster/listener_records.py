"""Applies the records of listeners to an image: a part of `image`, which lists them."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage


def listeners_configured(image: ClusterImage, record: r.ListenersConfigured) -> ClusterImage:
    return replace(image, listeners=record.listeners)
