"""ListenerLimits and ConnectionOrder: a listener's limits, and the choice of the connection to
evict for a new one.

Sessions and the listener enforce them. Each listener has limits of its own, so that clients cannot
use up what brokers need. No I/O.

`Progress`: computes how many bytes moved in the last seconds, from samples of a running total. A
ReplySender and a RequestReceiver own one each. A client is judged by its recent rate; an average
since the beginning would stay high for hours after a fast start. Pure.

`Activity`: the times since which a connection has been silent, has owed the rest of a request, or
has waited for memory, in seconds of the event loop's clock.

`overdue`: decides whether a connection has exceeded its listener's time limits, and gives the
reason for closing it. A listener calls it at each sweep: for a client that sends nothing, does not
read its replies or does not finish its request, and for a request without memory. Pure.

`AddressAdmission`: admits or rejects a listener's connections by address, before anything is read.
Plaintext connections are judged when they are accepted, TLS connections before their handshake.
`plimsoll_core.quotas.connections` holds the limits, which all listeners share. A connection over
the rate limit is closed after a delay, as in Kafka, so that a client that reconnects at once has to
wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plimsoll_core.quotas.connections import AddressConnections
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire.api_versions import ApiKey

_MARKS = 16
"""The number of samples in a window. `Progress.within` keeps no more, however often it is
called."""


class Progress:
    """Samples of a running total of bytes, from which the recent amount is computed. The listener's
    sweep calls `within`, which takes a sample if one is due."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        # The samples: the time of each, with the total at that time.
        self._marks: deque[tuple[float, int]] = deque()

    def begins(self) -> None:
        """Forget all samples. Called when another request or reply begins."""
        self._marks.clear()

    def within(self, now: float, total: int, window_s: float) -> int | None:
        """Record a sample of `total` at `now` (seconds) if one is due, and return how many bytes it
        has grown in the last `window_s` seconds. Return None if the samples do not reach back that
        far. If calls are rare, the window is longer."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= now - window_s:
            marks.popleft()
        found = total - marks[0][1] if marks and marks[0][0] <= now - window_s else None
        if not marks or now - marks[-1][0] >= window_s / _MARKS:
            marks.append((now, total))
        return found


MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of one listener.

    `connections_max`: open connections; beyond it, one of the principal with the most is evicted
    for a new one (`ConnectionOrder`), or, if `makes_room` is False, the new one is rejected.
    `silent_ms_max`: how long a new connection may send nothing. `idle_ms_max`: how long a later one
    may, if it has no pending request. `half_closed_ms_max`: how long a half-closed connection may
    wait for replies. `request_ms_max`: the time from the first byte of a request to its last,
    unless it has arrived fast enough lately (`SLOWEST_REQUEST`); `request_short_ms_max` while other
    requests wait for memory that its principal's requests hold. `unread_ms_max`: how long the peer
    may take no byte of its replies; `unread_short_ms_max` while memory is short. `starved_ms_max`:
    how long a request may wait for memory. `frame_bytes_max`: the largest Produce;
    `other_frame_bytes_max`: the largest other request of a served API; `unknown_frame_bytes_max`:
    the largest request of any other API. `in_flight_max`: requests of one connection without a
    reply. `output_bytes_max`: unsent bytes of one connection, beyond which it is neither read nor
    served nor granted memory until all are sent.
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
        """Return the largest size, in bytes, of a request of a served API."""
        if api_key == ApiKey.PRODUCE:
            return self.frame_bytes_max
        return min(self.other_frame_bytes_max, self.frame_bytes_max)

    def owing_ms(self, wanted: bool) -> int:
        """Return the time in ms that an unfinished request may take from its first byte to its
        last. `wanted`: True if other requests wait for memory that this principal's requests hold,
        which shortens the time."""
        return (
            min(self.request_ms_max, self.request_short_ms_max) if wanted else self.request_ms_max
        )

    @property
    def sweep_ms(self) -> int:
        """The interval in ms at which the listener looks for overdue connections: a quarter of the
        shortest limit, at least 10 ms."""
        times = (self.silent_ms_max, self.idle_ms_max, self.half_closed_ms_max)
        others = (self.request_ms_max, self.unread_ms_max, self.unread_short_ms_max)
        return max(min(*times, *others, self.starved_ms_max) // 4, 10)


STRANGERS_PART = 8
"""The divisor of a listener's connections: if more than 1/STRANGERS_PART of them have made no
request, those are evicted first."""


class MayBeClosed(Protocol):
    """The attributes of a connection by which `ConnectionOrder` chooses one to evict. `holder`: the
    principal that it is counted for."""

    @property
    def is_broker(self) -> bool: ...

    @property
    def holder(self) -> str: ...


C = TypeVar("C", bound=MayBeClosed)


class ConnectionOrder(Generic[C]):
    """A listener's open connections, by principal and by the time of their last request. It chooses
    the connection to evict for a new one.

    `shares` counts connections of clients and strangers (connections without a request). It never
    refuses a connection: a listener takes any number of one principal's connections, and when all
    are in use the principal with the most loses one.
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
        """The clients' connections that have made a request."""
        return [client for held in self._clients.values() for client in held]

    def opened(self, connection: C) -> None:
        self._add(self._strangers, connection)

    def requested(self, connection: C) -> None:
        """Record that the connection has made a request: of its principal's connections it is
        evicted last from now on. A broker's connection is no longer counted for a principal, and
        never evicted."""
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
        """Return the connection to evict for a new one, or None if none may be evicted.

        If there are many strangers, or no clients: the oldest stranger of the address with the
        most. Otherwise the client with the least recent request, of the principal with the most
        connections. Clients of the principals in `keeps` are chosen last. A broker's connection is
        never evicted.
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
    """Return the first connection of the principal with the most connections, or None if there are
    no connections. Of principals with equally many, take the one that came first."""
    if not by_principal:
        return None
    most = max(by_principal, key=lambda principal: len(by_principal[principal]))
    return next(iter(by_principal[most]))


class Activity:
    """The times at which one connection changed state, from which its session computes `Conduct`. A
    time is None while its state does not apply."""

    __slots__ = ("half_closed_s", "heard_s", "opened_s", "owing_s", "spoken", "starved_s")

    def __init__(self, now_s: float) -> None:
        self.opened_s = now_s
        # Arrival of the last byte; `opened_s` before the first.
        self.heard_s = now_s
        # True once it has made a request after login.
        self.spoken = False
        # Arrival of the first byte of an unfinished request.
        self.owing_s: float | None = None
        # Since when it has waited for memory for the rest.
        self.starved_s: float | None = None
        # When the peer half-closed the connection.
        self.half_closed_s: float | None = None

    def silent_for(self, now_s: float, muted_until_s: float, *, let_in: bool) -> float:
        """Return the seconds from the last received byte to `now_s`. For a muted connection, count
        from the end of the muting, or 0 before that; for one without login (`let_in` is False),
        count from the connect."""
        heard_s = max(self.heard_s, min(muted_until_s, now_s))
        return now_s - (heard_s if let_in else self.opened_s)

    def waits(self, now_s: float, *, owing: bool, starved: bool) -> None:
        """Set the times since which the connection has owed the rest of a request (`owing`) and has
        waited for memory (`starved`): `now_s` unless already set. Clear each time if its argument
        is False."""
        self.owing_s = _since(self.owing_s, now_s) if owing else None
        self.starved_s = _since(self.starved_s, now_s) if starved else None


def _since(before_s: float | None, now_s: float) -> float:
    return now_s if before_s is None else before_s


def seconds_since(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else now_s - at_s


SLOWEST_REQUEST = 16 * 1024
"""The least rate, in bytes per second, at which a client must have sent a large request lately."""
SLOWEST_WANTED = 256 * 1024
"""The least rate, in bytes per second, of a large request while others wait for memory that its
principal's requests hold."""
SLOWEST_READER = 64 * 1024
"""The least rate, in bytes per second, at which a reader must have read lately while memory is
short."""
_LATELY_PART = 0.75
"""The part of a time limit over which `lately` measures progress. The rest allows for the time
between two sweeps, up to a quarter of the limit. An average since the beginning would credit the
bytes that the kernel buffered at first."""

REASONS = (
    "frame-too-large",
    "half-closed",
    "half-request",
    "handler-failed",
    "idle",
    "made-room",
    "malformed",
    "no-memory-for-reply",
    "no-memory-for-request",
    "not-reading",
    "reply-too-large",
    "silent",
    "unsupported-version",
)
"""The reasons for closing connections, listed so that all are counted from the start; handlers add
a few."""


@dataclass(slots=True, kw_only=True)
class Conduct:
    """The behaviour of a connection at one moment, by which `overdue` judges it. Durations are in
    seconds; None means that the state does not apply.

    `silent`: time since its last byte. `spoken`: True if it has ever made a request. `waiting`:
    True if a reply is pending. `owing`: time since the first byte of an unfinished request; `came`:
    bytes of that request that arrived lately (`lately`). `starved`: time since memory for the rest
    of the request was requested. `unread`: time since the peer last took bytes of replies.
    `draining`: time since replies have been unsent; `taken`: bytes of them that the peer took
    lately. `came` and `taken` are None until the connection has been watched long enough.
    `half_closed`: time since the peer half-closed.
    """

    silent: float
    spoken: bool
    waiting: bool
    owing: float | None = None
    came: int | None = None
    starved: float | None = None
    unread: float | None = None
    draining: float | None = None
    taken: int | None = None
    half_closed: float | None = None


def lately(ms_max: int) -> float:
    """Return the seconds over which progress is measured for a limit of `ms_max`."""
    return ms_max / 1000 * _LATELY_PART


def overdue(
    conduct: Conduct, limits: ListenerLimits, *, short: bool = False, wanted: bool = False
) -> str | None:
    """Return the reason (one of REASONS) to close a connection with this conduct, or None if it
    exceeds no limit. `short`: True if a client waits for memory that unsent replies of this
    principal hold; `wanted`: True if a client waits for memory that unfinished requests of this
    principal hold."""
    if _after(conduct.starved, limits.starved_ms_max):
        return "no-memory-for-request"
    # A connection that waits for memory is not read, so it is not slow.
    least = SLOWEST_WANTED if wanted else SLOWEST_REQUEST
    slow = _is_slow(conduct.owing, conduct.came, limits.owing_ms(wanted), least)
    if slow and conduct.starved is None:
        return "half-request"
    if _after(conduct.unread, limits.unread_ms_max):
        return "not-reading"
    short_ms = limits.unread_short_ms_max
    if short and _is_slow(conduct.draining, conduct.taken, short_ms, SLOWEST_READER):
        return "not-reading"
    if _after(conduct.half_closed, limits.half_closed_ms_max):
        return "half-closed"
    if conduct.waiting or conduct.unread is not None:
        return None
    if not conduct.spoken and _after(conduct.silent, limits.silent_ms_max):
        return "silent"
    return "idle" if _after(conduct.silent, limits.idle_ms_max) else None


def _after(seconds: float | None, ms_max: int) -> bool:
    return seconds is not None and seconds > ms_max / 1000


def _is_slow(seconds: float | None, moved: int | None, ms_max: int, least: int) -> bool:
    """Return True if `seconds` exceeds `ms_max` and the recent rate was below `least` bytes per
    second. `moved`: the recent bytes. Return False if `moved` is None (not known yet)."""
    return _after(seconds, ms_max) and moved is not None and moved < least * lately(ms_max)


DELAYED_MAX = 1_000
"""The most rejected connections that wait to be closed. Further ones are closed at once."""


class AddressAdmission:
    """Admits or rejects the connections of one listener by address. `closed_for`: the number of
    rejections by reason."""

    def __init__(self, addresses: AddressConnections, closed_for: Counter[str]) -> None:
        self._addresses = addresses
        self._closed_for = closed_for
        self._delayed: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def arrived(self, transport: asyncio.Transport) -> bool:
        """Count the connection for its address and return True if it may be served; the caller must
        call `left` when it ends. Otherwise count the rejection, close the connection, at once or
        after a delay, and return False."""
        host = host_of(transport)
        verdict = self._addresses.arrived(host, time.monotonic_ns() // 1_000_000)
        if not verdict.reason:
            return True
        self._closed_for[verdict.reason] += 1
        if verdict.closed_after_ms and len(self._delayed) < DELAYED_MAX:
            transport.pause_reading()
            loop = asyncio.get_running_loop()
            after_s = verdict.closed_after_ms / 1000
            self._delayed[transport] = loop.call_later(after_s, self._close, transport)
        else:
            transport.abort()
        return False

    def left(self, host: str) -> None:
        """Stop counting a served connection of this address, because it has ended."""
        self._addresses.left(host)

    def close(self) -> None:
        """Close all connections that wait to be closed. Called when the listener stops."""
        for transport in list(self._delayed):
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self._delayed.pop(transport).cancel()
        transport.abort()


def host_of(transport: asyncio.BaseTransport) -> str:
    """Return the peer's IP address, or an empty string if it is not known."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
