"""Metrics about logins and rights.  Called by `broker_metrics` at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from plimsoll_broker.security.authority import Authority


def security_metrics(prefix: str, authority: Authority) -> Iterator[Metric]:
    stats = authority.stats
    counted = {
        "logins": ("Logins that succeeded", stats.logins),
        "logins_failed": ("Logins that failed", stats.failed_logins),
        "sessions_cut_off": ("Connections whose login is not good any more", stats.cut_off),
        "authorizations_denied": ("Requests, by resource, that no rule allowed", stats.denied),
        "authorizations_would_deny": ("What Enforce would refuse, and Audit did", stats.would_deny),
        "audit_events_dropped": (
            "Events that the audit log has no line of",
            authority.audit.dropped,
        ),
    }
    for name, (text, value) in counted.items():
        yield CounterMetricFamily(prefix + name, text, value=value)
