"""What a listener counts; its sessions write, the metrics endpoint reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from plimsoll_broker.handler_failures import HandlerFailures


@dataclass(slots=True)
class ServerStats:
    """Counters that only grow."""

    accepted: int = 0
    turned_away: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    closed_for: Counter[str] = field(default_factory=Counter)
    handler_failures: HandlerFailures = field(default_factory=HandlerFailures)
