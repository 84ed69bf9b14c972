"""Listeners for clients outside Kubernetes: keeps their Services and routes, and finds the address
of each broker.

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
"""Types of node addresses, best for external clients first, in Strimzi's order."""
BOOTSTRAP_MAX = 3
TOLD_MAX = 500
"""Maximum length in characters of a sentence that is quoted from another controller."""
_LEGAL_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?")


class HostPort(NamedTuple):
    """A DNS name or an IP address, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """Return the address as `host:port`, as Kafka clients expect it."""
        return host_and_port(self.host, self.port)


def legal_host(text: object) -> str | None:
    """Return `text` as a host name or IP address that a certificate can name, or None if it is
    neither."""
    if not isinstance(text, str) or "%" in text:  # an IPv6 scope is valid on its own host only
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text if _LEGAL_HOST.fullmatch(text) else None


def load_balancer_host(service: Object) -> str | None:
    """Return the load balancer's host from the Service's status, the host name if it has one, else
    the IP address. Return None if there is neither yet."""
    shown = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    for entry in shown:
        if (found := legal_host(entry.get("hostname")) or legal_host(entry.get("ip"))) is not None:
            return found
    return None


def node_port(service: Object) -> int | None:
    """Return the node port of the Service's only port, or None if it has none yet."""
    ports = (service.get("spec") or {}).get("ports") or ()
    return next((one["nodePort"] for one in ports if one.get("nodePort")), None)


def node_host(node: Object) -> str | None:
    """Return the address by which external clients reach a node, or None if it has no usable
    one."""
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
    """Return the port of the Gateway's listener that passes TLS for the host `name` through. That
    is the listener which the parentRef names, else the first that accepts the host. Return None if
    there is none."""
    for entry in (gateway.get("spec") or {}).get("listeners") or ():
        passes_on = (entry.get("tls") or {}).get("mode") == "Passthrough"
        if entry.get("protocol") != "TLS" or not passes_on:
            continue
        if parent.section_name in (None, entry.get("name")) and _covers(entry, name):
            return int(entry["port"])
    return None


def _covers(entry: Object, name: str) -> bool:
    """Return True if the Gateway's listener `entry` accepts the host `name`: exactly, by a
    wildcard, or because it accepts any."""
    own = str(entry.get("hostname") or "").lower()
    if own.startswith("*."):
        return name.lower().endswith(own[1:])
    return own in ("", name.lower())


class NotPassedOn(NamedTuple):
    """Why a Gateway does not pass a route's traffic on, as part of a sentence. `refused` is True if
    the Gateway's controller rejected the route, so that waiting does not help."""

    why: str
    refused: bool


def not_passed_on(route: Object, parent: ParentRef, namespace: str) -> NotPassedOn | None:
    """Return why the Gateway `parent` in `namespace` does not pass the TLSRoute's traffic on, or
    None if it does.

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
    return NotPassedOn(
        f"{gateway} has not accepted the TLSRoute yet; check that the Gateway's controller runs",
        refused=False,
    )


def _is_of(shown: Object, parent: ParentRef, namespace: str, route: Object) -> bool:
    """Return True if `shown`, the parentRef in a route's status, refers to the same Gateway
    listener as `parent`, the parentRef in the route's spec."""
    own = (route.get("metadata") or {}).get("namespace")
    return (
        shown.get("name") == parent.name
        and (shown.get("namespace") or own) == namespace
        and (shown.get("sectionName") or None) == parent.section_name
        and (shown.get("port") or None) == parent.port
    )


def _told(condition: Object) -> str:
    """Return the message of a condition that another controller wrote; if that is empty, its
    reason."""
    return str(condition.get("message") or condition.get("reason"))[:TOLD_MAX]


def bootstrap_servers(found: Iterable[HostPort]) -> str | None:
    """Return the first addresses as a comma-separated list for clients' bootstrap.servers, or None
    if there are none."""
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
    """Raised if the address of a broker, or that of the bootstrap Service, is not known. The text
    is the cause as part of a sentence. `refused`: True if a Gateway's controller rejected the
    route, so that only a person can fix it."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


@dataclass(slots=True)
class OutsideObjects:
    """Kubernetes objects of external listeners, as read in one pass, by name."""

    services: dict[str, Object] = field(default_factory=dict)
    routes: dict[str, Object] = field(default_factory=dict)
    # Kind of the routes, of the newest version that the API server serves.
    route_kind: Kind = TLS_ROUTES
    # True if the routes could not be read: there may be some.
    routes_unread: bool = False
    # Nodes that run brokers, as far as their addresses were needed.
    nodes: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class OutsideAccess:
    """Result of one pass over external listeners. `outside`: the addresses to commit, by listener.
    `names`: the external host names that a broker's certificate must contain, by (listener,
    broker), those of the bootstrap included. `refused`: sentences on faults that only a person can
    fix. `objects`: the Kubernetes objects that were read."""

    outside: dict[str, Outside] = field(default_factory=dict)
    names: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    objects: OutsideObjects = field(default_factory=OutsideObjects)


@dataclass(slots=True)
class _KeptAccess:
    """State about external access that a term keeps between passes."""

    # Why a listener lacks the address of a broker, by listener, as of the last pass.
    whys: dict[str, str] = field(default_factory=dict)
    # True if the last pass left no object of a removed listener.
    swept: bool = False


class _Sought(NamedTuple):
    """An address to find: that of a broker at a listener, or the listener's bootstrap address if
    `broker_id` is None."""

    context: Context
    listener: DeclaredListener
    broker_id: int | None

    @property
    def name(self) -> str:
        return labels.external_service(self.context.name, self.listener.name, self.broker_id)


def external_whys(term: Term) -> Mapping[str, str]:
    """Return, for each listener for which the address of a broker is missing, the reason found by
    the last pass."""
    return term.kept(_KeptAccess, _KeptAccess).whys


async def settle(
    term: Term, result: PassResult, cluster: LogCluster, context: Context
) -> OutsideAccess:
    """Apply the objects of external listeners and find the brokers' addresses. Raise Unavailable if
    the API server does not answer; any other fault is reported for its listener."""
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
    """Delete objects that no declared listener needs, after the listeners were committed. `access`
    is the result of `settle`; a failed deletion is added to its `refused`."""
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
        kept.swept = not declared and not access.objects.routes_unread


def _brokers(term: Term) -> list[BrokerId]:
    """Return the brokers that need addresses: members and other registered brokers."""
    return sorted({*term.image.members, *term.image.brokers})


async def _made(
    term: Term,
    result: PassResult,
    context: Context,
    listener: DeclaredListener,
    brokers: Sequence[int],
    objects: OutsideObjects,
) -> str:
    """Apply the Services and routes of a listener. Return why that failed, as part of a sentence,
    or ""."""
    try:
        await applied(
            term, result, manifests.services(context, listener, brokers), objects.services
        )
        if listener.reach == "TLSRoute":
            return await _apply_routes(term, result, context, listener, brokers, objects)
    except Unavailable:
        raise
    except ApiError as error:
        return f"the API server rejected its Services: {error.reply}"
    except Retry as error:  # a foreign object has the name
        return str(error)
    return ""


async def _list_routes(term: Term, context: Context, objects: OutsideObjects) -> None:
    """Read this cluster's TLSRoutes into `objects`. Reads none if the API server does not serve the
    kind or refuses; `_apply_routes` then reports it."""
    for kind in TLS_ROUTE_KINDS:
        try:
            objects.routes.update(await listed(term, kind, context))
        except NotFound:
            continue
        except ApiError:
            objects.routes_unread = True
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
        return f"the API server rejected its {objects.route_kind.kind}s: {error.reply}"
    return ""


# --- addresses ---------------------------------------------------------------------------------


async def _find(
    term: Term,
    context: Context,
    listener: DeclaredListener,
    brokers: Sequence[int],
    found: OutsideAccess,
) -> str:
    """Find the addresses of a listener and add them to `found`. If an address is not found, the
    committed one stays. Return what is missing, as part of a sentence, "" if nothing is."""
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
            f"Clients cannot reach listener {listener.name} at its advertised addresses, which "
            f"stay as they are: {left[0]}{more}. Correct the Gateway or the listener's parentRefs."
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
    """Return the address that the spec states for this broker in place of a discovered one, or None
    if it states none. Raise `_NoAddress` if the stated one is invalid."""
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
    """Return the address of a broker or of the bootstrap. Raise `_NoAddress` if it is not known
    yet, Unavailable if the API server does not answer."""
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
    """Return the bootstrap addresses of a listener, from its bootstrap Service. Return [] if that
    has none; clients then start at brokers' addresses."""
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
    """Return the address of the node that runs the broker's pod. Raise `_NoAddress` if it is not
    known."""
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
    """Return `host`, the route's host name, with the port of the first Gateway that accepted the
    route. Raise `_NoAddress` if no Gateway did."""
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
