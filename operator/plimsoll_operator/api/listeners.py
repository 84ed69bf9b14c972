"""The fields of `LogCluster` about the ports that clients connect to.

`committed` converts them for the metadata log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from plimsoll_core.cluster.listeners import Advertised as AdvertisedAddress
from plimsoll_core.cluster.listeners import Listener
from plimsoll_operator.api.cluster_topics import AllowedNamespaces
from plimsoll_operator.api.external_access import (
    Advertised,
    ExternalService,
    Host,
    HostTemplate,
    IssuerRef,
    ListenerType,
    ParentRefs,
)
from plimsoll_operator.api.meta import Api, ObjectName, described

TLS_VERSION_DEFAULT = "1.2"
Login = Literal["ScramSha256", "ScramSha512", "ServiceAccount", "OAuth", "Tls"]


class ListenerTls(Api, frozen=True, kw_only=True):
    """Certificate and least TLS version of a listener."""

    certificate_secret: Annotated[
        ObjectName | None,
        described(
            "A Secret of this namespace; every broker presents its tls.crt (PEM, the whole "
            "chain) with tls.key, and rereads both each minute. Unset: each broker has its "
            "own certificate, signed by the cluster's listener CA, which is published in "
            "ConfigMap <name>-listener-ca."
        ),
    ] = None
    issuer_ref: Annotated[
        IssuerRef | None,
        described(
            "A cert-manager issuer. The operator makes a Certificate for all names of the "
            "listener, and every broker presents the certificate that cert-manager writes "
            "to Secret <name>-listener-<listener>."
        ),
    ] = None
    min_version: Annotated[
        Literal["1.2", "1.3"] | None, described("The oldest accepted TLS version; default 1.2.")
    ] = None


class DeclaredLimits(Api, frozen=True, kw_only=True):
    """Limits on the clients of a listener, at each broker."""

    connections: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        described(
            "Most open connections; unset: the brokers' max.connections, and at most 2000 with TLS."
        ),
    ] = None
    reauth_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=31_536_000)] | None,
        described(
            "Seconds after which a client must log in again on the same connection, or the "
            "broker closes it (Kafka's connections.max.reauth.ms). Unset: at the end of "
            "the token's validity; with a password, never."
        ),
    ] = None


class DeclaredListener(Api, frozen=True, kw_only=True):
    """A port that every broker opens for clients."""

    name: Annotated[str, Meta(min_length=1, max_length=11, pattern=r"^[a-z][a-z0-9]{0,10}$")]
    port: Annotated[
        int,
        Meta(
            ge=1024,
            le=65535,
            description=(
                "Any port but 9091, 9093, 9100 and 9101, which brokers and the operator use."
            ),
        ),
    ]
    tls: Annotated[
        ListenerTls | None, described("Set, even to {}: clients must use TLS. Unset: plaintext.")
    ] = None
    authentication: Annotated[
        Annotated[
            tuple[Login, ...],
            Meta(min_length=1, max_length=5, extra_json_schema={"x-kubernetes-list-type": "set"}),
        ]
        | None,
        described(
            "Ways in which clients may log in; unset: no login. ServiceAccount (a pod's "
            "token) and OAuth (a token of one of spec.tokenIssuers) use SASL/OAUTHBEARER "
            "and need tls. Tls (a certificate of the cluster's clients CA or of one of "
            "spec.certificates.clients.externalCas) needs tls; if other ways are listed "
            "too, the certificate is optional, and a client that presents one is logged in "
            "by it."
        ),
    ] = None
    limits: DeclaredLimits | None = None
    allowed_namespaces: Annotated[
        AllowedNamespaces | None,
        described(
            "Pods that reach the port, by the brokers' NetworkPolicy. Unset, or from: All: "
            "every client. from: Same (default if this is set): pods of the LogCluster's "
            "own namespace. from: Selector: also pods of the selected namespaces. Only for "
            "ClusterIP listeners and for TLSRoute listeners, whose clients are the "
            "Gateway's pods."
        ),
    ] = None
    type: Annotated[
        ListenerType | None,
        described(
            "ClusterIP (default): clients are inside Kubernetes. NodePort and "
            "LoadBalancer: each broker has a Service of this type, and so has the "
            "bootstrap; clients get the outside addresses. TLSRoute: Gateways (Gateway "
            "API) forward TLS to brokers; needs tls, hostTemplate, bootstrapHost and "
            "parentRefs."
        ),
    ] = None
    host_template: HostTemplate | None = None
    bootstrap_host: Annotated[
        Host | None,
        described(
            "The bootstrap name for clients outside; unset: the address in the Service's "
            "status. With tls, certificates are valid for it."
        ),
    ] = None
    advertised: Annotated[
        Advertised | None,
        described(
            "Addresses that clients outside get for single brokers instead of the discovered ones."
        ),
    ] = None
    service: ExternalService | None = None
    parent_refs: ParentRefs | None = None

    @property
    def reach(self) -> ListenerType:
        """Return the type of Service through which clients reach the listener."""
        return self.type or "ClusterIP"

    @property
    def external(self) -> bool:
        """Return True if the listener's clients are outside the pods' network."""
        return self.reach != "ClusterIP"


Listeners = Annotated[
    tuple[DeclaredListener, ...],
    Meta(
        min_length=1,
        max_length=8,
        description=(
            "Ports for clients. Unset: one plaintext listener on 9092. Brokers open and close "
            "listeners at run time; a removed listener's connections are closed at once."
        ),
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ),
]

LISTENERS_RULES = (
    (
        "!has(self.listeners) || self.listeners.all(l, !(l.port in [9091, 9093, 9100, 9101]))",
        "A listener's port must not be 9091, 9093, 9100 or 9101: brokers and operator use those.",
    ),
    (
        "!has(self.listeners) || "
        "self.listeners.all(l, self.listeners.exists_one(o, o.port == l.port))",
        "Two listeners must not have the same port.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.tls) || "
        "!has(l.tls.issuerRef) || !has(l.tls.certificateSecret))",
        "A listener's tls must not have both certificateSecret and issuerRef.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, (has(l.type) && l.type != 'ClusterIP') || "
        "!(has(l.hostTemplate) || has(l.bootstrapHost) || has(l.advertised) || has(l.service)))",
        "hostTemplate, bootstrapHost, advertised and service are allowed only with type NodePort, "
        "LoadBalancer or TLSRoute.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.type) || l.type != 'TLSRoute' || "
        "(has(l.tls) && has(l.hostTemplate) && has(l.bootstrapHost) && has(l.parentRefs)))",
        "A TLSRoute listener needs tls, hostTemplate, bootstrapHost and parentRefs: a Gateway "
        "routes by the requested server name alone.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, (has(l.type) && l.type == 'TLSRoute') || "
        "!has(l.parentRefs))",
        "parentRefs is allowed only with type TLSRoute.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.hostTemplate) || "
        "l.hostTemplate.contains('{id}'))",
        "hostTemplate must contain {id}: each broker has its own name.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.service) || "
        "(has(l.type) && l.type == 'LoadBalancer') || "
        "!(has(l.service.loadBalancerClass) || has(l.service.loadBalancerSourceRanges)))",
        "loadBalancerClass and loadBalancerSourceRanges are allowed only with type LoadBalancer.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.service) || !has(l.type) || "
        "l.type != 'TLSRoute' || !has(l.service.externalTrafficPolicy))",
        "externalTrafficPolicy is allowed only with type NodePort or LoadBalancer.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a in ['ServiceAccount', 'OAuth']))",
        "A listener with ServiceAccount or OAuth needs tls: without it a token can be read on the "
        "network and used again.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a == 'Tls'))",
        "A listener with Tls in its authentication needs tls.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.allowedNamespaces) || "
        "!has(l.type) || l.type in ['ClusterIP', 'TLSRoute'])",
        "allowedNamespaces is allowed only with type ClusterIP or TLSRoute: clients outside are in "
        "no namespace. For a load balancer use service.loadBalancerSourceRanges; for pods add a "
        "listener.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.allowedNamespaces) || "
        "has(l.allowedNamespaces.selector) == "
        "(has(l.allowedNamespaces.from) && l.allowedNamespaces.from == 'Selector'))",
        "allowedNamespaces.selector is required with from: Selector and not allowed otherwise.",
    ),
)


class Outside(NamedTuple):
    """Outside addresses of a listener, as far as they are known: one for each broker, and those of
    the bootstrap Service (comma-separated)."""

    advertised: tuple[AdvertisedAddress, ...] = ()
    bootstrap_servers: str | None = None


NOWHERE: Mapping[str, Outside] = {}


def committed(
    listeners: tuple[DeclaredListener, ...] | None, outside: Mapping[str, Outside] = NOWHERE
) -> tuple[Listener, ...]:
    """Convert the declared listeners into the values that the metadata log holds, sorted by name.
    `outside`: the known outside addresses, by listener name."""
    ordered = sorted(listeners or (), key=lambda one: one.name)
    return tuple(_committed(one, outside.get(one.name, Outside())) for one in ordered)


def without_addresses(listener: Listener) -> Listener:
    """Return the committed listener without its outside addresses: the form that it has while they
    are unknown."""
    return replace(listener, advertised=() if listener.external else None, bootstrap_servers=None)


def _committed(listener: DeclaredListener, outside: Outside) -> Listener:
    tls, limits = listener.tls, listener.limits
    reauth_seconds = None if limits is None else limits.reauth_seconds
    return Listener(
        name=listener.name,
        port=listener.port,
        tls_version_min=None if tls is None else tls.min_version or TLS_VERSION_DEFAULT,
        authentication=tuple(sorted(listener.authentication or ())),
        connections_max=limits.connections if limits else None,
        connections_max_reauth_ms=None if reauth_seconds is None else reauth_seconds * 1000,
        advertised=outside.advertised if listener.external else None,
        bootstrap_servers=outside.bootstrap_servers if listener.external else None,
    )
