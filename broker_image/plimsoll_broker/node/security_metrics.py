"""Metrics about logins and rights.  Called by `broker_metrics` at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from plimsoll_broker.node.metric_rows import TABLE
from plimsoll_broker.security.authority import Authority


def security_metrics(prefix: str, authority: Authority) -> Iterator[Metric]:
    stats = authority.stats
    counted = {
        "logins": stats.logins,
        "logins_failed": stats.failed_logins,
        "sessions_cut_off": stats.cut_off,
        "authorizations_denied": stats.denied,
        "authorizations_would_deny": stats.would_deny,
        "audit_events_dropped": authority.audit.dropped,
    }
    for name, value in counted.items():
        yield TABLE.counter(prefix + name, value)
