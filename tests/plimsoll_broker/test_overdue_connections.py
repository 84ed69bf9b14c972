"""Who has to go, from what a connection has done: no sockets, no clock."""

import pytest

from plimsoll_broker.server.connection_limits import (
    SLOWEST_READER,
    SLOWEST_REQUEST,
    SLOWEST_WANTED,
    Conduct,
    ListenerLimits,
    lately,
    overdue,
)

LIMITS = ListenerLimits()
ENOUGH_CAME = int(SLOWEST_REQUEST * lately(LIMITS.request_ms_max))
ENOUGH_TAKEN = int(SLOWEST_READER * lately(LIMITS.unread_short_ms_max))


def conduct(**known):
    return Conduct(**{"silent": 0.0, "spoken": True, "waiting": False} | known)


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({}, None),
        ({"silent": 29.0, "spoken": False}, None),
        ({"silent": 31.0, "spoken": False}, "silent"),
        ({"silent": 31.0}, None),
        ({"silent": 601.0}, "idle"),
        ({"silent": 601.0, "waiting": True}, None),
        ({"silent": 601.0, "unread": 3.0, "draining": 500.0, "taken": 10}, None),
        ({"owing": 29.0}, None),
        ({"owing": 29.0, "came": 0}, None),
        ({"owing": 31.0, "came": 0}, "half-request"),
        ({"owing": 31.0, "came": 0, "waiting": True}, "half-request"),
        ({"owing": 31.0}, None),
        ({"owing": 5_000.0, "came": ENOUGH_CAME}, None),
        ({"owing": 31.0, "came": ENOUGH_CAME - 1}, "half-request"),
        ({"starved": 9.0}, None),
        ({"starved": 11.0}, "no-memory-for-request"),
        ({"unread": 59.0, "draining": 500.0}, None),
        ({"unread": 61.0, "draining": 61.0}, "not-reading"),
        ({"half_closed": 59.0, "waiting": True}, None),
        ({"half_closed": 61.0, "waiting": True}, "half-closed"),
    ],
)
def test_overdue_connection_closes_stating_why(known, reason):
    assert overdue(conduct(**known), LIMITS, short=False) == reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"unread": 1.0, "draining": 9.0}, None),
        ({"unread": 1.0, "draining": 9.0, "taken": 0}, None),
        ({"unread": 1.0, "draining": 11.0, "taken": 0}, "not-reading"),
        ({"unread": 1.0, "draining": 5_000.0, "taken": ENOUGH_TAKEN}, None),
        ({"unread": 1.0, "draining": 11.0, "taken": ENOUGH_TAKEN - 1}, "not-reading"),
        ({"silent": 500.0}, None),
    ],
)
def test_slow_reader_is_closed_sooner_under_pressure(known, reason):
    assert overdue(conduct(**known), LIMITS, short=True) == reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"owing": 4.0, "came": 0}, None),
        ({"owing": 6.0, "came": 0}, "half-request"),
        ({"owing": 6.0, "came": 0, "starved": 6.0}, None),
        ({"owing": 500.0, "came": SLOWEST_WANTED * 5}, None),
    ],
)
def test_slow_half_request_is_closed_sooner_under_pressure(known, reason):
    assert overdue(conduct(**known), LIMITS, wanted=True) == reason
