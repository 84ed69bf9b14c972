"""Notice of a mass deletion of Topic objects, as soon as it happens. Pure.

The controller counts them and removes no data of them (`controller.topics.topic_deletion` of the
core). This is the text for people, with the way to acknowledge it (`deletion_acknowledgement`).
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.topics.topic_deletion import most_vanished
from plimsoll_operator.api.acknowledgement import way_out
from plimsoll_operator.api.logcluster import LogCluster

NAMES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mass:
    """A mass deletion: `count` objects vanished within an hour. `names` are the pending,
    unacknowledged ones, the newest of them at `newest_ms`."""

    count: int
    names: tuple[str, ...]
    newest_ms: int


def mass_deletion(image: ClusterImage, most: int, acknowledged_ms: int, now_ms: int) -> Mass | None:
    """Return the deletion of more than `most` objects within an hour, as the controller counts
    them, or None."""
    count = most_vanished(image, acknowledged_ms, now_ms)
    if count <= most:
        return None
    waiting = sorted(
        (topic.pending_deletion.since_ms, topic.name)
        for topic in image.topics.values()
        if topic.pending_deletion and topic.pending_deletion.since_ms > acknowledged_ms
    )
    return Mass(
        count=count,
        names=tuple(name for _, name in waiting),
        newest_ms=waiting[-1][0],
    )


def sentence(mass: Mass, cluster: LogCluster, most: int) -> str:
    """Return the notice and its two remedies."""
    namespace, name = cluster.key
    names = ", ".join(mass.names[:NAMES_MAX])
    more = len(mass.names) - NAMES_MAX
    return (
        f"{mass.count} Topic objects disappeared within an hour "
        f"({names}{(f' and {more} more' if more > 0 else '')}). More than {most} look like an "
        f"accident, so no data is removed. {way_out(cluster, mass.newest_ms)} Or set "
        f"spec.topics.deletion.maxPerHour of {namespace}/{name} to {mass.count} or more for "
        "good."
    )
