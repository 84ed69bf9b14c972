"""What a broker's metrics say, by name, for tests that have no whole broker."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.node.broker_metrics import PREFIX, BrokerCollector
from plimsoll_broker.replication.replica_manager import ReplicaManager


def a_node(**differs: Any) -> Any:
    """What is asked: a broker that is ready and idle, but for what `differs`."""
    idle = {
        "manager": None,
        "authority": None,
        "quotas": None,
        "long_work": None,
        "coordinators": None,
        "ready": True,
        "listeners": {},
        "controller_silent_ms": 0,
        "unknown_metadata": "",
        "handler_failures": {},
        "holds": None,
        "inside": InsidePeers(UUID(int=0)),
    }
    return SimpleNamespace(**{**idle, **differs})


def told(manager: ReplicaManager | None = None, **node: Any) -> dict[str, float]:
    """Values by name, without the prefix, and by the labels' values; `node`: see `a_node`."""
    asked = a_node(manager=manager, **node)
    return {
        sample.name.removeprefix(PREFIX) + "".join(sample.labels.values()): sample.value
        for metric in BrokerCollector(asked).collect()
        for sample in metric.samples
    }
