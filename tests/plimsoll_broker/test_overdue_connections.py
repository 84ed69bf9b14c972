"""Who has to go, from what a connection has done: no sockets, no clock."""

import pytest

from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.overdue_connections import (
    SLOWEST_READER,
    SLOWEST_REQUEST,
    Conduct,
    overdue,
)

LIMITS = ListenerLimits()


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
        ({"owing": 31.0}, "half-request"),
        ({"owing": 31.0, "waiting": True}, "half-request"),
        ({"owing": 31.0, "came": 2 * SLOWEST_REQUEST}, None),
        ({"owing": 33.0, "came": 2 * SLOWEST_REQUEST}, "half-request"),
        ({"starved": 9.0}, None),
        ({"starved": 11.0}, "no-memory-for-request"),
        ({"unread": 59.0, "draining": 500.0}, None),
        ({"unread": 61.0, "draining": 61.0}, "not-reading"),
        ({"half_closed": 59.0, "waiting": True}, None),
        ({"half_closed": 61.0, "waiting": True}, "half-closed"),
    ],
)
def test_connection_goes_when_it_is_overdue_and_says_with_what(known, reason):
    assert overdue(conduct(**known), LIMITS, short=False) == reason


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"unread": 1.0, "draining": 9.0}, None),
        ({"unread": 1.0, "draining": 11.0}, "not-reading"),
        ({"unread": 1.0, "draining": 11.0, "taken": 2 * SLOWEST_READER}, None),
        ({"unread": 1.0, "draining": 13.0, "taken": 2 * SLOWEST_READER}, "not-reading"),
        ({"silent": 500.0}, None),
    ],
)
def test_slow_reader_is_closed_sooner_while_memory_is_short(known, reason):
    assert overdue(conduct(**known), LIMITS, short=True) == reason
