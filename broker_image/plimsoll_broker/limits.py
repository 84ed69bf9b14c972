"""What one listener lets its connections have: numbers, sizes, times.

Made by whoever makes a `Server`; sessions and the server keep to it.  Each listener has limits of
its own, so that what clients use up is nothing that brokers need.  Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """`connections_max`: open at a time.  `idle_ms_max`: silence of a client that waits for
    nothing.  `frame_bytes_max`: one request.  `in_flight_max`: requests of one connection that
    have no reply yet.  `output_bytes_max`: unsent bytes of one connection beyond which it is
    neither read nor answered."""

    connections_max: int = 4096
    idle_ms_max: int = 10 * 60 * 1000
    frame_bytes_max: int = 100 * MIB
    in_flight_max: int = 64
    output_bytes_max: int = 4 * MIB
