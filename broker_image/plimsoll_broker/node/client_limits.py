"""The limits of a broker's clients, from its configs and from the limits of its process.

Called by `assembly` once per lifetime. Configs have Kafka's names where Kafka has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from plimsoll_broker.server.client_memory_pools import MEMORY_ASSUMED, Budgets, budgets_of
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_core.cluster.cluster_configs import OWN_DEFAULTS
from plimsoll_core.quotas.connections import AddressConnections, per_ip_overrides

CONNECTIONS_MIN = 64


def address_limits(configs: Mapping[str, str]) -> AddressConnections:
    """Return the limits of connections by address."""
    name, of_some = "max.connections.per.ip", "max.connections.per.ip.overrides"
    overrides = per_ip_overrides(configs.get(of_some, OWN_DEFAULTS[of_some]))
    assert overrides is not None, f"{of_some} was not checked"
    return AddressConnections(int(configs.get(name, OWN_DEFAULTS[name])), overrides)


PARTITION_BYTES = 24 * 1024
"""The memory of an idle replica, with its log's first segment."""
_PARTITIONS_PART = 4


def partitions_max(
    configs: Mapping[str, str], memory: int | None = None, files: int | None = None
) -> int:
    """Return the number of replicas for which there is room: in a quarter of the memory, and so
    that the active segment of each may be open. `memory`, `files`: as for `client_limits`."""
    stated = int(configs.get("memory.limit.bytes", OWN_DEFAULTS["memory.limit.bytes"]))
    memory = stated if stated > 0 else memory or MEMORY_ASSUMED
    by_memory = memory // _PARTITIONS_PART // PARTITION_BYTES
    return by_memory if files is None else min(by_memory, files // 2)


class ClientLimits(NamedTuple):
    listener: ListenerLimits
    budgets: Budgets


def client_limits(
    configs: Mapping[str, str], memory: int | None = None, files: int | None = None
) -> ClientLimits:
    """Return the clients' limits. `memory`: bytes that the process may use. `files`: descriptors,
    of which client connections get three eighths, logs half and everything else an eighth. None:
    not limited, or not known."""

    def number(name: str) -> int | None:
        value = int(configs.get(name, OWN_DEFAULTS[name]))
        return None if value < 0 else value

    budgets = budgets_of(
        number("memory.limit.bytes") or memory,
        replies=number("queued.max.response.bytes"),
        requests=number("queued.max.request.bytes"),
        frame=number("socket.request.max.bytes"),
    )
    connections = number("max.connections") or CONNECTIONS_MIN
    if files is not None:
        connections = min(connections, max(3 * files // 8, CONNECTIONS_MIN))
    listener = ListenerLimits(
        connections_max=connections,
        idle_ms_max=number("connections.max.idle.ms") or ListenerLimits().idle_ms_max,
        frame_bytes_max=budgets.frame,
    )
    return ClientLimits(listener, budgets)
