"""Checks that etcd, behind the API server, is fast enough for a metadata log.

Every change of a partition's leader or ISR waits for one such write. Pure.
"""

from __future__ import annotations

import math

from plimsoll_operator.preflight.facts import Appends, NotRead, Verdict
from plimsoll_operator.preflight.unread_facts import unread

LATENCY = "api-latency"
P99_MS_WARNING = 50.0
"""Above it, clients notice elections of many partitions."""
P99_MS_FAILURE = 1_000.0
"""Above it, a Lease may expire while it is being renewed."""


def quantile(milliseconds: tuple[float, ...], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed (nearest
    rank)."""
    return sorted(milliseconds)[max(math.ceil(share * len(milliseconds)) - 1, 0)]


def latency(found: Appends | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(LATENCY, found)
    left = f" The test object could not be deleted: {found.left}." if found.left else ""
    if found.stopped:
        text = f"The test stopped after {len(found.milliseconds)} writes: {found.stopped}."
        text += " Check the API server and etcd's disk, then repeat the test." + left
        return Verdict(check=LATENCY, result="failed", message=text)
    p50, p99 = (quantile(found.milliseconds, share) for share in (0.5, 0.99))
    text = (
        f"{len(found.milliseconds)} writes of one {found.kind}: p50 {p50:.1f} ms, p99 {p99:.1f} ms."
    )
    if p99 > P99_MS_FAILURE:
        text += (
            " At this latency Leases expire while they are renewed: give etcd a dedicated, "
            "faster disk."
        )
        return Verdict(check=LATENCY, result="failed", message=text + left)
    if p99 > P99_MS_WARNING:
        text += (
            f" Above {P99_MS_WARNING:.0f} ms, elections of many partitions take seconds: check "
            "etcd's disk (etcd_disk_wal_fsync_duration_seconds)."
        )
        return Verdict(check=LATENCY, result="warning", message=text + left)
    return Verdict(check=LATENCY, result="warning" if left else "ok", message=text + left)
