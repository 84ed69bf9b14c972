"""cert-manager and a Gateway's controller, played by a test: their kinds, without any schema, and
what they write into objects."""

import base64
import json
import time
from typing import Any

from dev.kubectl import Cluster, wait_for
from tests.e2e.secured import OPEN_S, Secured

from plimsoll_operator.pki.authority import issue, new_authority

KINDS = (
    ("cert-manager.io", "Certificate", "certificates"),
    ("gateway.networking.k8s.io", "TLSRoute", "tlsroutes"),
    ("gateway.networking.k8s.io", "Gateway", "gateways"),
)
DEFINITIONS = [f"crd/{plural}.{group}" for group, _, plural in KINDS]
GATEWAY_PORT = 8443
CORP = new_authority("corp", int(time.time() * 1000))


def install(cluster: Cluster) -> None:
    for group, kind, plural in KINDS:
        body = definition(group, kind, plural)
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *DEFINITIONS)


def remove(cluster: Cluster) -> None:
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", *DEFINITIONS)


def definition(group: str, kind: str, plural: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def play_cert_manager(secured: Secured) -> None:
    name = "main-listener-issued"

    def made() -> bool | None:
        return secured.cluster.get("certificate", name, secured.namespace) is not None or None

    wait_for("the Certificate", made, OPEN_S)
    stated = secured.object("certificate", name)["spec"]
    pair = issue(CORP, stated["dnsNames"], int(time.time() * 1000))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": stated["secretName"], "namespace": secured.namespace},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in files.items()},
    }
    secured.cluster.apply(body, secured.namespace)
    secured.set_status("certificate", name, {"conditions": [{"type": "Ready", "status": "True"}]})


def play_gateway(secured: Secured) -> None:
    passing = {"mode": "Passthrough"}
    listener = {"name": "tls", "protocol": "TLS", "port": GATEWAY_PORT, "tls": passing}
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": secured.namespace},
        "spec": {"listeners": [listener]},
    }
    secured.cluster.apply(body, secured.namespace)
    accepted = {
        "parentRef": {"name": "edge"},
        "conditions": [{"type": "Accepted", "status": "True"}],
    }
    names = ["main-bootstrap-routed", *(f"main-broker-{id_}-routed" for id_ in range(3))]

    def made() -> bool | None:
        shown = secured.cluster.items("tlsroutes", secured.namespace)
        return len(shown) == len(names) or None

    wait_for("its TLSRoutes", made, OPEN_S)
    for name in names:
        secured.set_status("tlsroute", name, {"parents": [accepted]})
