"""The part of a declared listener about clients outside the pods' network.

`manifests.external_access` and `reconcile.cluster` find each broker's outside address; this module
fills in stated names with `{id}`, `{cluster}` and `{namespace}`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, BrokerNumber, Name, ObjectName

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
            "The name of each broker outside, with {id} in it, and {cluster} and {namespace} if "
            "wanted. Unset: what the Service's status says; with TLSRoute it must be set."
        ),
    ),
]


class IssuerRef(Api, frozen=True, kw_only=True):
    """A cert-manager issuer."""

    name: ObjectName
    kind: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=63,
                description="Issuer (default) or ClusterIssuer, mostly.",
            ),
        ]
        | None
    ) = None
    group: Annotated[ObjectName, Meta(description="Default cert-manager.io.")] | None = None


class AdvertisedAddress(Api, frozen=True, kw_only=True):
    """What clients outside are told of one broker, instead of what is found."""

    id: BrokerNumber
    host: Host
    port: PortNumber | None = None


class ExternalService(Api, frozen=True, kw_only=True):
    """What is stated in the Services of a listener."""

    annotations: (
        Annotated[
            dict[
                Annotated[str, Meta(min_length=1, max_length=316)],
                Annotated[str, Meta(max_length=1024)],
            ],
            Meta(
                max_length=32,
                description=(
                    "In values {id} is the broker's number ('bootstrap' in the Service that "
                    "clients begin at), {host} its name by hostTemplate or bootstrapHost, "
                    "{cluster} and {namespace} the LogCluster's. One with {host} is left out "
                    "where there is no name."
                ),
            ),
        ]
        | None
    ) = None
    load_balancer_class: (
        Annotated[
            str, Meta(min_length=1, max_length=316, description="Fixed once a Service has it.")
        ]
        | None
    ) = None
    load_balancer_source_ranges: (
        Annotated[
            tuple[
                Annotated[str, Meta(min_length=1, max_length=49, pattern=r"^[0-9a-fA-F.:/]+$")], ...
            ],
            Meta(
                max_length=64,
                description="Networks (CIDR) that the load balancer lets in; unset: all.",
                extra_json_schema={"x-kubernetes-list-type": "set"},
            ),
        ]
        | None
    ) = None
    external_traffic_policy: (
        Annotated[
            Literal["Local", "Cluster"],
            Meta(
                description=(
                    "Local (default): a node passes on what is for pods of its own, whose brokers "
                    "see the client's address. Cluster: every node passes on, and the address is "
                    "the node's."
                )
            ),
        ]
        | None
    ) = None


class ParentRef(Api, frozen=True, kw_only=True):
    """A Gateway that a TLSRoute is attached to."""

    name: ObjectName
    namespace: Annotated[Name, Meta(description="Default: the LogCluster's.")] | None = None
    section_name: (
        Annotated[ObjectName, Meta(description="The Gateway's listener; unset: any for TLS.")]
        | None
    ) = None
    port: (
        Annotated[
            PortNumber,
            Meta(
                description=(
                    "Where clients reach the Gateway; unset: the port of its listener for TLS."
                )
            ),
        ]
        | None
    ) = None


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
        description="The Gateways that pass TLS on to brokers, by the name that clients ask for.",
        extra_json_schema={"x-kubernetes-list-type": "atomic"},
    ),
]


def filled_in(template: str, cluster: str, namespace: str, id_: int | str) -> str:
    """Fill in a template for a broker, or for the bootstrap Service."""
    parts = (("{id}", str(id_)), ("{cluster}", cluster), ("{namespace}", namespace))
    for name, value in parts:
        template = template.replace(name, value)
    return template
