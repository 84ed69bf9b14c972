"""Where clients outside reach brokers, read from what the API server has of Services, nodes and
Gateways.  Pure: `external_access` asks for the objects and says what is missing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_core.cluster.listener_peers import address_text
from plimsoll_operator.api.external_access import ParentRef
from plimsoll_operator.kube.port import Object

NODE_ADDRESSES = ("ExternalDNS", "ExternalIP", "InternalDNS", "InternalIP", "Hostname")
"""Types of a node's addresses, the best for who is outside first; as Strimzi prefers them."""
BOOTSTRAP_MAX = 3
_LEGAL_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?")


class HostPort(NamedTuple):
    """A DNS name or an IP address, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """As Kafka clients take it."""
        return address_text(self.host, self.port)


def host(text: object) -> str | None:
    """A name or an address as certificates state it; None: it is neither."""
    if not isinstance(text, str) or "%" in text:  # a scope means something on its host alone
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text if _LEGAL_HOST.fullmatch(text) else None


def load_balancer_host(service: Object) -> str | None:
    """What the load balancer's controller put into the status, a name rather than an address."""
    shown = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    for entry in shown:
        if (found := host(entry.get("hostname")) or host(entry.get("ip"))) is not None:
            return found
    return None


def node_port(service: Object) -> int | None:
    """That the API server gave the Service's only port."""
    ports = (service.get("spec") or {}).get("ports") or ()
    return next((one["nodePort"] for one in ports if one.get("nodePort")), None)


def node_host(node: Object) -> str | None:
    """By which clients outside reach a node."""
    shown = (node.get("status") or {}).get("addresses") or ()
    for kind in NODE_ADDRESSES:
        for entry in shown:
            if entry.get("type") == kind and (found := host(entry.get("address"))) is not None:
                return found
    return None


def gateway_port(gateway: Object, parent: ParentRef) -> int | None:
    """Of the Gateway's listener that a route is attached to: the named one, else one for TLS."""
    for entry in (gateway.get("spec") or {}).get("listeners") or ():
        if parent.section_name is None and entry.get("protocol") == "TLS":
            return int(entry["port"])
        if parent.section_name is not None and entry.get("name") == parent.section_name:
            return int(entry["port"])
    return None


def why_not_accepted(route: Object) -> str:
    """Why no Gateway passes on what a TLSRoute is for; empty: one does."""
    told = "no Gateway has accepted it yet"
    for parent in (route.get("status") or {}).get("parents") or ():
        for one in parent.get("conditions") or ():
            if one.get("type") == "Accepted" and one.get("status") == "True":
                return ""
            if one.get("type") == "Accepted":
                told = f"a Gateway does not accept it: {one.get('message') or one.get('reason')}"
    return told


def bootstrap_servers(found: Iterable[HostPort]) -> str | None:
    """Some that clients can begin at, as they take them; None: there are none."""
    texts = list(dict.fromkeys(one.text for one in found))[:BOOTSTRAP_MAX]
    return ",".join(texts) or None
