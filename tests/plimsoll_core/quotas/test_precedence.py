"""Which row holds for a client, who shares one, and what there cannot be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_core.addresses import network_of
from plimsoll_core.quotas.form import (
    address,
    malformed_entity,
    malformed_value,
)
from plimsoll_core.quotas.state import (
    DEFAULT,
    OF_CLIENTS,
    ClientQuotas,
    Quota,
    QuotaEntity,
    QuotaRow,
    QuotaValues,
    quotas_of,
)

RATE = Quota.PRODUCER_BYTE_RATE
ORDER = [
    (("alice", "app"), ("alice", "app")),
    (("alice", DEFAULT), ("alice", "app")),
    (("alice", None), ("alice", None)),
    ((DEFAULT, "app"), ("alice", "app")),
    ((DEFAULT, DEFAULT), ("alice", "app")),
    ((DEFAULT, None), ("alice", None)),
    ((None, "app"), (None, "app")),
    ((None, DEFAULT), (None, "app")),
]
"""Rows (user, client id) as Kafka looks for them, and who shares what each allows."""


def with_rows(*rows: tuple[tuple[str | None, str | None], float]) -> ClientQuotas:
    found = {}
    for (user, client_id), rate in rows:
        entity = QuotaEntity(user=user, client_id=client_id)
        found[entity] = QuotaRow(entity=entity, values=QuotaValues(producer_byte_rate=rate))
    return quotas_of(found.values())


@settings(deadline=None)
@given(st.sets(st.integers(0, len(ORDER) - 1)))
def test_first_row_in_kafka_order_applies(numbers: set[int]) -> None:
    quotas = with_rows(*((ORDER[number][0], number + 1.0) for number in numbers))
    limit = quotas.limit(RATE, "alice", "app")
    if not numbers:
        assert limit is None
        return
    assert limit is not None
    assert limit.bound == min(numbers) + 1.0
    assert tuple(limit.account) == ORDER[min(numbers)][1]


@settings(deadline=None)
@given(st.sets(st.sampled_from([row for row, _ in ORDER])))
def test_row_of_another_user_applies_to_them_only(
    rows: set[tuple[str | None, str | None]],
) -> None:
    quotas = with_rows(*((row, 1.0) for row in rows))
    named = [row for row in rows if "alice" not in row and "app" not in row]
    assert (quotas.limit(RATE, "bob", "tool") is None) == (not named)


def test_each_quota_is_looked_for_by_itself() -> None:
    narrow = QuotaEntity(user="alice", client_id="app")
    wide = QuotaEntity(client_id=DEFAULT)
    quotas = quotas_of(
        {
            narrow: QuotaRow(entity=narrow, values=QuotaValues(producer_byte_rate=1.0)),
            wide: QuotaRow(entity=wide, values=QuotaValues(consumer_byte_rate=2.0)),
        }.values()
    )
    fetching = quotas.limit(Quota.CONSUMER_BYTE_RATE, "alice", "app")
    assert fetching is not None
    assert fetching.bound == 2.0
    assert quotas.limit(Quota.REQUEST_PERCENTAGE, "alice", "app") is None


def test_address_has_its_own_row_or_the_defaults() -> None:
    rows = {
        entity: QuotaRow(entity=entity, values=QuotaValues(connection_creation_rate=rate))
        for entity, rate in ((QuotaEntity(ip="10.0.0.1"), 5.0), (QuotaEntity(ip=DEFAULT), 9.0))
    }
    quotas = quotas_of(rows.values())
    assert (quotas.connections_a_second("10.0.0.1"), quotas.connections_a_second("10.0.0.2")) == (
        5.0,
        9.0,
    )
    assert quotas.limits_addresses
    assert not quotas.limits_clients
    assert quotas.limit(RATE, "", "") is None


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity(),
        QuotaEntity(ip="10.0.0.1", user="alice"),
        QuotaEntity(ip=DEFAULT, client_id=DEFAULT),
        QuotaEntity(ip="broker.example.com"),
        QuotaEntity(user="a" * 256),
        QuotaEntity(client_id="a" * 256),
    ],
)
def test_entity_that_is_none_is_told_why(entity: QuotaEntity) -> None:
    assert malformed_entity(entity)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", 0.5),
        ("producer_byte_rate", math.nan),
        ("consumer_byte_rate", math.inf),
        ("consumer_byte_rate", 2.0**64),
        ("producer_byte_rate", 1e-320),
        ("request_percentage", 1e-310),
        ("connection_creation_rate", 1.0),
        ("no_such_rate", 1.0),
    ],
)
def test_value_that_is_none_is_told_why(key: str, value: float) -> None:
    assert malformed_value(QuotaEntity(user="alice"), key, value)


def test_values_that_kafka_takes_are_taken() -> None:
    alice = QuotaEntity(user="alice")
    for quota in OF_CLIENTS:
        assert not malformed_value(alice, quota.value, 1024.0)
        assert not malformed_value(alice, quota.value, None)
    assert not malformed_value(alice, "request_percentage", 0.5)
    assert not malformed_value(QuotaEntity(ip=DEFAULT), "connection_creation_rate", 1.0)
    assert malformed_value(QuotaEntity(ip=DEFAULT), "producer_byte_rate", 1.0)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_address_or_none(text: str) -> None:
    found = address(text)
    assert found is None or address(found) == found
    assert network_of(text) is not None


def test_ipv6_addresses_of_one_network_count_together() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::2") != network_of("2001:db8:1::1")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
