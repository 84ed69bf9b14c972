"""Ports of a local cluster: picked once, kept between runs, and held while the cluster runs.

A socket of the cluster's own process is bound to a held port and does not listen on it. The brokers
may listen there, since both sides allow it (SO_REUSEADDR). The kernel assigns the port to no
connection, and no other picker takes it: neither before a broker first listens nor while it is
down.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Mapping
from typing import Self

import msgspec

LOOPBACK = "127.0.0.1"
PICKED = range(20_000, 29_000)
"""Outside the range that the kernel assigns to connections (from 32768 on) and that of Kubernetes'
NodePort Services (from 30000 on)."""
TRIES = 1_000


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's ports; 0: an earlier version picked none."""

    kafka: int
    metrics: int
    replication: int = 0


class HeldPorts:
    """Holds free ports, all distinct, and ports that are stated or of an earlier run."""

    def __init__(self, address: str = LOOPBACK) -> None:
        self._address = address
        self._sockets: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pick(self) -> int:
        """Hold and return a free port. Raises OSError if none is found in `TRIES`."""
        for _ in range(TRIES):
            port = random.choice(PICKED)
            if self.claim(port):
                return port
        raise OSError(errno.EADDRINUSE, f"no free port found in {TRIES} tries")

    def claim(self, port: int) -> bool:
        """Hold a port; return False if it is in use."""
        return self._hold(port, shared=False)

    def keep(self, port: int) -> None:
        """Hold a stated port, or one of an earlier run with connections that may still be closing.
        If another process listens there, the component that listens later reports it."""
        if port not in self._sockets:
            self._hold(port, shared=True)

    def _hold(self, port: int, *, shared: bool) -> bool:
        held = socket.socket(family_of(self._address))
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
            held.bind((self._address, port))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            held.close()
            return False
        self._sockets[port] = held
        return True

    def close(self) -> None:
        for held in self._sockets.values():
            held.close()
        self._sockets.clear()


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def taken(
    brokers: Mapping[int, Ports], listeners: tuple[int, ...] = (), address: str = LOOPBACK
) -> str:
    """Return a sentence about a port that another process listens on, or "". `listeners`: ports of
    declared listeners, to which each broker adds its id."""
    for broker_id, ports in sorted(brokers.items()):
        declared = [port + broker_id for port in listeners]
        own = [*declared, ports.replication, ports.metrics]
        for port in own if declared else (ports.kafka, *own):
            with socket.socket(family_of(address)) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    tried.bind((address, port))
                except OSError as error:
                    return (
                        f"Port {port} of broker {broker_id} is unavailable: {error.strerror}. "
                        "Stop the process that listens on it, or choose another client port "
                        "with --port."
                    )
    return ""
