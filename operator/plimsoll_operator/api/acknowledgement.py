"""The annotation by which a human says that disappearances of objects were meant: pure.

It states the time of the newest one that is meant, so that it covers what had vanished by then and
nothing later.
"""

from __future__ import annotations

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE
from plimsoll_operator.api.logcluster import LogCluster


def acknowledged_until_ms(cluster: LogCluster) -> int:
    """The newest disappearance that is meant, to the end of its second; -1 when none is."""
    try:
        return milliseconds(cluster.metadata.annotations[ACKNOWLEDGE]) + 999
    except (KeyError, ValueError):
        return -1


def way_out(cluster: LogCluster, until_ms: int) -> str:
    """How to say once that everything up to `until_ms` is meant."""
    namespace, name = cluster.key
    return (
        "Re-apply them, or acknowledge these alone: kubectl annotate --overwrite logcluster "
        f"{name} -n {namespace} {ACKNOWLEDGE}={timestamp(until_ms)}."
    )
