"""What clients may have follows from the configs, the container's memory and its descriptors."""

import pytest

from plimsoll_broker.node.assembly import client_limits
from plimsoll_broker.server.client_memory import MIB
from plimsoll_core.cluster.cluster_configs import broker_configs
from plimsoll_core.errors import Refusal


def test_defaults_follow_from_the_container():
    listener, budgets = client_limits({}, memory=512 * MIB, files=1_048_576)
    assert (budgets.replies, budgets.requests) == (128 * MIB, 64 * MIB)
    assert (listener.connections_max, listener.frame_bytes_max) == (4096, 64 * MIB)


def test_configs_say_otherwise():
    configs = {
        "memory.limit.bytes": str(2048 * MIB),
        "queued.max.request.bytes": str(10 * MIB),
        "socket.request.max.bytes": str(5 * MIB),
        "max.connections": "100",
        "connections.max.idle.ms": "1000",
    }
    assert broker_configs(configs) == configs, "the LogCluster takes them"
    listener, budgets = client_limits(configs, memory=512 * MIB)
    assert (budgets.replies, budgets.requests) == (512 * MIB, 10 * MIB)
    assert (listener.connections_max, listener.frame_bytes_max) == (100, 5 * MIB)
    assert listener.idle_ms_max == 1000


def test_clients_never_take_the_descriptors_that_logs_need():
    assert client_limits({}, files=1024).listener.connections_max == 384
    assert client_limits({}, files=20).listener.connections_max == 64


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max.connections", "0"),
        ("queued.max.response.bytes", "1000"),
        ("memory.limit.bytes", "512Mi"),
        ("socket.request.max.bytes", "-1"),
    ],
)
def test_value_that_cannot_be_meant_is_refused(name, text):
    refused = broker_configs({name: text})
    assert isinstance(refused, Refusal)
    assert name in refused.message
