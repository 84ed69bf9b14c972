"""Listeners for clients outside: their Services and routes, and the address of each broker.

Called before listeners are committed; their records carry the addresses to the brokers, which
register them. Addresses are read from Services, nodes and Gateways. A found address stays until
another one is found: a restarting pod or a recreated load balancer removes none. A missing object
or address is reported for its listener, and delays no other listener.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster.listeners import Advertised
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.external_access import ParentRef
from plimsoll_operator.api.listeners import DeclaredListener, Outside
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError, NotFound, Unavailable
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    GATEWAYS,
    NODES,
    PODS,
    SERVICES,
    TLS_ROUTE_KINDS,
    TLS_ROUTES,
    Kind,
)
from plimsoll_operator.manifests import external_access as manifests
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster.listener_objects import applied, listed, remove_others
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

NODE_ADDRESSES = ("ExternalDNS", "ExternalIP", "InternalDNS", "InternalIP", "Hostname")
"""Node address types, best for external clients first, in Strimzi's order."""
BOOTSTRAP_MAX = 3
TOLD_MAX = 500
"""Maximum length of a quoted sentence of another controller, in characters."""
_LEGAL_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?")


class HostPort(NamedTuple):
    """A DNS name or an IP address, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """Return `host:port` in the form of Kafka clients."""
        return host_and_port(self.host, self.port)


def legal_host(text: object) -> str | None:
    """Return a host name or address in the form of certificates, or None if it is neither."""
    if not isinstance(text, str) or "%" in text:  # an IPv6 scope is valid on its own host only
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text if _LEGAL_HOST.fullmatch(text) else None


def load_balancer_host(service: Object) -> str | None:
    """Return the load balancer's host from the Service's status, a name rather than an address."""
    shown = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    for entry in shown:
        if (found := legal_host(entry.get("hostname")) or legal_host(entry.get("ip"))) is not None:
            return found
    return None


def node_port(service: Object) -> int | None:
    """Return the node port of the Service's only port."""
    ports = (service.get("spec") or {}).get("ports") or ()
    return next((one["nodePort"] for one in ports if one.get("nodePort")), None)


def node_host(node: Object) -> str | None:
    """Return the address by which external clients reach a node."""
    shown = (node.get("status") or {}).get("addresses") or ()
    for kind in NODE_ADDRESSES:
        for entry in shown:
            if (
                entry.get("type") == kind
                and (found := legal_host(entry.get("address"))) is not None
            ):
                return found
    return None


def gateway_port(gateway: Object, parent: ParentRef, name: str) -> int | None:
    """Return the port of the Gateway's listener for `name`, or None. It is the stated listener,
    else the first possible one, and must pass TLS through."""
    for entry in (gateway.get("spec") or {}).get("listeners") or ():
        passes_on = (entry.get("tls") or {}).get("mode") == "Passthrough"
        if entry.get("protocol") != "TLS" or not passes_on:
            continue
        if parent.section_name in (None, entry.get("name")) and _covers(entry, name):
            return int(entry["port"])
    return None


def _covers(entry: Object, name: str) -> bool:
    """Return True if a Gateway's listener accepts the name: exactly, by wildcard, or because it
    accepts any."""
    own = str(entry.get("hostname") or "").lower()
    if own.startswith("*."):
        return name.lower().endswith(own[1:])
    return own in ("", name.lower())


class NotPassedOn(NamedTuple):
    """Cause as part of a sentence; `refused`: a Gateway's controller rejected the route as it
    is."""

    why: str
    refused: bool


def not_passed_on(route: Object, parent: ParentRef, namespace: str) -> NotPassedOn | None:
    """Return why a Gateway in `namespace` does not pass a TLSRoute's traffic on, or None.

    Only conditions about the route's present generation count.
    """
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
    """Return True if a route's status entry is about this parent, as stated in the route's spec."""
    own = (route.get("metadata") or {}).get("namespace")
    return (
        shown.get("name") == parent.name
        and (shown.get("namespace") or own) == namespace
        and (shown.get("sectionName") or None) == parent.section_name
        and (shown.get("port") or None) == parent.port
    )


def _told(condition: Object) -> str:
    """Return the message of another controller's condition."""
    return str(condition.get("message") or condition.get("reason"))[:TOLD_MAX]


def bootstrap_servers(found: Iterable[HostPort]) -> str | None:
    """Return bootstrap servers for clients, or None if there are none."""
    texts = list(dict.fromkeys(one.text for one in found))[:BOOTSTRAP_MAX]
    return ",".join(texts) or None


REFUSED = "ExternalAccessRefused"
NO_TLS_ROUTES = (
    "the chart's externalAccess.tlsRoutes is false, so this operator creates no TLSRoutes; set "
    "it to true"
)
NOT_INSTALLED = (
    f"the API server does not serve {TLS_ROUTES.kind} of "
    f"{', '.join(kind.api_version for kind in TLS_ROUTE_KINDS)}: install the Gateway API's "
    "CRDs"
)


class _NoAddress(Exception):
    """Cause of a missing address, as part of a sentence. `refused`: a Gateway's controller rejected
    the route, and only a person can fix that."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


@dataclass(slots=True)
class OutsideObjects:
    """Objects on the API server, by name."""

    services: dict[str, Object] = field(default_factory=dict)
    routes: dict[str, Object] = field(default_factory=dict)
    # Of the newest version that the API server serves.
    route_kind: Kind = TLS_ROUTES
    # Only nodes with brokers' addresses.
    nodes: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class OutsideAccess:
    """Result of one pass. `names`: external names by listener and broker, bootstrap names included.
    `refused`: sentences about faults that only a person can fix."""

    outside: dict[str, Outside] = field(default_factory=dict)
    names: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    objects: OutsideObjects = field(default_factory=OutsideObjects)


@dataclass(slots=True)
class _KeptAccess:
    """State kept for one cluster and term."""

    # Why a listener lacks a broker's address, by the last pass.
    whys: dict[str, str] = field(default_factory=dict)
    # True if the last pass left no unneeded object.
    swept: bool = False


class _Sought(NamedTuple):
    """Address to find; `broker_id` is None for the bootstrap address."""

    context: Context
    listener: DeclaredListener
    broker_id: int | None

    @property
    def name(self) -> str:
        return labels.external_service(self.context.name, self.listener.name, self.broker_id)


def external_whys(term: Term) -> Mapping[str, str]:
    """Return why a listener lacks an address for a broker, by listener."""
    return term.kept(_KeptAccess, _KeptAccess).whys


async def settle(
    term: Term, result: PassResult, cluster: LogCluster, context: Context
) -> OutsideAccess:
    """Settle external access. Raises Unavailable; any other refusal concerns one listener only."""
    kept, found = term.kept(_KeptAccess, _KeptAccess), OutsideAccess()
    declared = [one for one in cluster.listeners if one.external]
    if not declared and kept.swept:
        return found
    found.objects.services.update(await listed(term, SERVICES, context))
    if term.options.tls_routes:
        await _list_routes(term, context, found.objects)
    brokers = _brokers(term)
    whys: dict[str, str] = {}
    for listener in declared:
        refused = await _made(term, result, context, listener, brokers, found.objects)
        if refused:
            found.refused.append(f"Listener {listener.name}: {refused}.")
        missing = await _find(term, context, listener, brokers, found)
        if missing:
            whys[listener.name] = refused or missing
    if whys != kept.whys:
        kept.whys = whys
        result.mark_cluster()
    return found


async def sweep(term: Term, cluster: LogCluster, context: Context, access: OutsideAccess) -> None:
    """Remove objects that no listener needs, after the commit. `access` is the result of `settle`;
    a failed removal is added to its `refused`."""
    kept = term.kept(_KeptAccess, _KeptAccess)
    declared = [one for one in cluster.listeners if one.external]
    if not declared and kept.swept:
        return
    services, routes = set(), set()
    for listener in declared:
        for broker_id in (None, *_brokers(term)):
            name = labels.external_service(context.name, listener.name, broker_id)
            services.add(name)
            if listener.reach == "TLSRoute":
                routes.add(name)
    try:
        await remove_others(term, SERVICES, context, access.objects.services, services)
        kind = access.objects.route_kind
        await remove_others(term, kind, context, access.objects.routes, routes)
    except ApiError as error:
        access.refused.append(f"Cannot delete the objects of removed listeners: {error.reply}.")
    else:
        kept.swept = not declared


def _brokers(term: Term) -> list[BrokerId]:
    """Return the brokers that need addresses: members and leaving brokers."""
    return sorted({*term.image.members, *term.image.brokers})


async def _made(
    term: Term,
    result: PassResult,
    context: Context,
    listener: DeclaredListener,
    brokers: Sequence[int],
    objects: OutsideObjects,
) -> str:
    """Apply its Services and routes. Return why that failed, in words, or ""."""
    try:
        await applied(
            term, result, manifests.services(context, listener, brokers), objects.services
        )
        if listener.reach == "TLSRoute":
            return await _apply_routes(term, result, context, listener, brokers, objects)
    except Unavailable:
        raise
    except ApiError as error:
        return f"the API server rejected a request: {error.reply}"
    except Retry as error:  # a foreign object has the name
        return str(error)
    return ""


async def _list_routes(term: Term, context: Context, objects: OutsideObjects) -> None:
    """List the routes. List none if the kind is unknown or unreadable; `_apply_routes` then reports
    it."""
    for kind in TLS_ROUTE_KINDS:
        try:
            objects.routes.update(await listed(term, kind, context))
        except NotFound:
            continue
        except ApiError:
            return
        objects.route_kind = kind
        return


async def _apply_routes(
    term: Term,
    result: PassResult,
    context: Context,
    listener: DeclaredListener,
    brokers: Sequence[int],
    objects: OutsideObjects,
) -> str:
    if not term.options.tls_routes:
        return NO_TLS_ROUTES
    try:
        routes = manifests.routes(context, listener, brokers, objects.route_kind)
        await applied(term, result, routes, objects.routes)
    except NotFound:
        return NOT_INSTALLED
    except ApiError as error:  # also if the webhooks of the kind do not answer
        return f"the API server rejected a request: {error.reply}"
    return ""


# --- addresses ---------------------------------------------------------------------------------


async def _find(
    term: Term,
    context: Context,
    listener: DeclaredListener,
    brokers: Sequence[int],
    found: OutsideAccess,
) -> str:
    """Add the listener's addresses to `found`. Return what is missing, in words."""
    committed = next((one for one in term.image.listeners if one.name == listener.name), None)
    known: dict[int, HostPort] = {}
    objects = found.objects
    whys: list[str] = []
    left: list[str] = []
    for broker_id in brokers:
        try:
            known[broker_id] = await _address(term, _Sought(context, listener, broker_id), objects)
        except _NoAddress as error:
            before = None if committed is None else committed.advertised_of(broker_id)
            if before is not None:
                known[broker_id] = HostPort(before.host, before.port)
                left += [str(error)] if error.refused else []
            else:
                whys.append(str(error))
    if left:
        more = f", and {len(left) - 1} more like this" if len(left) > 1 else ""
        text = (
            f"Listener {listener.name} is not reachable at its advertised addresses: "
            f"{left[0]}{more}."
        )
        found.refused.append(text)
    begin = await _bootstrap(term, _Sought(context, listener, None), objects) or list(
        known.values()
    )
    found.outside[listener.name] = Outside(
        advertised=tuple(
            Advertised(broker_id=BrokerId(one), host=at.host, port=at.port)
            for one, at in sorted(known.items())
        ),
        bootstrap_servers=bootstrap_servers(begin),
    )
    shared = [address.host for address in begin]
    for broker_id in brokers:
        own = [known[broker_id].host] if broker_id in known else []
        found.names[listener.name, broker_id] = tuple(dict.fromkeys((*own, *shared)))
    return "; ".join(dict.fromkeys(whys))


def _override(asked: _Sought) -> HostPort | None:
    """Return the address that the spec states for this broker. Raises _NoAddress."""
    stated = next(
        (one for one in asked.listener.advertised or () if one.id == asked.broker_id), None
    )
    if stated is None or stated.port is None:
        return None
    host = legal_host(stated.host)
    if host is None:
        raise _NoAddress("advertised is not a valid host name or address")
    return HostPort(host, stated.port)


async def _address(term: Term, asked: _Sought, objects: OutsideObjects) -> HostPort:
    """Return the address. Raises _NoAddress, and Unavailable."""
    override = _override(asked)
    if override is not None:
        return override
    host = manifests.stated_host(asked.context, asked.listener, asked.broker_id)
    if host is not None:
        host = legal_host(host)
        if host is None:
            raise _NoAddress("hostTemplate does not produce a valid host name")
    service = objects.services.get(asked.name)
    if service is None:
        raise _NoAddress(f"Service {asked.name} does not exist")
    if asked.listener.reach == "TLSRoute":
        return await _behind_gateway(term, asked, host, objects)
    if asked.listener.reach == "LoadBalancer":
        host = host or load_balancer_host(service)
        if host is None:
            raise _NoAddress(f"Service {asked.name} has no ingress in its status")
        return HostPort(host, asked.listener.port)
    port = node_port(service)
    if port is None:
        raise _NoAddress(f"Service {asked.name} has no node port")
    if host is None:
        assert asked.broker_id is not None, "asked for a broker, or where a host is stated"
        host = await _node_host(term, asked.context, asked.broker_id, objects.nodes)
    return HostPort(host, port)


async def _bootstrap(term: Term, asked: _Sought, objects: OutsideObjects) -> list[HostPort]:
    """Return the bootstrap addresses of the listener's own Service; empty if clients start at
    broker addresses."""
    nodes_answer = asked.listener.reach == "NodePort" and asked.listener.bootstrap_host is None
    if nodes_answer:
        port = node_port(objects.services.get(asked.name) or {})
        hosts = [node_host(node) for _, node in sorted(objects.nodes.items())]
        return [] if port is None else [HostPort(one, port) for one in hosts if one is not None]
    try:
        return [await _address(term, asked, objects)]
    except _NoAddress:
        return []


async def _node_host(term: Term, context: Context, broker_id: int, nodes: dict[str, Object]) -> str:
    """Return the host of the node that runs the broker's pod."""
    pod_name = labels.broker_pod(context.name, broker_id)
    try:
        pod = await term.kube.get(PODS, context.namespace, pod_name)
    except NotFound:
        raise _NoAddress(f"pod {pod_name} does not exist") from None
    name = (pod.get("spec") or {}).get("nodeName")
    if not name:
        raise _NoAddress(f"pod {pod_name} is not scheduled to a node")
    if name not in nodes:
        try:
            nodes[name] = await term.kube.get(NODES, None, name)
        except Unavailable:
            raise
        except ApiError as error:
            why = f"cannot read node {name} ({error.reply}; set the chart's rbac.readNodes)"
            raise _NoAddress(why) from error
    host = node_host(nodes[name])
    if host is None:
        raise _NoAddress(f"node {name} has no address in its status")
    return host


async def _behind_gateway(
    term: Term, asked: _Sought, host: str | None, objects: OutsideObjects
) -> HostPort:
    """Return the route's name at the port of the first Gateway that accepted the route."""
    assert host is not None, "the schema asks for hostTemplate and bootstrapHost"
    route = objects.routes.get(asked.name)
    if route is None:
        raise _NoAddress(f"{TLS_ROUTES.kind} {asked.name} does not exist")
    whys, refused = [], False
    for parent in asked.listener.parent_refs or ():
        namespace = parent.namespace or asked.context.namespace
        if (found := not_passed_on(route, parent, namespace)) is not None:
            whys.append(f"{TLS_ROUTES.kind} {asked.name}: {found.why}")
            refused = refused or found.refused
            continue
        if parent.port is not None:
            return HostPort(host, parent.port)
        try:
            gateway = await term.kube.get(GATEWAYS, namespace, parent.name)
        except ApiError as error:
            why = f"cannot read Gateway {namespace}/{parent.name} ({error.reply})"
            raise _NoAddress(f"{why}; set its port in parentRefs") from error
        port = gateway_port(gateway, parent, host)
        if port is not None:
            return HostPort(host, port)
        whys.append(
            f"Gateway {namespace}/{parent.name} has no TLS passthrough listener for {host}; "
            "set its port in parentRefs"
        )
    raise _NoAddress("; ".join(whys), refused=refused)
