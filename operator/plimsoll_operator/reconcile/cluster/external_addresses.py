"""Where clients outside reach brokers, read from what the API server has of Services, nodes and
Gateways.  Pure: `external_access` asks for the objects and says what is missing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_core.addresses import host_and_port
from plimsoll_operator.api.external_access import ParentRef
from plimsoll_operator.kube.port import Object

NODE_ADDRESSES = ("ExternalDNS", "ExternalIP", "InternalDNS", "InternalIP", "Hostname")
"""Types of a node's addresses, the best for who is outside first; as Strimzi prefers them."""
BOOTSTRAP_MAX = 3
TOLD_MAX = 500
"""Characters of others' sentences that are passed on."""
_LEGAL_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?")


class HostPort(NamedTuple):
    """A DNS name or an IP address, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """As Kafka clients take it."""
        return host_and_port(self.host, self.port)


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


def gateway_port(gateway: Object, parent: ParentRef, name: str) -> int | None:
    """Of the Gateway's listener that a route for `name` is attached to: the one that is stated,
    else the first that may be; it passes TLS on.  None: there is none."""
    for entry in (gateway.get("spec") or {}).get("listeners") or ():
        passes_on = (entry.get("tls") or {}).get("mode") == "Passthrough"
        if entry.get("protocol") != "TLS" or not passes_on:
            continue
        if parent.section_name in (None, entry.get("name")) and _covers(entry, name):
            return int(entry["port"])
    return None


def _covers(entry: Object, name: str) -> bool:
    """Whether a Gateway's listener is for a name: it is its own, under its wildcard, or any is."""
    own = str(entry.get("hostname") or "").lower()
    if own.startswith("*."):
        return name.lower().endswith(own[1:])
    return own in ("", name.lower())


class NotPassedOn(NamedTuple):
    """A sentence's part; `refused`: a Gateway's controller says it, of the route as it is."""

    why: str
    refused: bool


def not_passed_on(route: Object, parent: ParentRef, namespace: str) -> NotPassedOn | None:
    """Why a Gateway, in `namespace`, does not pass on what a TLSRoute is for; None: it does.

    Only what is said of the route as it is now counts: a controller that has not seen a change of
    it says of which generation it speaks."""
    generation = (route.get("metadata") or {}).get("generation")
    gateway = f"Gateway {namespace}/{parent.name}"
    for shown in (route.get("status") or {}).get("parents") or ():
        if not _is_of(shown.get("parentRef") or {}, parent, namespace, route):
            continue
        said = {
            one.get("type"): one
            for one in shown.get("conditions") or ()
            if one.get("observedGeneration") in (None, generation)
        }
        if "Accepted" not in said:
            continue
        if (one := said["Accepted"]).get("status") != "True":
            return NotPassedOn(f"{gateway} does not accept the route: {_told(one)}", refused=True)
        if (one := said.get("ResolvedRefs", {})).get("status") == "False":
            why = f"{gateway} cannot resolve the route's backend: {_told(one)}"
            return NotPassedOn(why, refused=True)
        return None
    return NotPassedOn(f"{gateway} has not accepted the route yet", refused=False)


def _is_of(shown: Object, parent: ParentRef, namespace: str, route: Object) -> bool:
    """Whether a route's status speaks of this parent: it repeats what the route's spec states."""
    own = (route.get("metadata") or {}).get("namespace")
    return (
        shown.get("name") == parent.name
        and (shown.get("namespace") or own) == namespace
        and (shown.get("sectionName") or None) == parent.section_name
        and (shown.get("port") or None) == parent.port
    )


def _told(condition: Object) -> str:
    """What another controller wrote."""
    return str(condition.get("message") or condition.get("reason"))[:TOLD_MAX]


def bootstrap_servers(found: Iterable[HostPort]) -> str | None:
    """Some that clients can begin at, as they take them; None: there are none."""
    texts = list(dict.fromkeys(one.text for one in found))[:BOOTSTRAP_MAX]
    return ",".join(texts) or None
