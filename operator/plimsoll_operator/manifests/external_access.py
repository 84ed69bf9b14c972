"""Builds the objects that give clients outside the pods' network access: a Service for each broker,
a bootstrap Service, and for TLSRoute listeners a route of the Gateway API to each of them.

A broker's Service for a listener keeps its name, and so its ports and addresses, as long as both
exist. `reconcile.cluster.external_access` reads the resulting address from the objects' status.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_operator.api import labels
from plimsoll_operator.api.external_access import filled_in
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.listeners import DeclaredListener
from plimsoll_operator.kube.resources import SERVICES, Kind
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.services import FAMILIES

BOOTSTRAP = "bootstrap"
"""Word that replaces {id} in the annotations of the bootstrap Service."""


def services(
    context: Context, listener: DeclaredListener, brokers: Sequence[int]
) -> list[Manifest]:
    """Build the Services of an external listener: the bootstrap Service first, then one for each
    broker."""
    return [_service(context, listener, one) for one in (None, *brokers)]


def routes(
    context: Context, listener: DeclaredListener, brokers: Sequence[int], kind: Kind
) -> list[Manifest]:
    """Build the TLSRoutes of a listener, one to each Service that `services` builds. `kind`:
    TLSRoute in the API version to write."""
    return [_route(context, listener, one, kind) for one in (None, *brokers)]


def stated_host(context: Context, listener: DeclaredListener, broker_id: int | None) -> str | None:
    """Return the outside host name that the spec gives a broker, or the bootstrap if `broker_id` is
    None; None if the spec gives none."""
    if broker_id is None:
        return listener.bootstrap_host
    override = next((one for one in listener.advertised or () if one.id == broker_id), None)
    if override is not None:
        return override.host
    if listener.host_template is None:
        return None
    return filled_in(listener.host_template, context.name, context.namespace, broker_id)


def _service(context: Context, listener: DeclaredListener, broker_id: int | None) -> Manifest:
    stated = listener.service
    passes_on = listener.reach != "TLSRoute"
    selector = labels.selector(context.name)
    reach = listener.reach if passes_on else "ClusterIP"
    spec: Manifest = {"type": reach, **FAMILIES, "selector": selector}
    if broker_id is not None:
        selector[labels.BROKER_ID] = str(broker_id)
        # Clients learn from Metadata, which any broker answers, if this one takes part.
        spec["publishNotReadyAddresses"] = True
    port = {"name": "kafka", "port": listener.port, "targetPort": listener.port, "protocol": "TCP"}
    spec["ports"] = [port]
    if passes_on:
        policy = stated.external_traffic_policy if stated else None
        spec["externalTrafficPolicy"] = policy or "Local"
    if stated is not None and stated.load_balancer_class is not None:
        spec["loadBalancerClass"] = stated.load_balancer_class
    if stated is not None and stated.load_balancer_source_ranges is not None:
        spec["loadBalancerSourceRanges"] = list(stated.load_balancer_source_ranges)
    metadata = _metadata(context, listener, broker_id)
    if annotations := _annotations(context, listener, broker_id):
        metadata["annotations"] = annotations
    return SERVICES.manifest(metadata, spec=spec)


def _route(
    context: Context, listener: DeclaredListener, broker_id: int | None, kind: Kind
) -> Manifest:
    host = stated_host(context, listener, broker_id)
    parents: list[Manifest] = []
    for one in listener.parent_refs or ():
        parent: Manifest = {"name": one.name}
        parent |= {"namespace": one.namespace} if one.namespace else {}
        parent |= {"sectionName": one.section_name} if one.section_name else {}
        parent |= {"port": one.port} if one.port else {}
        parents.append(parent)
    metadata = _metadata(context, listener, broker_id)
    backend = {"name": metadata["name"], "port": listener.port}
    return kind.manifest(
        metadata,
        spec={
            "parentRefs": parents,
            "hostnames": [host],
            "rules": [{"backendRefs": [backend]}],
        },
    )


def _metadata(context: Context, listener: DeclaredListener, broker_id: int | None) -> Manifest:
    name = labels.external_service(context.name, listener.name, broker_id)
    metadata = context.metadata(name, labels.LISTENER_COMPONENT)
    metadata["labels"] |= {labels.LISTENER: listener.name}
    if broker_id is not None:
        metadata["labels"] |= {labels.BROKER_ID: str(broker_id)}
    return metadata


def _annotations(
    context: Context, listener: DeclaredListener, broker_id: int | None
) -> dict[str, str]:
    """Return the annotations that the spec states for the Service, with their placeholders filled
    in. One with {host} is left out if the spec gives no outside host name."""
    stated = listener.service.annotations if listener.service else None
    host = stated_host(context, listener, broker_id)
    id_ = BOOTSTRAP if broker_id is None else broker_id
    found = {}
    for key, value in (stated or {}).items():
        if "{host}" in value and host is None:
            continue
        text = filled_in(value, context.name, context.namespace, id_)
        found[key] = text.replace("{host}", host or "")
    return found
