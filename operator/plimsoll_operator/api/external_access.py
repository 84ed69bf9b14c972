"""The fields of a declared listener about clients outside the pods' network.

`manifests.external_access` and `reconcile.cluster` find the outside address of each broker. This
module fills `{id}`, `{cluster}` and `{namespace}` into host names that the user states.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, BrokerNumber, Name, ObjectName, described

BROKERS_MAX = 100
ListenerType = Literal["ClusterIP", "NodePort", "LoadBalancer", "TLSRoute"]
Host = Annotated[
    str,
    Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9.:]*[A-Za-z0-9])?$"),
]
PortNumber = Annotated[int, Meta(ge=1, le=65_535)]
HostTemplate = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9{]([-A-Za-z0-9.{}]*[A-Za-z0-9}])?$",
        description=(
            "The name of each broker for clients outside; contains {id}, and may contain {cluster} "
            "and {namespace}. Unset: the address in the Service's status; TLSRoute requires it."
        ),
    ),
]


class IssuerRef(Api, frozen=True, kw_only=True):
    """A cert-manager issuer."""

    name: ObjectName
    kind: Annotated[
        Annotated[str, Meta(min_length=1, max_length=63)] | None,
        described("Kind of the issuer: usually Issuer (default) or ClusterIssuer."),
    ] = None
    group: Annotated[ObjectName | None, described("Default cert-manager.io.")] = None


class AdvertisedAddress(Api, frozen=True, kw_only=True):
    """An address that replaces the discovered one: clients outside use it to connect to one
    broker."""

    id: BrokerNumber
    host: Host
    port: PortNumber | None = None


class ExternalService(Api, frozen=True, kw_only=True):
    """Settings of the Services through which clients outside reach the listener."""

    annotations: Annotated[
        Annotated[
            dict[
                Annotated[str, Meta(min_length=1, max_length=316)],
                Annotated[str, Meta(max_length=1024)],
            ],
            Meta(max_length=32),
        ]
        | None,
        described(
            "Annotations of the Services. Values may contain {id} (the broker's number; "
            "'bootstrap' in the bootstrap Service), {host} (the name from hostTemplate or "
            "bootstrapHost), {cluster} and {namespace}. An annotation with {host} is left "
            "out if there is no name."
        ),
    ] = None
    load_balancer_class: Annotated[
        Annotated[str, Meta(min_length=1, max_length=316)] | None,
        described("The Services' loadBalancerClass; immutable once a Service has one."),
    ] = None
    load_balancer_source_ranges: Annotated[
        Annotated[
            tuple[
                Annotated[str, Meta(min_length=1, max_length=49, pattern=r"^[0-9a-fA-F.:/]+$")], ...
            ],
            Meta(max_length=64, extra_json_schema={"x-kubernetes-list-type": "set"}),
        ]
        | None,
        described("Networks (CIDR) that the load balancer admits; unset: all."),
    ] = None
    external_traffic_policy: Annotated[
        Literal["Local", "Cluster"] | None,
        described(
            "Local (default): a node forwards only to its own pods, and brokers see the "
            "client's address. Cluster: every node forwards, and brokers see the node's "
            "address."
        ),
    ] = None


class ParentRef(Api, frozen=True, kw_only=True):
    """A Gateway to which the listener's TLSRoutes are attached."""

    name: ObjectName
    namespace: Annotated[
        Name | None, described("Namespace of the Gateway; unset: the LogCluster's.")
    ] = None
    section_name: Annotated[
        ObjectName | None, described("The Gateway's listener; unset: any TLS listener.")
    ] = None
    port: Annotated[
        PortNumber | None,
        described(
            "The port at which clients reach the Gateway; unset: the port of its TLS listener."
        ),
    ] = None


Advertised = Annotated[
    tuple[AdvertisedAddress, ...],
    Meta(
        max_length=BROKERS_MAX,
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
        },
    ),
]
ParentRefs = Annotated[
    tuple[ParentRef, ...],
    Meta(
        min_length=1,
        max_length=4,
        description="Gateways that forward TLS to brokers by the requested server name.",
        extra_json_schema={"x-kubernetes-list-type": "atomic"},
    ),
]


def filled_in(template: str, cluster: str, namespace: str, id_: int | str) -> str:
    """Replace `{cluster}`, `{namespace}` and `{id}` in the host name `template`. `id_`: the
    broker's id, or the word that stands for the bootstrap Service."""
    parts = (("{id}", str(id_)), ("{cluster}", cluster), ("{namespace}", namespace))
    for name, value in parts:
        template = template.replace(name, value)
    return template
