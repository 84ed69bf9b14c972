"""Reads and formats the annotations of a LogCluster by which a person acknowledges that Topic or
User objects have disappeared: pure.

An annotation states the time of the newest acknowledged disappearance. It covers all earlier
disappearances and no later one.
"""

from __future__ import annotations

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE, ACKNOWLEDGE_USERS
from plimsoll_operator.api.logcluster import LogCluster


def _until_ms(stamp: str) -> int:
    """Return the last millisecond of the second `stamp` (RFC 3339), in milliseconds since 1970.
    Raises ValueError for a time that `timestamp` cannot format, such as the last hours of the year
    9999 west of Greenwich."""
    until_ms = milliseconds(stamp) + 999
    timestamp(until_ms)
    return until_ms


def acknowledged_until_ms(cluster: LogCluster) -> int:
    """Return the time up to which the LogCluster's annotation acknowledges disappeared Topic
    objects, in milliseconds since 1970; -1 if there is no valid annotation."""
    try:
        return _until_ms(cluster.metadata.annotations[ACKNOWLEDGE])
    except (KeyError, ValueError):
        return -1


def users_acknowledged(cluster: LogCluster) -> dict[str, int]:
    """Return, by namespace, the time up to which the LogCluster's annotation acknowledges
    disappeared User objects, in milliseconds since 1970. Malformed entries are left out."""
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
    """Return the kubectl command that acknowledges all User objects of `namespace` that disappeared
    up to `until_ms` (milliseconds since 1970). It keeps the acknowledgements of other
    namespaces."""
    meant = users_acknowledged(cluster) | {namespace: until_ms}
    value = ",".join(f"{where}@{timestamp(at_ms)}" for where, at_ms in sorted(meant.items()))
    around, name = cluster.key
    return (
        f"kubectl annotate --overwrite logcluster {name} -n {around} {ACKNOWLEDGE_USERS}={value}."
    )


def way_out(cluster: LogCluster, until_ms: int) -> str:
    """Return a sentence for the owner of disappeared Topic objects: apply them again, or run the
    stated kubectl command, which acknowledges all disappearances up to `until_ms` (milliseconds
    since 1970)."""
    namespace, name = cluster.key
    return (
        "Apply the Topic objects again, or, to delete the data of these topics, run kubectl "
        f"annotate --overwrite logcluster {name} -n {namespace} "
        f"{ACKNOWLEDGE}={timestamp(until_ms)}."
    )
