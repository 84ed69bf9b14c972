"""Builds the Secrets and the ConfigMap of listeners with TLS: one Secret for each broker, and the
authority's.

A broker's Secret keeps its name and is mounted as a directory, so its content changes without a
change of any template. The authority's key is in the operator's namespace, out of reach of the
cluster's users; clients read its certificate from a ConfigMap.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from plimsoll_net.inside_identity import FILES as INSIDE_FILES
from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_operator.pki.rotation import Authorities

DIRECTORY = "/etc/plimsoll-tls"
CA_FILE = "ca.crt"
AUTHORITY = "listener-ca"
"""Label `component` of the objects of an authority (CA). It differs from `broker`, since the
operator deletes ConfigMaps of that component that no template names."""


def broker_secret(
    context: Context,
    broker_id: int,
    pairs: Mapping[str, KeyPair],
    inside: Mapping[str, bytes],
) -> Manifest:
    """Build the Secret that is mounted into a broker's pod. `pairs`: certificate and key, both PEM,
    by listener name; `inside`: the files for TLS between brokers and controller, by file name."""
    data = dict(inside)
    data |= {f"{name}.crt": pair.certificate for name, pair in pairs.items()}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    metadata = context.metadata(labels.broker_tls(context.name, broker_id))
    metadata["labels"] |= {labels.BROKER_ID: str(broker_id)}
    return _secret(metadata, data)


def why_foreign(context: Context, broker_id: int, secret: Manifest | None) -> str:
    """Return a sentence if `secret`, which has the name of a broker's Secret, belongs to another
    owner and must not be overwritten. Return "" if it is the LogCluster's, or None."""
    if secret is None:
        return ""
    name = labels.broker_tls(context.name, broker_id)
    wanted, shown = context.metadata(name), secret["metadata"]
    owners = {one.get("uid") for one in shown.get("ownerReferences") or ()}
    said = (shown.get("labels") or {}).get(labels.CLUSTER_ID)
    if wanted["ownerReferences"][0]["uid"] in owners or said == wanted["labels"][labels.CLUSTER_ID]:
        return ""
    return (
        f"Secret {name} does not belong to this LogCluster, so the certificates of broker "
        f"{broker_id} cannot be written to it. Delete it, or move its content to another Secret."
    )


def pair_of(secret: Manifest, name: str) -> KeyPair | None:
    """Return the certificate and key, in PEM, of the listener `name` in a broker's Secret; None if
    either is missing or not valid base64."""
    data = data_of(secret)
    certificate, key = data.get(f"{name}.crt"), data.get(f"{name}.key")
    if certificate is None or key is None:
        return None
    return KeyPair(certificate=certificate, key=key)


def authority_secret(
    context: Context, authorities: Authorities, name: str, component: str = AUTHORITY
) -> Manifest:
    """Build the Secret `name`, in the operator's namespace, that holds authorities (CAs) with their
    keys. The Secret has no owner, so it outlives the LogCluster, which may be recreated with the
    same id and volumes."""
    announced = authorities.announced
    data = {
        "ca.crt": authorities.current.certificate,
        "ca.key": authorities.current.key,
        "since": str(authorities.since_ms).encode(),
    }
    if authorities.served:
        data["served"] = authorities.served.encode()
    if announced is not None:
        data |= {"announced.crt": announced.certificate, "announced.key": announced.key}
    if authorities.former:
        data["former.crt"] = authorities.former
    metadata = {
        "name": name,
        "namespace": context.operator_namespace or context.namespace,
        "labels": labels.labels(context.name, context.cluster_id, component),
        "annotations": {labels.AUTHORITY_OF: f"{context.namespace}/{context.name}"},
    }
    return _secret(metadata, data)


def authorities_of(secret: Manifest) -> Authorities | None:
    """Return the authorities in a Secret that `authority_secret` built; None if required data is
    missing."""
    data = data_of(secret)
    since = data.get("since", b"")
    if "ca.crt" not in data or "ca.key" not in data or not since.isdigit():
        return None
    announced = None
    if "announced.crt" in data and "announced.key" in data:
        announced = KeyPair(certificate=data["announced.crt"], key=data["announced.key"])
    return Authorities(
        current=KeyPair(certificate=data["ca.crt"], key=data["ca.key"]),
        announced=announced,
        former=data.get("former.crt", b""),
        since_ms=int(since),
        served=data.get("served", b"").decode(errors="replace"),
    )


def authority_config_map(context: Context, trusted: bytes) -> Manifest:
    """Build the ConfigMap from which clients of the TLS listeners read the CA certificates to
    trust. `trusted`: these certificates, in PEM."""
    return CONFIG_MAPS.manifest(
        context.metadata(labels.listener_authority_map(context.name), AUTHORITY),
        data={CA_FILE: trusted.decode()},
    )


def server_names(context: Context, broker_id: int) -> tuple[str, ...]:
    """Return all names that a broker's certificate must contain: its own, those of the bootstrap
    Service, and those that the operator's options add."""
    service, namespace = labels.brokers_service(context.name), context.namespace
    pod = labels.broker_pod(context.name, broker_id)
    return (
        *service_names(f"{pod}.{service}", namespace),
        *service_names(labels.bootstrap_service(context.name), namespace),
        *context.server_names,
    )


def service_names(host: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names by which pods of any namespace may look up a Service, or a pod of it.
    `host`: its name within the namespace."""
    within = f"{host}.{namespace}"
    return f"{within}.svc", f"{within}.svc.cluster.local", within, host


def inside_of(secret: Manifest | None) -> dict[str, bytes]:
    """Return the files for TLS between brokers and controller in a broker's Secret, by name; empty
    for None."""
    if secret is None:
        return {}
    return {name: data for name, data in data_of(secret).items() if name in INSIDE_FILES}


def with_inside(
    context: Context, broker_id: int, secret: Manifest | None, inside: Mapping[str, bytes]
) -> Manifest:
    """Build a broker's Secret with the files `inside` for TLS between brokers and controller, and
    with the other files of `secret`, the present one (None: the broker has no Secret)."""
    held = {} if secret is None else data_of(secret)
    data = {name: value for name, value in held.items() if name not in INSIDE_FILES}
    metadata = context.metadata(labels.broker_tls(context.name, broker_id))
    metadata["labels"] |= {labels.BROKER_ID: str(broker_id)}
    return _secret(metadata, {**data, **inside})


def data_of(secret: Manifest) -> dict[str, bytes]:
    """Return a Secret's decoded data by key, without values that are not valid base64."""
    found = {}
    for key, text in (secret.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(text, validate=True)
        except ValueError:
            continue
    return found


def _secret(metadata: Manifest, data: Mapping[str, bytes]) -> Manifest:
    return SECRETS.manifest(
        metadata,
        type=labels.TLS_SECRET,
        data={key: base64.b64encode(value).decode() for key, value in sorted(data.items())},
    )
