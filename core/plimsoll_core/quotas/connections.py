"""Counts and limits connections per address: open ones, and new ones per second. Pure.

A broker has one instance for all its listeners. Addresses without an open connection are not
counted, so the counts are bounded; rates are in a bounded table that forgets the address seen
longest ago. The limit comes from the address's own quota or from the default. An IPv6 address
counts with its /64 network, which one customer holds. Source: `max.connections.per.ip` and its
overrides, KIP-612; Kafka's `ConnectionQuotas`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from plimsoll_core.addresses import network_of
from plimsoll_core.quotas.form import address
from plimsoll_core.quotas.rates import SAMPLE_MS, WindowedRate
from plimsoll_core.quotas.state import NO_QUOTAS, ClientQuotas

RATES_MAX = 10_000
"""The most addresses for which a rate of new connections is remembered."""
TOO_MANY = "max-connections-per-ip"
TOO_FAST = "connection-creation-rate"
REASONS = (TOO_MANY, TOO_FAST)
CLOSED_AFTER_MS_MAX = SAMPLE_MS
"""The longest time in ms after which a refused connection is closed. The delay makes its client
wait, as in Kafka."""


class ConnectionVerdict(NamedTuple):
    """The decision about a new connection. `reason`: the reason to refuse it; empty if it is
    accepted and counted until `left` is called. `closed_after_ms`: the time in ms to wait before a
    refused connection is closed."""

    reason: str = ""
    closed_after_ms: int = 0


ADMITTED = ConnectionVerdict()


class AddressConnections:
    """Counts the open connections of each address, and limits them and the rate of new ones.
    `per_ip_max`: the most open connections of one address, None for no limit; `overrides`: such
    limits by address. `quotas`: the committed quotas, which limit the rate; the caller sets
    them."""

    def __init__(
        self, per_ip_max: int | None = None, overrides: Mapping[str, int] | None = None
    ) -> None:
        self._per_ip_max = per_ip_max
        self._overrides = overrides or {}
        self._open: Counter[str] = Counter()
        self._rates: OrderedDict[str, WindowedRate] = OrderedDict()
        self.quotas: ClientQuotas = NO_QUOTAS

    @property
    def addresses(self) -> int:
        """Return the number of addresses with open connections."""
        return len(self._open)

    @property
    def rates(self) -> int:
        """Return the number of addresses with a tracked rate of new connections."""
        return len(self._rates)

    def arrived(self, host: str, now_ms: int) -> ConnectionVerdict:
        """Decide on a new connection from `host`. If it is accepted it is counted, and the caller
        must call `left` once when it ends."""
        ip, counted = address(host) or host, network_of(host)
        most = self._overrides.get(ip, self._per_ip_max)
        if most is not None and self._open[counted] >= most:
            return ConnectionVerdict(TOO_MANY)
        bound = self.quotas.connections_a_second(ip) if self.quotas.limits_addresses else None
        if bound is not None:
            rate = self._rate(counted)
            rate.record(1, now_ms)
            throttle_ms = rate.throttle_ms(bound, now_ms)
            if throttle_ms:
                rate.record(-1, now_ms)
                return ConnectionVerdict(TOO_FAST, min(throttle_ms, CLOSED_AFTER_MS_MAX))
        self._open[counted] += 1
        return ADMITTED

    def left(self, host: str) -> None:
        counted = network_of(host)
        self._open[counted] -= 1
        if self._open[counted] <= 0:
            del self._open[counted]

    def _rate(self, counted: str) -> WindowedRate:
        found = self._rates.get(counted)
        if found is None:
            if len(self._rates) >= RATES_MAX:
                self._rates.popitem(last=False)
            found = self._rates[counted] = WindowedRate()
        else:
            self._rates.move_to_end(counted)
        return found


def per_ip_overrides(text: str) -> dict[str, int] | None:
    """Parse `max.connections.per.ip.overrides`, such as "10.0.0.1:100,10.0.0.2:200", to limits by
    address. Return None if it is malformed."""
    found: dict[str, int] = {}
    for each in text.split(",") if text else ():
        host, colon, number = each.strip().rpartition(":")
        ip = address(host.strip("[]"))
        digits = number.isascii() and number.isdigit() and len(number) <= 9
        if not colon or ip is None or not digits:
            return None
        found[ip] = int(number)
    return found
