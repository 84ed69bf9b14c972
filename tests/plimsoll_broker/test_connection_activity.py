"""Since when a connection is silent, owes a request, or waits for memory."""

from plimsoll_broker.server.connection_limits import Activity


def test_connection_is_silent_since_last_byte_or_unmute() -> None:
    activity = Activity(now_s=10.0)
    activity.heard_s = 12.0
    assert activity.silent_for(20.0, 0.0, let_in=True) == 8.0
    assert activity.silent_for(20.0, 15.0, let_in=True) == 5.0
    assert activity.silent_for(20.0, 90.0, let_in=True) == 0.0, "it is muted still"


def test_unauthenticated_connection_is_silent_since_opened() -> None:
    activity = Activity(now_s=10.0)
    activity.heard_s = 12.0
    assert activity.silent_for(20.0, 15.0, let_in=False) == 10.0


def test_pending_wait_keeps_its_start_and_ends() -> None:
    activity = Activity(now_s=10.0)
    activity.waits(11.0, owing=True, starved=False)
    activity.waits(12.0, owing=True, starved=True)
    assert (activity.owing_s, activity.starved_s) == (11.0, 12.0)
    activity.waits(13.0, owing=False, starved=True)
    assert (activity.owing_s, activity.starved_s) == (None, 12.0)
