"""Ids of clusters and topics, as objects and Kafka's clients write them."""

from __future__ import annotations

import base64
from uuid import UUID

from plimsoll_operator.api.logcluster import LogCluster


def cluster_id(cluster: LogCluster) -> UUID:
    """The cluster's id, which owns log and volumes: `spec.clusterId`, else the object's own uid.

    The uid is random and never used twice, so two operators agree on it without asking, and an
    object that is made again is another cluster unless it says otherwise.
    """
    stated = cluster.spec.cluster_id
    if not stated:
        return UUID(cluster.metadata.uid)
    return (
        UUID(stated) if len(stated) == 36 else UUID(bytes=base64.urlsafe_b64decode(stated + "=="))
    )


def from_kafka_id(text: str) -> UUID | None:
    """The inverse of `kafka_id`; None for what is no such id."""
    try:
        found = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return UUID(bytes=found) if len(found) == 16 and len(text) == 22 else None


def kafka_id(value: UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
