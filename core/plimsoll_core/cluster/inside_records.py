"""Applies the records of certificates inside to an image: a part of `image`, which lists them."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.security.inside import BrokerCertificates


def inside_mode_set(image: ClusterImage, record: r.InsideModeSet) -> ClusterImage:
    return replace(image, inside=replace(image.inside, mode=record.mode))


def certificates_allowed(image: ClusterImage, record: r.CertificatesAllowed) -> ClusterImage:
    rows = {one.broker_id: one for one in image.inside.certificates}
    rows.pop(record.broker_id, None)
    if record.sha256:
        row = BrokerCertificates(broker_id=record.broker_id, sha256=record.sha256)
        rows[record.broker_id] = row
    certificates = tuple(row for _, row in sorted(rows.items()))
    return replace(image, inside=replace(image.inside, certificates=certificates))
