"""Builds the Certificate of a listener that cert-manager serves: one for all brokers.

Clients inside the pods' network know brokers by the names of their Services, clients outside by the
advertised names. A listener's Certificate contains names of one of these two kinds, since an issuer
of outside names does not sign names inside the cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from plimsoll_operator.api import labels
from plimsoll_operator.api.external_access import IssuerRef
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import CERTIFICATES
from plimsoll_operator.manifests.listener_secrets import service_names
from plimsoll_operator.manifests.manifest_context import Context

ISSUER_KIND = "Issuer"
ISSUER_GROUP = "cert-manager.io"


def inside_names(context: Context, brokers: Iterable[int]) -> tuple[str, ...]:
    """Return the names by which clients inside the pods' network reach brokers: those of the
    bootstrap Service, and each broker's own host name."""
    service = labels.brokers_service(context.name)
    pods = [labels.broker_pod(context.name, one) for one in brokers]
    hosts = [f"{pod}.{service}.{context.namespace}.svc" for pod in pods]
    begin = service_names(labels.bootstrap_service(context.name), context.namespace)
    return (*begin, *(name for host in hosts for name in (host, f"{host}.cluster.local")))


def certificate(
    context: Context, listener: str, issuer: IssuerRef, names: Iterable[str]
) -> Manifest:
    """Build the cert-manager Certificate of a listener, for all brokers. `names`: DNS names and IP
    addresses that it shall contain, at least one."""
    name = labels.listener_certificate(context.name, listener)
    metadata = context.metadata(name, labels.LISTENER_COMPONENT)
    metadata["labels"] |= {labels.LISTENER: listener}
    addresses = sorted({one for one in names if _is_address(one)})
    hosts = sorted({one for one in names if not _is_address(one)})
    return CERTIFICATES.manifest(
        metadata,
        spec={
            "secretName": name,
            **({"dnsNames": hosts} if hosts else {}),
            **({"ipAddresses": addresses} if addresses else {}),
            "issuerRef": {
                "name": issuer.name,
                "kind": issuer.kind or ISSUER_KIND,
                "group": issuer.group or ISSUER_GROUP,
            },
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
        },
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
