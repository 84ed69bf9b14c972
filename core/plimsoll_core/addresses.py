"""Addresses as people, configs and HTTP write them: `host:port`, an IPv6 address in brackets.

Where a host and its port become one text, and where they come apart again, for both families.
Pure.  Called by both shells.  Source: RFC 3986, section 3.2.2.
"""

from __future__ import annotations

import ipaddress

LOOPBACK_NAME = "localhost"
ANY_FAMILY = "::"
"""Where a listener that has no address of its own listens: `::` without V6ONLY takes both families,
and 0.0.0.0 where the kernel has no IPv6."""


def host_and_port(host: str, port: int) -> str:
    """`host:port`; a literal IPv6 address gets brackets."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """As it stands before a port, and in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def split_address(address: str) -> tuple[str, int]:
    """Host without brackets, and port.  Raises ValueError when there is no port, or an IPv6 address
    without brackets, of which nobody can say where it ends."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError(f"{address!r} is no HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r}: an IPv6 address stands in brackets, as [::1]:9092")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a name or an address, with or without brackets, leads to this machine alone."""
    if host.lower() == LOOPBACK_NAME:
        return True
    address = _literal(host)
    return address is not None and (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_literal(host: str) -> bool:
    """Whether it is an address, with or without brackets, and no name."""
    return _literal(host) is not None


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
