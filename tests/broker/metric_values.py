"""What a broker's metrics say, by name, for tests that have no whole broker."""

from types import SimpleNamespace
from typing import Any

from plimsoll_broker.metrics import PREFIX, BrokerCollector
from plimsoll_broker.replicas import ReplicaManager


def told(manager: ReplicaManager | None = None, **node: Any) -> dict[str, float]:
    """Values by name, without the prefix, and by the labels' values; `node`: what differs from a
    broker that is ready and idle."""
    idle = {
        "ready": True,
        "listeners": {},
        "controller_silent_ms": 0,
        "unknown_metadata": "",
        "handler_failures": {},
        "holds": None,
    }
    asked: Any = SimpleNamespace(manager=manager, **{**idle, **node})
    return {
        sample.name.removeprefix(PREFIX) + "".join(sample.labels.values()): sample.value
        for metric in BrokerCollector(asked).collect()
        for sample in metric.samples
    }
