"""Applies the records of granted restarts to an image: a part of `image`, which lists them."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage, Grant


def granted(image: ClusterImage, record: r.RestartGranted) -> ClusterImage:
    grant = Grant(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        pod_uid=record.pod_uid,
        revision=record.revision,
    )
    return replace(image, grants=image.grants.set(record.broker_id, grant))


def ended(image: ClusterImage, record: r.RestartEnded) -> ClusterImage:
    assert record.broker_id in image.grants, "only an open grant ends"
    proven = image.proven_revision if record.proven is None else record.proven
    grants = image.grants.delete(record.broker_id)
    return replace(image, grants=grants, proven_revision=proven)
