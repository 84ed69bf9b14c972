"""One listener's limits for its connections: numbers, sizes, times, and which one makes room.

Made with a `Server`; sessions and the server keep to it.  Each listener has limits of
its own, so that what clients use up is nothing that brokers need.  Values and one decision: which
connection makes room for a new one; no I/O.  Which one is closed because it has used up its time,
`overdue_connections` decides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plimsoll_wire.api_versions import ApiKey

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """`connections_max`: open at a time; beyond it the one that made no request for longest is
    closed for a new one, or, where `makes_room` is False, the new one is turned away.
    `silent_ms_max`: how long a new connection may send nothing; `idle_ms_max`: a
    client that waits for nothing.  `half_closed_ms_max`: one that sends no more but waits.
    `request_ms_max`: from a request's first byte to its last, unless it came fast enough lately
    (`overdue_connections.SLOWEST_REQUEST`), `request_short_ms_max` while others wait for the memory
    that requests of its principal hold; `unread_ms_max`: replies of which nothing is taken,
    `unread_short_ms_max` while memory is short; `starved_ms_max`: a request for which there is no
    memory.
    `frame_bytes_max`: one Produce; `other_frame_bytes_max`: any other request that is served;
    `unknown_frame_bytes_max`: of APIs that are not served.
    `in_flight_max`: requests of one connection that have no reply yet.
    `output_bytes_max`: unsent bytes of one connection beyond which it is neither read nor
    answered nor granted more, until all of them are sent."""

    connections_max: int = 4096
    makes_room: bool = True
    silent_ms_max: int = 30 * 1000
    idle_ms_max: int = 10 * 60 * 1000
    half_closed_ms_max: int = 60 * 1000
    request_ms_max: int = 30 * 1000
    request_short_ms_max: int = 5 * 1000
    unread_ms_max: int = 60 * 1000
    unread_short_ms_max: int = 10 * 1000
    starved_ms_max: int = 10 * 1000
    frame_bytes_max: int = 100 * MIB
    other_frame_bytes_max: int = 4 * MIB
    unknown_frame_bytes_max: int = 64 * 1024
    in_flight_max: int = 64
    output_bytes_max: int = 256 * 1024

    def frame_bytes(self, api_key: int) -> int:
        """How large a request of a served API may be."""
        if api_key == ApiKey.PRODUCE:
            return self.frame_bytes_max
        return min(self.other_frame_bytes_max, self.frame_bytes_max)

    def owing_ms(self, wanted: bool) -> int:
        """After how long an unfinished request goes; `wanted`: others wait for its memory."""
        return (
            min(self.request_ms_max, self.request_short_ms_max) if wanted else self.request_ms_max
        )

    @property
    def sweep_ms(self) -> int:
        """The interval of the search for overdue connections."""
        times = (self.silent_ms_max, self.idle_ms_max, self.half_closed_ms_max)
        others = (self.request_ms_max, self.unread_ms_max, self.unread_short_ms_max)
        return max(min(*times, *others, self.starved_ms_max) // 4, 10)


class MayBeClosed(Protocol):
    """A connection, as far as the choice of one to close looks at it."""

    @property
    def is_broker(self) -> bool: ...


C = TypeVar("C", bound=MayBeClosed)


class RequestOrder(Generic[C]):
    """A listener's open connections, by the time of their last request."""

    def __init__(self) -> None:
        # Each with its last request the longest ago first.  Strangers have made none.
        self.strangers: OrderedDict[C, None] = OrderedDict()
        self.clients: OrderedDict[C, None] = OrderedDict()
        self.brokers: OrderedDict[C, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.strangers) + len(self.clients) + len(self.brokers)

    def __iter__(self) -> Iterator[C]:
        return iter([*self.strangers, *self.clients, *self.brokers])

    def opened(self, connection: C) -> None:
        self.strangers[connection] = None

    def requested(self, connection: C) -> None:
        """It made a request, and is the last that makes room."""
        ordered = self.brokers if connection.is_broker else self.clients
        if connection in ordered:
            ordered.move_to_end(connection)
        else:
            self.closed(connection)
            ordered[connection] = None

    def closed(self, connection: C) -> None:
        for ordered in (self.strangers, self.clients, self.brokers):
            ordered.pop(connection, None)

    def makes_room(self) -> C | None:
        """The client that made no request for longest, first of those that never made any; a
        broker's connection is never closed for a new one."""
        for ordered in (self.strangers, self.clients):
            if ordered:
                return next(iter(ordered))
        return None
