"""What each client used: throttles, shared accounts, bounded tables; connections of an address."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.quotas import connections, held_limits
from plimsoll_core.quotas.connections import (
    TOO_FAST,
    TOO_MANY,
    AddressConnections,
    per_ip_overrides,
)
from plimsoll_core.quotas.held_limits import (
    REQUEST_THROTTLE_MS_MAX,
    THROTTLE_MS_MAX,
    ClientUsage,
    HeldBucket,
    HeldRate,
)
from plimsoll_core.quotas.state import (
    DEFAULT,
    Quota,
    QuotaAccount,
    QuotaEntity,
    QuotaLimit,
    QuotaRow,
    QuotaValues,
    quotas_of,
)

ALICE = QuotaAccount("alice", None)
WINDOW_S = 10


def limit(quota: Quota, bound: float, account: QuotaAccount = ALICE) -> QuotaLimit:
    return QuotaLimit(quota, bound, account)


def rate_of(used: ClientUsage, stated: QuotaLimit) -> HeldRate:
    found = used.rate(stated)
    assert found is not None
    return found


def a_rate(quota: Quota, bound: float) -> HeldRate:
    return rate_of(ClientUsage(), limit(quota, bound))


def a_bucket(quota: Quota, bound: float) -> HeldBucket:
    found = ClientUsage().bucket(limit(quota, bound))
    assert found is not None
    return found


@settings(deadline=None)
@given(
    bound=st.integers(1_000, 1_000_000),
    sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=80),
    connections_open=st.integers(1, 4),
)
def test_muted_connections_keep_the_rate_together(
    bound: int, sizes: list[int], connections_open: int
) -> None:
    """Each window lends ten seconds' worth anew, as Kafka's does: twice the bound at worst, where
    single requests are worth about that much, and one request of each connection."""
    held = a_rate(Quota.PRODUCER_BYTE_RATE, bound)
    free_at_ms = [0] * connections_open
    shortened = False
    sent: list[tuple[int, int]] = []
    for size in sizes:
        number = min(range(connections_open), key=lambda one: free_at_ms[one])
        now_ms = free_at_ms[number]
        throttle_ms = held.produced(size, now_ms)
        assert 0 <= throttle_ms <= THROTTLE_MS_MAX
        shortened = shortened or throttle_ms == THROTTLE_MS_MAX
        sent.append((now_ms, size))
        free_at_ms[number] = now_ms + throttle_ms + 1
    span_s = (sent[-1][0] - sent[0][0]) / 1000
    if not shortened:
        most = 2 * bound * (span_s + WINDOW_S + 1) + connections_open * max(sizes)
        assert sum(size for _, size in sent) <= most


@pytest.mark.parametrize(("connections_open", "above"), [(1, 0.1), (3, 0.1), (20, 0.25)])
def test_requests_worth_fractions_of_seconds_keep_the_rate(
    connections_open: int, above: float
) -> None:
    """As a producer's are, once what the window lends is used up; each connection of the account
    has one request more."""
    held, size = a_rate(Quota.PRODUCER_BYTE_RATE, 1_000.0), 100
    free_at_ms = [0] * connections_open
    sent = 0
    while (now_ms := min(free_at_ms)) < 131_000:
        free_at_ms[free_at_ms.index(now_ms)] = now_ms + 1 + held.produced(size, now_ms)
        sent += size if now_ms >= 11_000 else 0
    assert 0.9 * 1_000 < sent / 120 < (1 + above) * 1_000


def test_throttle_is_kafkas_formula() -> None:
    """20 kB at once against 1 kB/s: observed 2 kB/s over ten seconds, so ten seconds more."""
    held = a_rate(Quota.PRODUCER_BYTE_RATE, 1_000.0)
    assert held.produced(20_000, 0) == 10_000


def test_throttle_has_a_bound_however_much_was_used() -> None:
    assert a_rate(Quota.PRODUCER_BYTE_RATE, 1.0).produced(10**9, 0) == THROTTLE_MS_MAX
    slow = a_rate(Quota.REQUEST_PERCENTAGE, 0.001)
    assert slow.took(10**12, 0) == REQUEST_THROTTLE_MS_MAX


def test_time_is_counted_in_percent_of_loop() -> None:
    held = a_rate(Quota.REQUEST_PERCENTAGE, 10.0)
    assert held.took(999_000_000, 0) == 0
    assert held.took(2_000_000, 1) > 0


def test_fetch_over_quota_is_delayed_and_not_counted() -> None:
    held = a_rate(Quota.CONSUMER_BYTE_RATE, 1_000.0)
    assert held.fetched(9_000, 0) == (0, True)
    throttle_ms, goes = held.fetched(3_000, 10)
    assert throttle_ms > 0
    assert not goes
    assert held.fetched(3_000, 11_010) == (0, True), "the first is out of the window"


def test_batch_larger_than_a_window_passes_alone() -> None:
    held = a_rate(Quota.CONSUMER_BYTE_RATE, 10.0)
    throttle_ms, goes = held.fetched(1_000_000, 0)
    assert throttle_ms == THROTTLE_MS_MAX
    assert goes
    assert held.fetched(1_000_000, 1)[1] is False


def test_strict_mutations_are_refused_until_tokens_return() -> None:
    held = a_bucket(Quota.CONTROLLER_MUTATION_RATE, 1.0)
    assert held.may_mutate(0)
    throttle_ms = held.mutated(21, 0)
    assert throttle_ms == 10_000
    assert not held.may_mutate(0)
    assert held.mutated(0, 5_000) == 5_000
    assert held.may_mutate(10_001)


def test_invented_client_ids_fill_a_bounded_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_limits, "ACCOUNTS_MAX", 100)
    used = ClientUsage()
    of_user = limit(Quota.PRODUCER_BYTE_RATE, 1_000.0)
    rate_of(used, of_user).produced(20_000, 0)
    for number in range(1_000):
        made_up = QuotaAccount("mallory", f"{number}" + "x" * 10_000)
        rate_of(used, limit(Quota.PRODUCER_BYTE_RATE, 1_000.0, made_up)).produced(1, 1)
    accounts = used._rates[Quota.PRODUCER_BYTE_RATE]
    assert used.accounts == len(accounts._known) == 101
    assert rate_of(used, of_user).produced(1, 2) > 0
    longest = max(len(account.client_id or "") for account in accounts._known)
    assert longest <= held_limits.NAME_MAX


def test_account_in_use_survives_table_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_limits, "ACCOUNTS_MAX", 1)
    used = ClientUsage()
    mine = limit(Quota.PRODUCER_BYTE_RATE, 1_000.0, QuotaAccount("alice", "app"))
    held = rate_of(used, mine)
    held.produced(20_000, 0)
    rate_of(used, limit(Quota.PRODUCER_BYTE_RATE, 1_000.0, QuotaAccount("alice", "other")))
    assert rate_of(used, mine).rate is held.rate


def by_address(rate: float, ip: str = DEFAULT) -> AddressConnections:
    entity = QuotaEntity(ip=ip)
    row = QuotaRow(entity=entity, values=QuotaValues(connection_creation_rate=rate))
    found = AddressConnections()
    found.quotas = quotas_of([row])
    return found


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["10.0.0.1", "10.0.0.2"])), max_size=60))
def test_address_never_has_more_connections_than_it_may(steps: list[tuple[bool, str]]) -> None:
    counted = AddressConnections(3, {"10.0.0.2": 1})
    open_now = {"10.0.0.1": 0, "10.0.0.2": 0}
    for comes, ip in steps:
        if comes:
            verdict = counted.arrived(ip, 0)
            most = {"10.0.0.1": 3, "10.0.0.2": 1}[ip]
            assert verdict.reason == ("" if open_now[ip] < most else TOO_MANY)
            open_now[ip] += not verdict.reason
        elif open_now[ip]:
            counted.left(ip)
            open_now[ip] -= 1
    assert counted.addresses == sum(1 for count in open_now.values() if count)


def test_connections_over_the_rate_are_refused_uncounted() -> None:
    counted = by_address(1.0)
    admitted = sum(not counted.arrived("10.0.0.1", number).reason for number in range(100))
    assert admitted == 10, "what a window of ten seconds lends"
    verdict = counted.arrived("10.0.0.1", 100)
    assert verdict.reason == TOO_FAST
    assert 0 < verdict.closed_after_ms <= 1_000
    assert not counted.arrived("10.0.0.2", 100).reason, "another address"
    assert not counted.arrived("10.0.0.1", 11_200).reason, "once the window has passed"


def test_many_addresses_fill_a_bounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RATES_MAX", 100)
    counted = by_address(1.0)
    for number in range(5_000):
        host = f"2001:db8:{number:x}::1"
        assert not counted.arrived(host, number).reason
        counted.left(host)
    assert counted.rates <= 100
    assert counted.addresses == 0


def test_addresses_of_one_ipv6_network_share_their_limit() -> None:
    counted = AddressConnections(2)
    assert not counted.arrived("2001:db8::1", 0).reason
    assert not counted.arrived("2001:db8::2", 0).reason
    assert counted.arrived("2001:db8::3", 0).reason == TOO_MANY
    counted.left("2001:db8::1")
    assert not counted.arrived("2001:db8::3", 0).reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("10.0.0.1:5, 10.0.0.2:0", {"10.0.0.1": 5, "10.0.0.2": 0}),
        ("[2001:db8::1]:7", {"2001:db8::1": 7}),
        ("10.0.0.1", None),
        ("host.example.com:5", None),
        ("10.0.0.1:-1", None),
        ("10.0.0.1:9999999999", None),
    ],
)
def test_overrides_are_addresses_with_numbers_or_no_overrides(
    text: str, found: dict[str, int] | None
) -> None:
    assert per_ip_overrides(text) == found
