"""Identities of brokers and controllers, by their certificates and the committed fingerprints.

A certificate of the cluster's internal authority names one identity, `plimsoll://<cluster
id>/broker/<id>` or `…/controller`. The committed records decide whether a broker's certificate is
still accepted: they hold the fingerprints of the certificates that each broker may present, newest
first. So a replaced certificate is refused from the record on, also with its key. Each operator
process makes a controller's certificate for itself, and no record holds it.

The functions return the fault of a peer as a reason for metrics, empty if there is none. They read
values; `plimsoll_net` does TLS itself.
"""

from __future__ import annotations

from enum import Enum
from uuid import UUID

import msgspec

from plimsoll_core.ids import BrokerId

SCHEME = "plimsoll"
NO_IDENTITY = "no-identity"
OTHER_CLUSTER = "other-cluster"
OTHER_PEER = "other-peer"
RETIRED = "retired-certificate"
PLAINTEXT = "plaintext"
REASONS = (NO_IDENTITY, OTHER_CLUSTER, OTHER_PEER, RETIRED, PLAINTEXT)
"""The reasons to refuse a peer with a certificate of the right authority. `PLAINTEXT`: it has no
certificate."""
CERTIFICATES_MAX = 2
"""The most certificates of a broker: the one in use, and its successor."""


class InsideMode(Enum):
    """Whether connections between brokers and controllers use TLS. Off: never. Permissive: if both
    ends can, otherwise plaintext. Required: always."""

    OFF = "Off"
    PERMISSIVE = "Permissive"
    REQUIRED = "Required"


ORDER = (InsideMode.OFF, InsideMode.PERMISSIVE, InsideMode.REQUIRED)
"""The modes in order. The mode may change by one step at a time."""


def unstated_mode(
    pinned: InsideMode | None, committed: InsideMode, *, has_brokers: bool
) -> InsideMode:
    """Return the mode of a cluster if its LogCluster states none: `pinned` if it is known; else
    Required, except Off for an existing cluster with the committed mode Off.

    `pinned`: the mode determined before, None if it is unknown. `committed`: the mode in the
    metadata log. `has_brokers`: True for an existing cluster: the log names a broker that has ever
    registered.
    """
    if pinned is not None:
        return pinned
    is_new = not has_brokers
    if is_new or committed is not InsideMode.OFF:
        return InsideMode.REQUIRED
    return InsideMode.OFF


class BrokerCertificates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The certificates that a broker may present: SHA-256 of their DER, in hex, newest first."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


class Inside(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The committed mode of connections inside a cluster, and the brokers' certificates, in
    ascending order of broker id."""

    mode: InsideMode = InsideMode.OFF
    certificates: tuple[BrokerCertificates, ...] = ()

    def of(self, broker_id: int | None) -> tuple[str, ...]:
        """Return the fingerprints of the certificates that the broker may present, newest first."""
        return next((one.sha256 for one in self.certificates if one.broker_id == broker_id), ())


NOTHING_INSIDE = Inside()
"""The state of a cluster that never configured internal certificates."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The identity that a peer's certificate states. `broker_id`: None for a controller; `sha256`:
    the certificate's fingerprint."""

    cluster_id: UUID
    broker_id: BrokerId | None
    sha256: str


def broker_identity(cluster_id: UUID, broker_id: int) -> str:
    return f"{SCHEME}://{cluster_id}/broker/{broker_id}"


def controller_identity(cluster_id: UUID) -> str:
    return f"{SCHEME}://{cluster_id}/controller"


def controller_name(cluster_id: UUID) -> str:
    """Return the TLS server name by which a broker asks for the controller certificate of its
    cluster: one port serves many clusters."""
    return f"{cluster_id}.controller.{SCHEME}"


def cluster_asked_for(name: str | None) -> UUID | None:
    """Return the cluster id in a name made by `controller_name`, or in a name that is only the id.
    Return None for any other name, and for None."""
    try:
        return UUID((name or "").removesuffix(f".controller.{SCHEME}"))
    except ValueError:
        return None


def peer_named(identities: tuple[str, ...], sha256: str) -> Peer | None:
    """Return the identity that a certificate's names state, or None if they state none or several.
    `sha256`: the certificate's fingerprint."""
    if len(identities) != 1:
        return None
    scheme, _, rest = identities[0].partition("://")
    cluster, _, role = rest.partition("/")
    kind, _, number = role.partition("/")
    try:
        cluster_id = UUID(cluster)
    except ValueError:
        return None
    broker_id: BrokerId | None = None
    if kind == "broker" and number.isascii() and number.isdigit() and len(number) <= 10:
        broker_id = BrokerId(int(number))
        whole = broker_identity(cluster_id, broker_id)
    else:
        whole = controller_identity(cluster_id)
    if identities[0] != whole or scheme != SCHEME:
        return None
    return Peer(cluster_id=cluster_id, broker_id=broker_id, sha256=sha256)


def refuses_broker(
    inside: Inside, cluster_id: UUID, peer: Peer | None, broker_id: int | None = None
) -> str:
    """Return the reason why the peer is not accepted as a broker of the cluster, empty if it is.
    `broker_id`: the expected broker, None for any."""
    if peer is None:
        return NO_IDENTITY
    if peer.cluster_id != cluster_id:
        return OTHER_CLUSTER
    if peer.broker_id is None or broker_id not in (None, peer.broker_id):
        return OTHER_PEER
    # Without the mode nothing is promised, and certificates on their way out stand in no record.
    if inside.mode is not InsideMode.OFF and peer.sha256 not in inside.of(peer.broker_id):
        return RETIRED
    return ""


def refuses_controller(cluster_id: UUID, peer: Peer | None) -> str:
    """Return the reason why the peer is not accepted as a controller of the cluster, empty if it
    is."""
    if peer is None:
        return NO_IDENTITY
    if peer.cluster_id != cluster_id:
        return OTHER_CLUSTER
    return "" if peer.broker_id is None else OTHER_PEER
