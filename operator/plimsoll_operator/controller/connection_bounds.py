"""Bounds of one connection to the controllers' port, enforced by `controller_server`."""

from __future__ import annotations

CONNECTIONS_MAX = 2_000
IN_FLIGHT_MAX = 256
"""Maximum requests in flight. Beyond it nothing is read, heartbeats included; a broker within its
own bounds, and within the next one, never reaches it."""
FORWARDED_MAX = 64
"""Client requests that one broker may have waiting here. Further ones are refused; a single client
is bounded below that (`forwarded_requests`)."""
FIRST_FRAME_MS_MAX = 10_000
SHOWN_MS_MAX = 3_000
"""How long a client's request waits for the heartbeat that identifies its connection, in
milliseconds; a broker sends a heartbeat every second."""
REGISTRATION_BYTES_MAX = 64 * 1024
"""Maximum size of a registration, which is committed as received."""
WRITE_BUFFER_BYTES_MAX = 64 * 1024 * 1024
