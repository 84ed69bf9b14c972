"""Check that a host itself refuses a connection, which proves that no process listens there.

`proof_of_death` uses it on a broker's replication port. A host answers a connection to a closed
port with a TCP reset. A firewall that rejects, as network plugins do without an allowing
NetworkPolicy, mostly answers with ICMP "port unreachable", and the caller gets the same
ECONNREFUSED although the broker lives. Only the socket's error queue tells the two apart. A
firewall that sends resets cannot be told from the host. Source: ip(7) and ipv6(7), IP_RECVERR;
linux/errqueue.h.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

IP_RECVERR = 11
IPV6_RECVERR = 25
ORIGINS_ICMP = {2, 3}
"""SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6."""
ERROR_BYTES_MAX = 512


async def refuses(host: str, port: int, ms_max: int) -> bool:
    """Return True if the host itself refuses on each of its addresses within `ms_max`. A timeout,
    an unreachable host and a refusal by ICMP prove nothing."""
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
    """Keep ICMP errors of this socket for `told_by_icmp`; Linux only."""
    if sys.platform == "linux":
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)


def told_by_icmp(sock: socket.socket) -> bool:
    """Return True if an ICMP message made the socket fail."""
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
