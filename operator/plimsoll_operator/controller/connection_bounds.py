"""What one connection to the controllers' port may take.  Kept by `controller_server`."""

from __future__ import annotations

CONNECTIONS_MAX = 2_000
IN_FLIGHT_MAX = 256
"""Beyond it nothing more is read, heartbeats neither: no broker that keeps to its own bounds, and
to the next one, gets there."""
FORWARDED_MAX = 64
"""Clients' requests that one broker may have waiting here; further ones are refused, and a client's
own before (`forwarded_requests`)."""
FIRST_FRAME_MS_MAX = 10_000
SHOWN_MS_MAX = 3_000
"""So long a client's request waits for the heartbeat that shows whose connection it came over: a
broker sends one every second."""
REGISTRATION_BYTES_MAX = 64 * 1024
"""It is committed as it comes."""
WRITE_BUFFER_BYTES_MAX = 64 * 1024 * 1024
