"""The part of `LogCluster` about the ports that clients connect to.

`committed` converts it for the metadata log, without the operator's own settings of certificates.
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
from plimsoll_operator.api.meta import Api, ObjectName

TLS_VERSION_DEFAULT = "1.2"
Login = Literal["ScramSha256", "ScramSha512", "ServiceAccount", "OAuth", "Tls"]


class ListenerTls(Api, frozen=True, kw_only=True):
    """Where a listener's certificate comes from, and which TLS it speaks."""

    certificate_secret: (
        Annotated[
            ObjectName,
            Meta(
                description=(
                    "A Secret of this namespace, whose tls.crt (PEM, the whole chain) and tls.key "
                    "every broker shows; it is read again each minute. Unset: each broker has a "
                    "certificate of its own, signed by the cluster's listener CA, which is in "
                    "ConfigMap <name>-listener-ca."
                )
            ),
        ]
        | None
    ) = None
    issuer_ref: (
        Annotated[
            IssuerRef,
            Meta(
                description=(
                    "cert-manager's: the operator makes a Certificate for all names of the "
                    "listener, and every broker shows what cert-manager puts into its Secret "
                    "<name>-listener-<listener>."
                )
            ),
        ]
        | None
    ) = None
    min_version: (
        Annotated[
            Literal["1.2", "1.3"],
            Meta(description="The oldest version of TLS that is spoken; default 1.2."),
        ]
        | None
    ) = None


class DeclaredLimits(Api, frozen=True, kw_only=True):
    """What a listener's clients may use, on each broker."""

    connections: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1_000_000,
                description=(
                    "Connections that are open at a time; unset: the brokers' max.connections, "
                    "and 2000 at most with TLS."
                ),
            ),
        ]
        | None
    ) = None
    reauth_seconds: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=31_536_000,
                description=(
                    "After so long a client has to log in again, on the same connection, or is "
                    "closed (Kafka's connections.max.reauth.ms); unset: when the token ends that "
                    "it logged in with, and with a password never."
                ),
            ),
        ]
        | None
    ) = None


class DeclaredListener(Api, frozen=True, kw_only=True):
    """A port that clients connect to, on every broker."""

    name: Annotated[str, Meta(min_length=1, max_length=11, pattern=r"^[a-z][a-z0-9]{0,10}$")]
    port: Annotated[
        int,
        Meta(
            ge=1024,
            le=65535,
            description="Not 9091, 9093, 9100 or 9101, which are the brokers' and operator's own.",
        ),
    ]
    tls: (
        Annotated[
            ListenerTls,
            Meta(description="Set, also as {}: clients must speak TLS. Unset: plaintext."),
        ]
        | None
    ) = None
    authentication: (
        Annotated[
            tuple[Login, ...],
            Meta(
                min_length=1,
                max_length=5,
                description=(
                    "Clients must prove a user name by one of these; unset: by none. "
                    "ServiceAccount: a pod's token, and OAuth: one of spec.tokenIssuers, both by "
                    "SASL/OAUTHBEARER and with tls alone. Tls: a certificate of the cluster's "
                    "clients CA or of one of spec.certificates.clients.externalCas, with tls "
                    "alone; beside others it may be left out, and who shows one logs in by it."
                ),
                extra_json_schema={"x-kubernetes-list-type": "set"},
            ),
        ]
        | None
    ) = None
    limits: DeclaredLimits | None = None
    allowed_namespaces: (
        Annotated[
            AllowedNamespaces,
            Meta(
                description=(
                    "Whose pods reach the port, by the brokers' NetworkPolicy. Unset, or from: "
                    "All: whoever there is. from: Same (default where something is stated): pods "
                    "of the LogCluster's own namespace. Selector: also those of namespaces with "
                    "these labels. Of ClusterIP listeners, and of TLSRoute ones, whose clients "
                    "are the Gateway's pods."
                )
            ),
        ]
        | None
    ) = None
    type: (
        Annotated[
            ListenerType,
            Meta(
                description=(
                    "ClusterIP (default): clients are inside. NodePort, LoadBalancer: each broker "
                    "has a Service of this type, and one more is what clients begin at; they are "
                    "told the addresses outside. TLSRoute: Gateways pass TLS on to brokers "
                    "(Gateway API); needs tls, hostTemplate, bootstrapHost and parentRefs."
                )
            ),
        ]
        | None
    ) = None
    host_template: HostTemplate | None = None
    bootstrap_host: (
        Annotated[
            Host,
            Meta(
                description=(
                    "The name that clients outside begin at; unset: what the Service's status "
                    "says. With tls certificates are valid for it."
                )
            ),
        ]
        | None
    ) = None
    advertised: (
        Annotated[
            Advertised,
            Meta(description="What clients outside are told of single brokers instead."),
        ]
        | None
    ) = None
    service: ExternalService | None = None
    parent_refs: ParentRefs | None = None

    @property
    def reach(self) -> ListenerType:
        """The type of Service by which clients reach it."""
        return self.type or "ClusterIP"

    @property
    def external(self) -> bool:
        """True if its clients are outside the pods' network."""
        return self.reach != "ClusterIP"


Listeners = Annotated[
    tuple[DeclaredListener, ...],
    Meta(
        min_length=1,
        max_length=8,
        description=(
            "Where clients connect. Unset: one plaintext listener on 9092. Brokers open and close "
            "listeners at run time; one that is removed closes its connections at once."
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
        "A listener's port is none of 9091, 9093, 9100 and 9101: brokers and operator use those.",
    ),
    (
        "!has(self.listeners) || "
        "self.listeners.all(l, self.listeners.exists_one(o, o.port == l.port))",
        "Each listener has a port of its own.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.tls) || "
        "!has(l.tls.issuerRef) || !has(l.tls.certificateSecret))",
        "A listener's certificate comes from certificateSecret or from issuerRef, not from both.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, (has(l.type) && l.type != 'ClusterIP') || "
        "!(has(l.hostTemplate) || has(l.bootstrapHost) || has(l.advertised) || has(l.service)))",
        "hostTemplate, bootstrapHost, advertised and service are of listeners whose type is "
        "NodePort, LoadBalancer or TLSRoute.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.type) || l.type != 'TLSRoute' || "
        "(has(l.tls) && has(l.hostTemplate) && has(l.bootstrapHost) && has(l.parentRefs)))",
        "A TLSRoute listener needs tls, hostTemplate, bootstrapHost and parentRefs: a Gateway "
        "knows only the name that a client asks for.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, (has(l.type) && l.type == 'TLSRoute') || "
        "!has(l.parentRefs))",
        "parentRefs are of TLSRoute listeners.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.hostTemplate) || "
        "l.hostTemplate.contains('{id}'))",
        "hostTemplate has {id} in it: each broker has a name of its own.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.service) || "
        "(has(l.type) && l.type == 'LoadBalancer') || "
        "!(has(l.service.loadBalancerClass) || has(l.service.loadBalancerSourceRanges)))",
        "loadBalancerClass and loadBalancerSourceRanges are of LoadBalancer listeners.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.service) || !has(l.type) || "
        "l.type != 'TLSRoute' || !has(l.service.externalTrafficPolicy))",
        "externalTrafficPolicy is of NodePort and LoadBalancer listeners.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a in ['ServiceAccount', 'OAuth']))",
        "A listener with ServiceAccount or OAuth needs tls: who reads a token has what it gives.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a == 'Tls'))",
        "A listener with Tls among its authentication needs tls: certificates are shown in it.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.allowedNamespaces) || "
        "!has(l.type) || l.type in ['ClusterIP', 'TLSRoute'])",
        "allowedNamespaces tells pods apart, so it is of ClusterIP and TLSRoute listeners: clients "
        "outside are in no namespace. service.loadBalancerSourceRanges says which networks a load "
        "balancer lets in; pods get a listener of their own.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.allowedNamespaces) || "
        "has(l.allowedNamespaces.selector) == "
        "(has(l.allowedNamespaces.from) && l.allowedNamespaces.from == 'Selector'))",
        "allowedNamespaces with from: Selector has a selector, and no other has one.",
    ),
)


class Outside(NamedTuple):
    """The known outside addresses of a listener: of brokers, and for the bootstrap."""

    advertised: tuple[AdvertisedAddress, ...] = ()
    bootstrap_servers: str | None = None


NOWHERE: Mapping[str, Outside] = {}


def committed(
    listeners: tuple[DeclaredListener, ...] | None, outside: Mapping[str, Outside] = NOWHERE
) -> tuple[Listener, ...]:
    """Convert the listeners for the brokers, ordered by name. `outside`: by these names."""
    ordered = sorted(listeners or (), key=lambda one: one.name)
    return tuple(_committed(one, outside.get(one.name, Outside())) for one in ordered)


def without_addresses(listener: Listener) -> Listener:
    """Return the listener as committed while its outside addresses are unknown."""
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
