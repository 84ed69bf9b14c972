"""A listener's limits: values that follow from other values."""

from plimsoll_broker.server.connection_limits import MIB, ListenerLimits
from plimsoll_wire.api_versions import ApiKey

LIMITS = ListenerLimits()


def test_request_limit_is_large_for_produce_alone():
    assert LIMITS.frame_bytes(ApiKey.PRODUCE) == 100 * MIB
    assert LIMITS.frame_bytes(ApiKey.FETCH) == 4 * MIB
    assert ListenerLimits(frame_bytes_max=MIB).frame_bytes(ApiKey.FETCH) == MIB


def test_listener_limits_sweep_interval_follows_the_shortest_limit():
    assert LIMITS.sweep_ms == 2500
    assert ListenerLimits(idle_ms_max=200).sweep_ms == 50
