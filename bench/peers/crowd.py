"""Connections of clients that stay idle after one request or greeting."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
WAIT_S = 30
GREETED = "nats://"


@contextmanager
def connections(bootstrap: str, count: int) -> Iterator[None]:
    """Hold so many, spread over the servers."""
    addresses = [one.removeprefix(GREETED) for one in bootstrap.split(",")]
    with ExitStack() as stack:
        for number in range(count):
            host, _, port = addresses[number % len(addresses)].rpartition(":")
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=WAIT_S))
            if bootstrap.startswith(GREETED):
                one.recv(4096)
                one.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            else:
                one.sendall(API_VERSIONS)
            assert one.recv(4096), "the server closed"
        yield
