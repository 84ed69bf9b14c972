"""The part of `LogCluster` about the ports that clients connect to.

`committed` says what the metadata log holds of it; certificates are the operator's alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_core.cluster.listeners import Listener
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
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a in ['ServiceAccount', 'OAuth']))",
        "A listener with ServiceAccount or OAuth needs tls: who reads a token has what it gives.",
    ),
    (
        "!has(self.listeners) || self.listeners.all(l, !has(l.authentication) || has(l.tls) || "
        "!l.authentication.exists(a, a == 'Tls'))",
        "A listener with Tls among its authentication needs tls: certificates are shown in it.",
    ),
)


def committed(listeners: tuple[DeclaredListener, ...] | None) -> tuple[Listener, ...]:
    """What brokers are told of them, in the order of their names."""
    return tuple(_committed(one) for one in sorted(listeners or (), key=lambda one: one.name))


def _committed(listener: DeclaredListener) -> Listener:
    tls, limits = listener.tls, listener.limits
    reauth_seconds = None if limits is None else limits.reauth_seconds
    return Listener(
        name=listener.name,
        port=listener.port,
        tls_version_min=None if tls is None else tls.min_version or TLS_VERSION_DEFAULT,
        authentication=tuple(sorted(listener.authentication or ())),
        connections_max=limits.connections if limits else None,
        connections_max_reauth_ms=None if reauth_seconds is None else reauth_seconds * 1000,
    )
