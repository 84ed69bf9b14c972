"""The part of `LogCluster` about certificates that clients never see: `spec.certificates`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api

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


class Certificates(Api, frozen=True, kw_only=True):
    """Certificates besides those of listeners."""

    internal: InternalCertificates | None = None
