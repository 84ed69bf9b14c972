"""The part of `LogCluster` about certificates that clients never see: `spec.certificates`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, ObjectName, described

KEY_DEFAULT = "ca.crt"
ModeName = Literal["Off", "Permissive", "Required"]


class InternalCertificates(Api, frozen=True, kw_only=True):
    """TLS between brokers, and between brokers and the operator."""

    mode: Annotated[
        ModeName | None,
        described(
            "Off: traffic between brokers and the operator is neither encrypted nor "
            "authenticated. Required: both ends present a certificate of the cluster's "
            "internal CA; connections without one are refused. Unset: Required for a new "
            "cluster, and no change for one that already has brokers; "
            "status.certificates.internal.pinned shows the mode. A running cluster changes "
            "between the two through Permissive (TLS if both ends support it). The change "
            "restarts nothing, and waits while a broker would be cut off. Brokers' "
            "certificates last 30 days and are replaced after 20."
        ),
    ] = None


class BundleKey(Api, frozen=True, kw_only=True):
    """A ConfigMap or Secret of this namespace, and the key that holds the certificates."""

    name: ObjectName
    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        described(f"Default {KEY_DEFAULT}."),
    ] = None


class ExternalCa(Api, frozen=True, kw_only=True):
    """A certificate authority that may issue client certificates. Exactly one of configMap and
    secret holds its certificates (PEM, one or several)."""

    name: Annotated[str, Meta(min_length=1, max_length=31, pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    config_map: BundleKey | None = None
    secret: BundleKey | None = None


class ClientCertificates(Api, frozen=True, kw_only=True):
    """Authorities of client certificates, for listeners with Tls in their authentication."""

    external_cas: Annotated[
        Annotated[
            tuple[ExternalCa, ...],
            Meta(
                max_length=8,
                extra_json_schema={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
            ),
        ]
        | None,
        described(
            "Trusted authorities besides the cluster's own. The user name of their clients "
            "is the certificate's distinguished name, such as User:CN=orders,O=Shop. "
            "Brokers reread the certificates each minute, and close sessions of an "
            "authority that is no longer listed."
        ),
    ] = None


class Certificates(Api, frozen=True, kw_only=True):
    """Certificates other than those of listeners."""

    internal: InternalCertificates | None = None
    clients: ClientCertificates | None = None


CERTIFICATES_RULES = (
    (
        "!has(self.certificates) || !has(self.certificates.clients) || "
        "!has(self.certificates.clients.externalCas) || "
        "self.certificates.clients.externalCas.all(c, c.name != 'clients' && "
        "has(c.configMap) != has(c.secret))",
        "Each CA in externalCas must have exactly one of configMap and secret, and must not be "
        "named clients.",
    ),
)
