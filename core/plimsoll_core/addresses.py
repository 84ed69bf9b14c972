"""Formats and parses addresses: `host:port`, with an IPv6 address in brackets.

The only place that joins a host and a port into text or splits them, for both families. Pure.
Called by both shells. Source: RFC 3986, section 3.2.2."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

LOOPBACK_NAME = "localhost"
ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
"""All spellings of the wildcard address: every address of the machine or the pod, of both
families."""


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`; a literal IPv6 address gets brackets."""
    return f"{bracketed(host)}:{port}"


def to_listen(host: str) -> str | None:
    """Return the host argument for the event loop's `create_server`. Return None for the wildcard
    address: the loop then opens one socket per family, so that an IPv4 peer keeps its own address
    instead of an IPv6 form of it."""
    return None if host in ANY_ADDRESS else host


def bracketed(host: str) -> str:
    """Return the host as it stands before a port or in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def split_address(address: str) -> tuple[str, int]:
    """Return the host, without brackets, and the port. Raises ValueError if there is no port, or
    for an IPv6 address without brackets, since its end is ambiguous. The host may be empty, and the
    range of the port is not checked."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError(f"{address!r} is not an address of the form HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(
            f"the IPv6 address {address!r} must be written in brackets, such as [::1]:9092"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return True if the host is `localhost` or a loopback address, with or without brackets. Other
    names are not resolved: return False for them."""
    if host.lower() == LOOPBACK_NAME:
        return True
    address = _literal(host)
    return address is not None and (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_literal(host: str) -> bool:
    """Return True if the host is an IP address, with or without brackets, and not a name."""
    return _literal(host) is not None


def spelled(host: str) -> str:
    """Return an address in the one spelling in which rules are compared with clients' addresses: an
    IPv6 address in its short form, whichever form a tool or Kafka writes, and an IPv4 address that
    is mapped into IPv6 as IPv4. Return any other text unchanged."""
    return _spelled(host) if ":" in host else host


@lru_cache(maxsize=4_096)
def _spelled(host: str) -> str:
    address = _literal(host)
    return host if address is None else str(getattr(address, "ipv4_mapped", None) or address)


def network_of(host: str) -> str:
    """Return the key under which a peer's limits are counted: an IPv4 address itself, also if it is
    mapped into IPv6, or an IPv6 address's /64 network, which one customer holds as a whole. Return
    a text that is not an address unchanged."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
