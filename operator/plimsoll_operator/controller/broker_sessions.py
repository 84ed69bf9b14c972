"""Tracks which connections each broker process has to the controller, and proves its death when the
last one is closed.

A broker process is identified by its broker id and broker epoch (a lifetime). The server reports
its connections here. A lifetime is proven dead if the peer closed its last connection and its
replication listener refuses a new one: only the process itself opens that listener, whereas a proxy
in front of the client listeners may refuse in its place. If either is missing, nothing is proven,
and the broker is fenced at the session timeout. A hook lets the operator add evidence from pods.
Source: ARCHITECTURE.md, "The controller": failure detection.

A host answers a connection to a closed port with a TCP reset. A firewall that rejects, as network
plugins do without an allowing NetworkPolicy, mostly answers with ICMP "port unreachable", and the
caller gets the same ECONNREFUSED although the broker lives. Only the socket's error queue tells the
two apart. A firewall that sends resets cannot be told from the host. Source: ip(7) and ipv6(7),
IP_RECVERR; linux/errqueue.h.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.model import Broker
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead, Refused, RegisterBroker
from plimsoll_core.unhandled_errors import COSTS
from plimsoll_operator.controller.controller_term import Controller

IP_RECVERR = 11
IPV6_RECVERR = 25
ORIGINS_ICMP = {2, 3}
"""Values of `ee_origin` in a socket's error queue that stand for ICMP (SO_EE_ORIGIN_ICMP) and
ICMPv6 (SO_EE_ORIGIN_ICMP6)."""
ERROR_BYTES_MAX = 512


async def refuses(host: str, port: int, ms_max: int) -> bool:
    """Return True if, within `ms_max` milliseconds in total, the host refuses a connection on each
    of its addresses by a TCP reset. Return False otherwise: an accepted connection, a timeout, an
    unresolved name, an unreachable host or a refusal by ICMP proves nothing."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ms_max / 1000):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, _, _, _, address in found:
                if not await _address_refuses(loop, family, address):
                    return False
    except (OSError, TimeoutError):
        return False
    return bool(found)


async def _address_refuses(loop: asyncio.AbstractEventLoop, family: int, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        keep_errors(sock)
        try:
            await loop.sock_connect(sock, address)
        except ConnectionRefusedError:
            return not told_by_icmp(sock)
        return False


def keep_errors(sock: socket.socket) -> None:
    """Have Linux queue ICMP errors of this socket, for `told_by_icmp` to read. Does nothing on
    other systems."""
    if sys.platform == "linux":
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)


def told_by_icmp(sock: socket.socket) -> bool:
    """Return True if an ICMP message made the socket's connection fail. Return False for a TCP
    reset, and on other systems than Linux."""
    if sys.platform != "linux":
        return False
    try:
        _, ancillary, _, _ = sock.recvmsg(0, ERROR_BYTES_MAX, socket.MSG_ERRQUEUE)
    except OSError:
        return False  # a reset leaves the error queue empty
    kinds = {(socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR)}
    # struct sock_extended_err begins with errno and origin.
    origins = {struct.unpack_from("=IB", data)[1] for *kind, data in ancillary if (*kind,) in kinds}
    return bool(origins & ORIGINS_ICMP)


logger = logging.getLogger("plimsoll.broker_sessions")

PROBE_DELAYS_MS = (0, 20, 50, 100, 200, 400, 800, 1_600)
"""Milliseconds to wait before each of the successive probes of a broker's listener. A dying process
closes its sockets one after another, so the listener may refuse a little later than the connection
closed."""
CONNECT_MS_MAX = 500

Lifetime = tuple[BrokerId, BrokerEpoch]
Evidence = Callable[[Broker], Awaitable[str | None]]
"""Function that reads a broker's pod from the API server. It returns a sentence if that proves that
the broker's process has ended, or None if it does not, or the pod cannot be read."""
Enrich = Callable[[RegisterBroker], Awaitable[RegisterBroker | Refused]]
"""Function that adds to a registration the fields that the broker cannot know itself (its rack). It
returns the registration or a refusal, within a bounded time."""


class BrokerSessions:
    """Open command connections of one cluster's brokers. The server reports each connection that
    opens or closes. When the peer has closed the last connection of a broker process, the process
    is probed: either its death is proven, or the session timeout decides."""

    def __init__(
        self,
        controller: Controller,
        evidence: Evidence | None = None,
        enrich: Enrich | None = None,
    ) -> None:
        self.enrich = enrich
        self._controller = controller
        self._evidence = evidence
        self._connections: dict[Lifetime, set[object]] = {}
        self._proposers: dict[BrokerId, tuple[BrokerEpoch, int]] = {}
        self._probes: dict[Lifetime, asyncio.Task[None]] = {}

    def heard(self, connection: object, lifetime: Lifetime) -> None:
        self._connections.setdefault(lifetime, set()).add(connection)

    def may_propose(self, number: int, lifetime: Lifetime) -> bool:
        """Admit the ISR proposal that arrives on connection `number` and return True, and record
        `number` as the newest connection over which this lifetime (broker process) has proposed.
        Return False if the lifetime has already proposed over a newer connection. For a lifetime
        that is not the registered one, return True and record nothing: the decision refuses the
        proposal.

        A broker gives up a connection before it repeats a proposal over a newer one. Proposals that
        still wait on the older connection must not be decided after the repeated one was answered:
        a leader that was told that its proposal will never be applied stops counting the member
        that the older copy would add.
        """
        broker = self._controller.image.brokers.get(lifetime[0])
        if broker is None or broker.broker_epoch != lifetime[1]:
            return True  # the decision refuses it
        epoch, newest = self._proposers.get(lifetime[0], (lifetime[1], number))
        if epoch == lifetime[1] and newest > number:
            return False
        self._proposers[lifetime[0]] = (lifetime[1], number)
        return True

    def lost(self, connection: object, lifetimes: set[Lifetime], *, by_peer: bool) -> None:
        """Remove a closed connection from these lifetimes (broker processes). If the peer closed
        it, start a probe of each lifetime that has no connection left; the probe reports the
        process to the controller as dead if it can prove that."""
        for lifetime in lifetimes:
            remaining = self._connections.get(lifetime, set())
            remaining.discard(connection)
            if remaining:
                continue
            self._connections.pop(lifetime, None)
            if by_peer and lifetime not in self._probes:
                task = asyncio.ensure_future(self._probe(lifetime))
                self._probes[lifetime] = task
                task.add_done_callback(partial(self._probed, lifetime))

    async def close(self) -> None:
        """Cancel every probe: connections that the server itself closes prove nothing about a
        broker."""
        probes = list(self._probes.values())
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _probed(self, lifetime: Lifetime, task: asyncio.Task[None]) -> None:
        self._probes.pop(lifetime, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            text = (
                f"internal error of the operator while it checked if broker {lifetime[0]} has "
                "ended; if it has, the broker is fenced after its session timeout; please report "
                "this bug"
            )
            context = {"message": text, "exception": error, COSTS: "a proof of death"}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _probe(self, lifetime: Lifetime) -> None:
        for delay_ms in PROBE_DELAYS_MS:
            await asyncio.sleep(delay_ms / 1000)
            broker = self._controller.image.brokers.get(lifetime[0])
            if not self._controller.active or broker is None:
                return
            if broker.broker_epoch != lifetime[1] or broker.fenced or lifetime in self._connections:
                return
            proof = await self._proof(broker)
            if proof is not None:
                await self._controller.request(
                    BrokerProvenDead(
                        broker_id=lifetime[0], broker_epoch=lifetime[1], evidence=proof
                    )
                )
                return

    async def _proof(self, broker: Broker) -> str | None:
        endpoint = listener_peers.for_followers(broker)
        if endpoint is not None and await refuses(endpoint.host, endpoint.port, CONNECT_MS_MAX):
            where = host_and_port(endpoint.host, endpoint.port)
            return f"connection closed by the peer, and {where} refuses new ones"
        if self._evidence is not None:
            return await self._evidence(broker)
        return None
