"""One listener's limits for its connections: numbers, sizes, times, and which one makes room.

Made with a `Server`; sessions and the server keep to it.  Each listener has limits of
its own, so that what clients use up is nothing that brokers need.  Values and one decision: which
connection makes room for a new one; no I/O.  Which one is closed because it has used up its time,
`overdue_connections` decides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire.api_versions import ApiKey

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """`connections_max`: open at a time; beyond it one of the principal that has most is closed for
    a new one (`RequestOrder`), or, where `makes_room` is False, the new one is turned away.
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


STRANGERS_PART = 8
"""Of a listener's connections: so many may be without a request before they make room first."""


class MayBeClosed(Protocol):
    """A connection, as far as the choice of one to close looks at it."""

    @property
    def is_broker(self) -> bool: ...

    @property
    def holder(self) -> str: ...


C = TypeVar("C", bound=MayBeClosed)


class RequestOrder(Generic[C]):
    """A listener's open connections, by principal and by the time of their last request.

    `shares` counts clients' and strangers' connections.  Nobody is refused by it: a listener takes
    as many of one principal as there are, and while all are in use whoever has most makes room.
    """

    def __init__(self, connections_max: int) -> None:
        self.shares = FairPool(connections_max)
        # By principal, each with its last request the longest ago first.  A stranger has made none:
        # its principal is its address.
        self._strangers: dict[str, OrderedDict[C, None]] = {}
        self._clients: dict[str, OrderedDict[C, None]] = {}
        self.brokers: OrderedDict[C, None] = OrderedDict()
        # As whom a stranger or a client is counted.
        self._counted: dict[C, str] = {}
        # The client that made the last request of all.
        self._newest: C | None = None

    def __len__(self) -> int:
        return len(self._counted) + len(self.brokers)

    def __iter__(self) -> Iterator[C]:
        return iter([*self._counted, *self.brokers])

    @property
    def clients(self) -> list[C]:
        """Those that have made a request."""
        return [client for held in self._clients.values() for client in held]

    def opened(self, connection: C) -> None:
        self._add(self._strangers, connection)

    def requested(self, connection: C) -> None:
        """It made a request, and is the last of its principal that makes room."""
        if connection.is_broker:
            if connection not in self.brokers:
                self.closed(connection)
                self.brokers[connection] = None
        elif connection is not self._newest:
            held = self._clients.get(self._counted.get(connection, ""))
            if held is not None and connection in held:
                held.move_to_end(connection)
            else:
                self.closed(connection)
                self._add(self._clients, connection)
            self._newest = connection

    def closed(self, connection: C) -> None:
        if connection is self._newest:
            self._newest = None
        self.brokers.pop(connection, None)
        principal = self._counted.pop(connection, None)
        if principal is None:
            return
        for by_principal in (self._strangers, self._clients):
            held = by_principal.get(principal)
            if held is not None and connection in held:
                del held[connection]
                self.shares.give_back(principal, 1)
                if not held:
                    del by_principal[principal]

    def makes_room(self, keeps: Container[str] = ()) -> C | None:
        """The connection to close for a new one.

        Of strangers, where there are many, or nothing else: the oldest of the address that has most
        of them.  Of clients: the one that made no request for longest, of the principal that has
        most connections, and of those that it `keeps` at last.  A broker's connection is never
        closed for a new one.
        """
        strangers = sum(map(len, self._strangers.values()))
        if strangers > self.shares.capacity // STRANGERS_PART:
            return _first_of_most(self._strangers)
        others = {name: held for name, held in self._clients.items() if name not in keeps}
        return (
            _first_of_most(others)
            or _first_of_most(self._strangers)
            or _first_of_most(self._clients)
        )

    def _add(self, by_principal: dict[str, OrderedDict[C, None]], connection: C) -> None:
        principal = self._counted[connection] = connection.holder
        by_principal.setdefault(principal, OrderedDict())[connection] = None
        self.shares.take(principal, 1)


def _first_of_most(by_principal: Mapping[str, OrderedDict[C, None]]) -> C | None:
    """The first of whoever has most; of several that have as many, of whoever came first."""
    if not by_principal:
        return None
    most = max(by_principal, key=lambda principal: len(by_principal[principal]))
    return next(iter(by_principal[most]))
