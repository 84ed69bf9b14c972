"""Metrics of logins, rights and quotas. Called by `broker_metrics` at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.node.metric_rows import TABLE
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_core.quotas.state import OF_CLIENTS
from plimsoll_core.security.client_certificates import CertificateRefusal
from plimsoll_core.security.inside import REASONS
from plimsoll_core.security.tokens import TokenRefusal
from plimsoll_net.dialling import HANDSHAKE_FAILED


def inside_metrics(prefix: str, peers: InsidePeers) -> Iterator[Metric]:
    yield TABLE.gauge(prefix + "inside_plaintext_connections", peers.figures.plaintext)
    counts = peers.refusals.counts
    refused = {(reason,): float(counts[reason]) for reason in (*REASONS, HANDSHAKE_FAILED)}
    yield TABLE.counters(prefix + "inside_peers_refused", refused)


def security_metrics(prefix: str, authority: Authority) -> Iterator[Metric]:
    stats = authority.stats
    counted = {
        "logins": stats.logins,
        "logins_failed": stats.failed_logins,
        "sessions_cut_off": stats.cut_off,
        "authorizations_denied": stats.denied,
        "authorizations_would_deny": stats.would_deny,
    }
    for name, value in counted.items():
        yield TABLE.counter(prefix + name, value)
    dropped = {(decision,): float(n) for decision, n in authority.audit.dropped.items()}
    yield TABLE.counters(prefix + "audit_events_dropped", dropped)
    refused = {(why.value,): float(stats.tokens_refused[why]) for why in TokenRefusal}
    yield TABLE.counters(prefix + "tokens_refused", refused)
    counts = stats.certificates_refused
    turned_away = {(why.value,): float(counts[why]) for why in CertificateRefusal}
    yield TABLE.counters(prefix + "client_certificates_refused", turned_away)


def long_work_metrics(prefix: str, work: FairWork) -> Iterator[Metric]:
    """Yield metrics of clients' work in threads, by a bounded number of principals."""
    seconds = {(principal,): used_s for principal, used_s in work.used.seconds().items()}
    seconds[("",)] = seconds.get(("",), 0.0) + work.used.others_s()
    yield TABLE.counters(prefix + "long_work_seconds", seconds)
    yield TABLE.gauge(prefix + "long_work_running", work.threads.used)
    yield TABLE.gauge(prefix + "long_work_waiting", work.waiting.used)
    yield TABLE.counter(prefix + "long_work_wait_seconds", work.waited_s)
    yield TABLE.counter(prefix + "long_work_rest_seconds", work.rested_s)
    yield TABLE.counter(prefix + "long_work_refused", work.waiting.refused)
    yield TABLE.counter(prefix + "long_work_dropped", work.dropped)


def quota_metrics(prefix: str, quotas: Quotas) -> Iterator[Metric]:
    """Yield quota metrics, never by user or client id: there may be any number of them."""
    family = TABLE.histograms(prefix + "throttle_seconds")
    for quota in OF_CLIENTS:
        throttled = quotas.stats.throttled[quota]
        family.add_metric([quota.value], throttled.buckets(), throttled.sum_s)
    yield family
    yield TABLE.gauge(prefix + "quota_accounts", quotas.usage.accounts)
    yield TABLE.gauge(prefix + "connected_addresses", quotas.addresses.addresses)
