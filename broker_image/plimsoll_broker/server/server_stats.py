"""ServerStats: a listener's counts of connections and requests, and the requests' durations.

Written by the listener and its sessions for each request, read by the metrics.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from plimsoll_broker.handler_failures import HandlerFailures
from plimsoll_process.durations import Durations
from plimsoll_wire.api_versions import ApiKey


class RequestTimes(dict[int, Durations]):
    """By API key: the time from reading a request until its reply was handed to the socket, or,
    without a reply, until its handler returned."""

    def __missing__(self, api_key: int) -> Durations:
        made = self[api_key] = Durations()
        return made


@dataclass(slots=True)
class ServerStats:
    """Counters that only grow, except `waiting`; the metrics endpoint reads them."""

    accepted: int = 0
    turned_away: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    waiting: int = 0
    """Requests without a reply so far, of all connections."""
    requests: Counter[int] = field(default_factory=Counter)
    times: RequestTimes = field(default_factory=RequestTimes)
    follower_fetches: Durations = field(default_factory=Durations)
    """Brokers' fetches, which `times` leaves out."""
    closed_for: Counter[str] = field(default_factory=Counter)
    handler_failures: HandlerFailures = field(default_factory=HandlerFailures)

    def took(self, api_key: int, seconds: float, *, by_broker: bool) -> None:
        """Record the duration of a request, from read to reply."""
        if by_broker and api_key == ApiKey.FETCH:
            self.follower_fetches.observe(seconds)
        else:
            self.times[api_key].observe(seconds)
