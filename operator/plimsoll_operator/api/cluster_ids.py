"""Ids of clusters and topics, as objects and Kafka's clients write them."""

from __future__ import annotations

import base64
from uuid import UUID

from plimsoll_operator.api.logcluster import LogCluster


def cluster_id(cluster: LogCluster) -> UUID:
    """Return the id that the object itself says, which owns log and volumes: `spec.clusterId`, else
    the object's own uid.

    The uid is random and never reused, so two operators agree on it without asking. A recreated
    object may continue the cluster that it finds (`cluster_identity`).
    """
    stated = cluster.spec.cluster_id
    if not stated:
        return UUID(cluster.metadata.uid)
    return (
        UUID(stated) if len(stated) == 36 else UUID(bytes=base64.urlsafe_b64decode(stated + "=="))
    )


def from_kafka_id(text: str) -> UUID | None:
    """Parse an id from `kafka_id`; None if it is malformed."""
    try:
        found = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return UUID(bytes=found) if len(found) == 16 and len(text) == 22 else None


def kafka_id(value: UUID) -> str:
    """Format a UUID as Kafka does: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
