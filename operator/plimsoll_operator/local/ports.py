"""Ports of a local cluster: picked once, kept between runs, and held while the cluster runs.

To hold a port, this process binds a socket to it that does not listen. A broker can nevertheless
listen on the port, since both sockets allow that (SO_REUSEADDR). Meanwhile the kernel assigns the
port to no outgoing connection, and no other program that picks free ports gets it, even while the
broker is down.
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
"""Range from which ports are picked. It lies outside the range that the kernel assigns to
connections (from 32768 on) and that of Kubernetes' NodePort Services (from 30000 on)."""
TRIES = 1_000


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's ports: for clients, for metrics, and for other brokers. 0: not picked yet."""

    kafka: int
    metrics: int
    replication: int = 0


class HeldPorts:
    """The ports that this process holds at `address`. Use it as a context manager: leaving it
    releases the ports."""

    def __init__(self, address: str = LOOPBACK) -> None:
        self._address = address
        self._sockets: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pick(self) -> int:
        """Choose a free port in `PICKED`, hold it and return it. Raises OSError after `TRIES` taken
        ones."""
        for _ in range(TRIES):
            port = random.choice(PICKED)
            if self.claim(port):
                return port
        raise OSError(
            errno.EADDRINUSE,
            f"no free port was found on this machine in {TRIES} tries; stop programs that use "
            "many ports, then start the local cluster again",
        )

    def claim(self, port: int) -> bool:
        """Hold a port for later use and return True. Return False, and hold nothing, if the port is
        in use, even by connections that are still closing."""
        return self._hold(port, shared=False)

    def keep(self, port: int) -> None:
        """Hold a port that the user stated, or that an earlier run used, even if connections on it
        are still closing. If another process listens on the port, it is not held; the broker that
        tries to listen there reports that."""
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
    """Return a sentence about the first port of these brokers (by id) on which another process
    listens; "" if there is none. `listeners`: ports of declared listeners, to which each broker
    adds its id; they take the place of the brokers' port for clients."""
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
