"""The part of `LogCluster` about certificates that clients never see: `spec.certificates`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName

KEY_DEFAULT = "ca.crt"
ModeName = Literal["Off", "Permissive", "Required"]


class InternalCertificates(Api, frozen=True, kw_only=True):
    """How brokers and the operator prove to each other who they are."""

    mode: (
        Annotated[
            ModeName,
            Meta(
                description=(
                    "Off: what brokers and the operator send each other is neither encrypted nor "
                    "authenticated. Required: both ends show a certificate of the cluster's "
                    "internal CA, and nobody else is answered. Unset: Required for a new cluster; "
                    "one that has brokers already stays as it is. "
                    "status.certificates.internal.pinned shows it. A running cluster gets "
                    "there, and back, by itself by way of Permissive (with TLS wherever both ends "
                    "can), restarts nothing and waits wherever a broker would be cut off. Brokers' "
                    "certificates are replaced after 20 of their 30 days."
                )
            ),
        ]
        | None
    ) = None


class BundleKey(Api, frozen=True, kw_only=True):
    """A ConfigMap or a Secret of this namespace, and where in it certificates are."""

    name: ObjectName
    key: (
        Annotated[str, Meta(min_length=1, max_length=253, description=f"Unset: {KEY_DEFAULT}.")]
        | None
    ) = None


class ExternalCa(Api, frozen=True, kw_only=True):
    """An authority whose certificates clients may log in by; exactly one of configMap and secret
    holds its own (PEM, one or several)."""

    name: Annotated[str, Meta(min_length=1, max_length=31, pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    config_map: BundleKey | None = None
    secret: BundleKey | None = None


class ClientCertificates(Api, frozen=True, kw_only=True):
    """By which clients log in at listeners with Tls among their authentication."""

    external_cas: (
        Annotated[
            tuple[ExternalCa, ...],
            Meta(
                max_length=8,
                description=(
                    "Authorities that are believed beside the cluster's own. Their clients are "
                    "called by the certificate's distinguished name, such as "
                    "User:CN=orders,O=Shop. They are read again each minute; who logged in by one "
                    "that is named no more is cut off."
                ),
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
            ),
        ]
        | None
    ) = None


class Certificates(Api, frozen=True, kw_only=True):
    """Certificates besides those of listeners."""

    internal: InternalCertificates | None = None
    clients: ClientCertificates | None = None


CERTIFICATES_RULES = (
    (
        "!has(self.certificates) || !has(self.certificates.clients) || "
        "!has(self.certificates.clients.externalCas) || "
        "self.certificates.clients.externalCas.all(c, c.name != 'clients' && "
        "has(c.configMap) != has(c.secret))",
        "An external CA has one of configMap and secret, and another name than clients.",
    ),
)
