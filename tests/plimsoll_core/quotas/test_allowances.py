"""Writes that are allowed ahead: clients are told what they would be told if each were charged."""

from __future__ import annotations

import gc
import weakref
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.quotas import rates
from plimsoll_core.quotas.held_limits import ClientUsage, HeldLimits, HeldRate
from plimsoll_core.quotas.rates import Allowance, WindowedRate
from plimsoll_core.quotas.state import (
    ClientQuotas,
    Quota,
    QuotaAccount,
    QuotaEntity,
    QuotaLimit,
    QuotaRow,
    QuotaValues,
    quotas_of,
)

ALICE = QuotaEntity(user="alice")
CONNECTIONS = 4


def quotas(**values: float) -> ClientQuotas:
    return quotas_of([QuotaRow(entity=ALICE, values=QuotaValues(**values))])


class Use(NamedTuple):
    """`pause_ms` since the one before; `opened`: over a connection that is new."""

    pause_ms: int
    connection: int
    opened: bool
    size: int
    took_us: int


USES = st.lists(
    st.builds(
        Use,
        pause_ms=st.one_of(st.integers(0, 60), st.integers(0, 12_000)),
        connection=st.integers(0, CONNECTIONS - 1),
        opened=st.booleans(),
        size=st.integers(1, 3_000),
        took_us=st.integers(0, 3_000),
    ),
    max_size=150,
)


class Broker:
    """Connections of one user; `told` is by bytes and by time, `covered`: how many requests cost
    subtractions."""

    def __init__(self, committed: ClientQuotas) -> None:
        self.committed = committed
        self.usage = ClientUsage()
        self.covered = 0
        self.held = [self.opened() for _ in range(CONNECTIONS)]

    def opened(self) -> HeldLimits:
        return HeldLimits(self.committed, self.usage, "alice", "app")

    def wrote(self, connection: int, size: int, nanoseconds: int, now_ms: int) -> tuple[int, int]:
        held = self.held[connection]
        if held.covers(self.committed, "app", size, now_ms * 1_000_000):
            held.time_ahead.left -= nanoseconds
            self.covered += 1
            return 0, 0
        held.count_overdrawn()
        by_bytes = 0 if held.producer is None else held.producer.produced(size, now_ms)
        by_time = 0 if held.time is None else held.time.took(nanoseconds, now_ms)
        if not by_bytes and not by_time:
            held.allow_ahead(size, nanoseconds, now_ms)
        return by_bytes, by_time

    def amounts(self, now_ms: int) -> tuple[int, int]:
        """That count of the window."""
        one = self.held[0]
        assert one.producer is not None
        assert one.time is not None
        return one.producer.rate.amount(now_ms), one.time.rate.amount(now_ms)

    @property
    def is_overdrawn(self) -> bool:
        return any(one.time_ahead.left < 0 for one in self.held)


class ExpectedBroker:
    """Each request is charged by itself."""

    def __init__(self, committed: ClientQuotas) -> None:
        held = HeldLimits(committed, ClientUsage(), "alice", "app")
        self.producer, self.time = held.producer, held.time

    def wrote(self, size: int, nanoseconds: int, now_ms: int) -> tuple[int, int]:
        assert self.producer is not None
        assert self.time is not None
        return self.producer.produced(size, now_ms), self.time.took(nanoseconds, now_ms)

    def amounts(self, now_ms: int) -> tuple[int, int]:
        assert self.producer is not None
        assert self.time is not None
        return self.producer.rate.amount(now_ms), self.time.rate.amount(now_ms)


@settings(deadline=None, max_examples=200)
@given(uses=USES, bytes_a_second=st.integers(500, 200_000), percentage=st.floats(0.01, 5.0))
def test_throttles_equal_those_of_single_charges(
    uses: list[Use], bytes_a_second: int, percentage: float
) -> None:
    """Time that was not left is told with the next request; bytes never late."""
    committed = quotas(producer_byte_rate=float(bytes_a_second), request_percentage=percentage)
    broker, expected, now_ms = Broker(committed), ExpectedBroker(committed), 0
    for use in uses:
        now_ms += use.pause_ms
        if use.opened and broker.held[use.connection].time_ahead.left >= 0:
            broker.held[use.connection] = broker.opened()
        was_overdrawn = broker.is_overdrawn
        told = broker.wrote(use.connection, use.size, use.took_us * 1_000, now_ms)
        wanted = expected.wrote(use.size, use.took_us * 1_000, now_ms)
        assert told[0] == wanted[0]
        assert told[1] == wanted[1] or was_overdrawn or broker.is_overdrawn
    for later_ms in (0, 500, 9_000, 10_500, 11_000):
        assert broker.amounts(now_ms + later_ms) == expected.amounts(now_ms + later_ms)


def test_writer_far_below_quota_is_charged_each_second() -> None:
    broker = Broker(quotas(producer_byte_rate=1e12, request_percentage=1e6))
    for now_ms in range(10_000):
        assert broker.wrote(0, 16_384, 200_000, now_ms) == (0, 0)
    assert broker.covered == 10_000 - 10


def test_writer_with_small_quota_is_always_charged() -> None:
    """Its window's worth is 100 requests."""
    broker = Broker(quotas(producer_byte_rate=10_000.0))
    told = [broker.wrote(0, 1_000, 0, 0)[0] for _ in range(101)]
    assert broker.covered == 0
    assert (told[:100], told[100] > 0) == ([0] * 100, True)


def test_allowances_of_many_connections_stay_below_quota() -> None:
    broker = Broker(quotas(producer_byte_rate=1_000_000.0))
    broker.held = [broker.opened() for _ in range(2_000)]
    for number in range(2_000):
        assert broker.wrote(number, 100, 0, 0) == (0, 0)
    producer = broker.held[0].producer
    assert producer is not None
    assert producer.rate._total <= 7_000_000 + 2_000 * 100
    assert producer.rate.amount(0) == 2_000 * 100


def test_rate_has_a_bounded_number_of_allowances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "ALLOWANCES_MAX", 10)
    rate = WindowedRate()
    assert not rate.allow(Allowance(), 1, 1e12, 0), "after a use alone"
    rate.record(1, 0)
    given = [Allowance() for _ in range(20)]
    assert [rate.allow(one, 1, 1e12, 0) for one in given] == [True] * 10 + [False] * 10
    assert rate.allow(given[0], 1, 1e12, 0), "it has one"
    rate.settle()
    assert {one.left for one in given} == {0}
    assert rate.amount(0) == 1


def test_allowance_ends_with_quota_and_client_id() -> None:
    broker = Broker(quotas(producer_byte_rate=1e12))
    broker.wrote(0, 1_000, 0, 0)
    held = broker.held[0]
    assert held.covers(broker.committed, "app", 1_000, 1)
    assert not held.covers(quotas(producer_byte_rate=1.0), "app", 1_000, 1)
    assert not held.covers(broker.committed, "other", 1_000, 1)
    assert not held.covers(broker.committed, "app", 1_000, 1_000_000_000)


def test_overspent_time_counts_before_next_charge() -> None:
    """10 % of ten seconds is a second; a request takes more."""
    broker = Broker(quotas(request_percentage=10.0))
    assert broker.wrote(0, 100, 1_000, 0) == (0, 0)
    assert broker.wrote(0, 100, 1_100_000_000, 0) == (0, 0)
    assert broker.covered == 1
    assert broker.wrote(0, 100, 0, 1)[1] > 0


def test_closed_connection_is_freed_with_unsettled_allowance() -> None:
    """Also if no garbage is collected; its account is kept by nothing else then."""
    broker = Broker(quotas(producer_byte_rate=1e12))
    broker.wrote(0, 1_000, 0, 0)
    producer = broker.held[0].producer
    assert producer is not None
    rate = weakref.ref(producer.rate)
    gc.disable()
    try:
        del producer
        broker.held.clear()
        del broker
        assert rate() is None
    finally:
        gc.enable()


def test_who_writes_nothing_uses_no_allowance_of_others() -> None:
    """Limits of one account share its rate, whichever connection holds them."""
    usage = ClientUsage()
    limit = QuotaLimit(Quota.PRODUCER_BYTE_RATE, 100_000.0, QuotaAccount("alice", None))
    first, second = usage.rate(limit), usage.rate(limit)
    assert isinstance(first, HeldRate)
    assert isinstance(second, HeldRate)
    assert first.produced(1_000, 0) == 0
    allowance = Allowance()
    assert first.allow(allowance, 1_000, 0)
    assert second.produced(1_000_000, 0) > 0
    assert allowance.left == 0
