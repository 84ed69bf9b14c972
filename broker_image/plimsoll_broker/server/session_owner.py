"""What a listener's server gives each of its sessions.  Made by `listener`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll_broker.server.client_memory_waits import ClientMemory
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import ConnectionState, Dispatch
from plimsoll_broker.server.server_stats import ServerStats
from plimsoll_broker.server.turn_budget import TurnBudget
from plimsoll_core.cluster.listeners import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOwner:
    """What the server gives each of its sessions.  `listener`: as it is now.
    `opened`, `heard` and `closed` take a session."""

    dispatch: Dispatch
    listener: Callable[[], Listener]
    limits: ListenerLimits
    memory: ClientMemory | None
    stats: ServerStats
    turns: TurnBudget
    opened: Callable[[Any], bool]
    heard: Callable[[Any], None]
    closed: Callable[[Any], None]
    failed: Callable[[BaseException], None]

    def serves(self, connection: ConnectionState, api_key: int, version: int) -> bool:
        """Whoever has not logged in may send nothing that is large."""
        return connection.let_in and self.dispatch.find(api_key, version) is not None
