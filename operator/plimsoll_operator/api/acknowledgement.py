"""The annotation by which a human says that disappearances of objects were meant: pure.

It states the time of the newest one that is meant, so that it covers what had vanished by then and
nothing later.
"""

from __future__ import annotations

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE, ACKNOWLEDGE_USERS
from plimsoll_operator.api.logcluster import LogCluster


def _until_ms(stamp: str) -> int:
    """To the end of the second that it states; ValueError: it states none that can be said again,
    as the last hours of the year 9999 west of Greenwich."""
    until_ms = milliseconds(stamp) + 999
    timestamp(until_ms)
    return until_ms


def acknowledged_until_ms(cluster: LogCluster) -> int:
    """The newest disappearance that is meant, to the end of its second; -1 when none is."""
    try:
        return _until_ms(cluster.metadata.annotations[ACKNOWLEDGE])
    except (KeyError, ValueError):
        return -1


def users_acknowledged(cluster: LogCluster) -> dict[str, int]:
    """The same of User objects, by namespace: no other namespace's are meant by it."""
    found: dict[str, int] = {}
    for one in cluster.metadata.annotations.get(ACKNOWLEDGE_USERS, "").split(","):
        namespace, _, stamp = one.strip().partition("@")
        try:
            until_ms = _until_ms(stamp)
        except ValueError:
            continue
        found[namespace] = max(until_ms, found.get(namespace, -1))
    return found


def users_way_out(cluster: LogCluster, namespace: str, until_ms: int) -> str:
    """How to say once that everything of a namespace up to `until_ms` is meant, and of others what
    was said before."""
    meant = users_acknowledged(cluster) | {namespace: until_ms}
    value = ",".join(f"{where}@{timestamp(at_ms)}" for where, at_ms in sorted(meant.items()))
    around, name = cluster.key
    return (
        f"kubectl annotate --overwrite logcluster {name} -n {around} {ACKNOWLEDGE_USERS}={value}."
    )


def way_out(cluster: LogCluster, until_ms: int) -> str:
    """How to say once that everything up to `until_ms` is meant."""
    namespace, name = cluster.key
    return (
        "Re-apply them, or acknowledge these alone: kubectl annotate --overwrite logcluster "
        f"{name} -n {namespace} {ACKNOWLEDGE}={timestamp(until_ms)}."
    )
