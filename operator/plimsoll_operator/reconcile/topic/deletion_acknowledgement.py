"""Acknowledgement of deleted Topic objects by a person's annotation. Pure."""

from __future__ import annotations

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import Topic
from plimsoll_operator.api.acknowledgement import acknowledged_until_ms
from plimsoll_operator.api.logcluster import LogCluster


def is_acknowledged(topic: Topic, cluster: LogCluster, now_ms: int) -> bool:
    """Return True if the deletion is acknowledged. Without a pending deletion its time is unknown;
    an acknowledgement within an hour of now then counts."""
    until_ms = acknowledged_until_ms(cluster)
    if topic.pending_deletion is None:
        return until_ms >= 0 and now_ms - HOUR_MS <= until_ms <= now_ms + HOUR_MS
    return topic.pending_deletion.since_ms <= until_ms
