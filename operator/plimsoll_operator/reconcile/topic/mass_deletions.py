"""Topic objects that vanish together, as soon as they do: pure.

The controller removes no data of them (`controller.topics.deletion` of the core); here is what a
human is told, and what acknowledges it: the time of the newest disappearance that is meant, so that
an acknowledgement covers what had vanished by then and nothing later.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE
from plimsoll_operator.api.logcluster import LogCluster

NAMES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mass:
    """`count` objects vanished within an hour, the last of those that are pending at `newest_ms`;
    `names` are the pending ones that are not acknowledged."""

    count: int
    names: tuple[str, ...]
    newest_ms: int


def mass_deletion(image: ClusterImage, most: int, acknowledged_ms: int, now_ms: int) -> Mass | None:
    """More than `most` within an hour, as the controller counts them; None when there are not."""
    pending = sorted(
        (t.pending_deletion.since_ms, t.name) for t in image.topics.values() if t.pending_deletion
    )
    removed = sum(at > now_ms - HOUR_MS for at in image.removals_ms)
    waiting = [(since, name) for since, name in pending if since > acknowledged_ms]
    count = max(
        (sum(abs(other - since) < HOUR_MS for other, _ in pending) for since, _ in waiting),
        default=0,
    )
    if not waiting or count + removed <= most:
        return None
    return Mass(
        count=count + removed,
        names=tuple(name for _, name in waiting),
        newest_ms=waiting[-1][0],
    )


def sentence(mass: Mass, cluster: LogCluster, most: int) -> str:
    """What happened, and the two ways out."""
    namespace, name = cluster.key
    names = ", ".join(mass.names[:NAMES_MAX])
    more = len(mass.names) - NAMES_MAX
    return (
        f"{mass.count} Topic objects disappeared within an hour ({names}"
        f"{f' and {more} more' if more > 0 else ''}). More than {most} look like an accident: no "
        f"data is removed. {way_out(cluster, mass.newest_ms)} Or set "
        f"spec.topics.deletion.maxPerHour of {namespace}/{name} to {mass.count} or more for good."
    )


def way_out(cluster: LogCluster, until_ms: int) -> str:
    """How to say once that everything up to `until_ms` is meant."""
    namespace, name = cluster.key
    return (
        "Re-apply them, or acknowledge these alone: kubectl annotate --overwrite logcluster "
        f"{name} -n {namespace} {ACKNOWLEDGE}={timestamp(until_ms)}."
    )


def acknowledged_until_ms(cluster: LogCluster) -> int:
    """The newest disappearance that is meant, to the end of its second; -1 when none is."""
    try:
        return milliseconds(cluster.metadata.annotations[ACKNOWLEDGE]) + 999
    except (KeyError, ValueError):
        return -1


def is_acknowledged(topic: Topic, cluster: LogCluster, now_ms: int) -> bool:
    """Without a grace nothing says when a topic's object vanished: then it is within the hour."""
    until_ms = acknowledged_until_ms(cluster)
    if topic.pending_deletion is None:
        return until_ms >= 0 and now_ms - HOUR_MS <= until_ms <= now_ms + HOUR_MS
    return topic.pending_deletion.since_ms <= until_ms
