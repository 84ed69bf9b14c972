"""The annotation by which a person acknowledges disappeared objects: pure.

It states the time of the newest acknowledged disappearance, so that it covers all earlier ones and
no later one.
"""

from __future__ import annotations

from plimsoll_operator.api.conditions import milliseconds, timestamp
from plimsoll_operator.api.labels import ACKNOWLEDGE, ACKNOWLEDGE_USERS
from plimsoll_operator.api.logcluster import LogCluster


def _until_ms(stamp: str) -> int:
    """Return the end of the stated second. Raises ValueError for a time that cannot be formatted
    again, such as the last hours of the year 9999 west of Greenwich."""
    until_ms = milliseconds(stamp) + 999
    timestamp(until_ms)
    return until_ms


def acknowledged_until_ms(cluster: LogCluster) -> int:
    """Return the newest acknowledged disappearance of Topics, to the end of its second; -1 if none
    is acknowledged."""
    try:
        return _until_ms(cluster.metadata.annotations[ACKNOWLEDGE])
    except (KeyError, ValueError):
        return -1


def users_acknowledged(cluster: LogCluster) -> dict[str, int]:
    """Return the newest acknowledged disappearance of User objects, by namespace."""
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
    """Return the command that acknowledges all of a namespace up to `until_ms`, and keeps the
    acknowledgements of other namespaces."""
    meant = users_acknowledged(cluster) | {namespace: until_ms}
    value = ",".join(f"{where}@{timestamp(at_ms)}" for where, at_ms in sorted(meant.items()))
    around, name = cluster.key
    return (
        f"kubectl annotate --overwrite logcluster {name} -n {around} {ACKNOWLEDGE_USERS}={value}."
    )


def way_out(cluster: LogCluster, until_ms: int) -> str:
    """Return the sentence with the command that acknowledges all up to `until_ms`."""
    namespace, name = cluster.key
    return (
        "Re-apply them, or acknowledge these alone: kubectl annotate --overwrite logcluster "
        f"{name} -n {namespace} {ACKNOWLEDGE}={timestamp(until_ms)}."
    )
