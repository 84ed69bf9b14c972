"""ListenerLimits and RequestOrder: a listener's limits, and the connection that makes room for a
new one.

Made with a `Server`; sessions and the server enforce them. Each listener has limits of its own, so
that clients cannot use up what brokers need. No I/O. `overdue_connections` decides which
connections are closed for taking too long.
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
    """Limits of one listener.

    `connections_max`: open connections; beyond it, one of the principal with the most is evicted
    for a new one (`RequestOrder`), or, if `makes_room` is False, the new one is rejected.
    `silent_ms_max`: how long a new connection may send nothing. `idle_ms_max`: the same for a
    client without a pending request. `half_closed_ms_max`: for a half-closed connection that waits
    for replies. `request_ms_max`: from the first byte of a request to its last, unless it has
    arrived fast enough lately (`overdue_connections.SLOWEST_REQUEST`); `request_short_ms_max` while
    others wait for memory that its principal's requests hold. `unread_ms_max`: replies of which the
    peer takes nothing; `unread_short_ms_max` while memory is short. `starved_ms_max`: a request for
    which there is no memory. `frame_bytes_max`: the size of a Produce; `other_frame_bytes_max`: of
    any other served request; `unknown_frame_bytes_max`: of an API that is not served.
    `in_flight_max`: requests of one connection without a reply. `output_bytes_max`: unsent bytes of
    one connection, beyond which it is neither read nor served nor granted memory until all are
    sent.
    """

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
        """Return the largest size of a request of a served API."""
        if api_key == ApiKey.PRODUCE:
            return self.frame_bytes_max
        return min(self.other_frame_bytes_max, self.frame_bytes_max)

    def owing_ms(self, wanted: bool) -> int:
        """Return how long an unfinished request may take, in ms. `wanted`: others wait for its
        memory."""
        return (
            min(self.request_ms_max, self.request_short_ms_max) if wanted else self.request_ms_max
        )

    @property
    def sweep_ms(self) -> int:
        """The interval of the sweep for overdue connections, in ms."""
        times = (self.silent_ms_max, self.idle_ms_max, self.half_closed_ms_max)
        others = (self.request_ms_max, self.unread_ms_max, self.unread_short_ms_max)
        return max(min(*times, *others, self.starved_ms_max) // 4, 10)


STRANGERS_PART = 8
"""If more than this part of a listener's connections have made no request, those are evicted
first."""


class MayBeClosed(Protocol):
    """The part of a connection that the choice of one to evict needs."""

    @property
    def is_broker(self) -> bool: ...

    @property
    def holder(self) -> str: ...


C = TypeVar("C", bound=MayBeClosed)


class RequestOrder(Generic[C]):
    """A listener's open connections, by principal and by the time of their last request.

    `shares` counts connections of clients and strangers (connections without a request). It refuses
    none: a listener takes any number of one principal's connections, and when all are in use the
    principal with the most makes room.
    """

    def __init__(self, connections_max: int) -> None:
        self.shares = FairPool(connections_max)
        # By principal, the least recent request first. A stranger's principal is its address.
        self._strangers: dict[str, OrderedDict[C, None]] = {}
        self._clients: dict[str, OrderedDict[C, None]] = {}
        self.brokers: OrderedDict[C, None] = OrderedDict()
        # The principal that each stranger or client is counted for.
        self._counted: dict[C, str] = {}
        # The client that made the most recent request of all.
        self._newest: C | None = None

    def __len__(self) -> int:
        return len(self._counted) + len(self.brokers)

    def __iter__(self) -> Iterator[C]:
        return iter([*self._counted, *self.brokers])

    @property
    def clients(self) -> list[C]:
        """The connections that have made a request."""
        return [client for held in self._clients.values() for client in held]

    def opened(self, connection: C) -> None:
        self._add(self._strangers, connection)

    def requested(self, connection: C) -> None:
        """Move the connection to the end of its principal's order: it has made a request."""
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
        """Return the connection to evict for a new one, or None.

        If there are many strangers, or no clients: the oldest stranger of the address with the
        most. Otherwise the client with the least recent request, of the principal with the most
        connections. Clients of `keeps` come last. A broker's connection is never evicted.
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
    """Return the first connection of the principal with the most; of equals, of the one that came
    first."""
    if not by_principal:
        return None
    most = max(by_principal, key=lambda principal: len(by_principal[principal]))
    return next(iter(by_principal[most]))
