"""Checks connections inside the cluster: each peer is one that the committed metadata names.

`InsideChecker.look` is called with each broker that ran in a step. It does not trust the ends of a
connection: the network knows which process is at the other end.

A2 NoForeignFollower · A3 OneKeyOneBroker · A6 TrustOnlyCommitted · A7 RotationCutsNobody · A8
PhaseMonotone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.security.inside import ORDER, InsideMode
from plimsoll_net.inside_identity import fingerprints
from plimsoll_operator.api import labels
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests.listener_secrets import authorities_of
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation

Issuer = Callable[[str], str]
"""Function that returns the authority that signed the certificate with this fingerprint."""


class InsideChecker:
    """Checks all brokers of a world. `calm`: True if the run has no faults that cut a broker off
    its peers, so that rotations or operators caused every departure from an ISR. `stays_open`: True
    if the cluster does not ask for certificates."""

    def __init__(
        self,
        ghost: MetadataGhost,
        cluster_id: UUID,
        brokers: dict[int, BrokerHost],
        issuer: Issuer,
        *,
        calm: bool,
        stays_open: bool,
    ) -> None:
        self._ghost = ghost
        self._brokers = brokers
        self._issuer = issuer
        self._calm = calm
        self.stays_open = stays_open
        self._authority = labels.inside_authority(cluster_id)
        # The newest image that was looked at.
        self._image = ghost.image
        # Brokers with certificates that were made without the metadata log, which was lost; until
        # these are committed.
        self.made_anew: set[BrokerId] = set()
        # The stored authorities: the one that signs and those that are trusted.
        self.authorities: Authorities | None = None
        # Brokers that have taken part ever since the authorities changed last: their epochs.
        self._steady: dict[BrokerId, int] = {}
        # The number of rotations that were completed.
        self.rotations = 0

    # --- a broker's connections -------------------------------------------------------------------

    def look(self, host: BrokerHost) -> None:
        """Check the connections of a broker after a step in which the broker ran."""
        manager = host.manager
        image = None if manager is None else manager.image
        if image is None or host.node is None or host.node._serving is None:
            return
        for session in host.node._serving.replication._open:
            self._check(host, image, session)

    def _check(self, host: BrokerHost, image: ClusterImage, session: Any) -> None:
        inside, peer = image.inside, session.inside_peer
        if session._transport is None or inside.mode is InsideMode.OFF:
            return
        if peer is None:
            if inside.mode is InsideMode.REQUIRED:
                raise Violation("NoForeignFollower", f"{host.name} serves a peer in plaintext")
            return
        if peer.sha256 not in inside.of(peer.broker_id):
            text = f"{host.name} serves a certificate of broker {peer.broker_id} that was retired"
            raise Violation("OneKeyOneBroker", text)
        actual = session._transport._plain.peer.process.host
        if actual.startswith("broker-") and actual != f"broker-{peer.broker_id}":
            text = f"{host.name} takes {actual} for broker {peer.broker_id}"
            raise Violation("NoForeignFollower", text)

    # --- what is committed ------------------------------------------------------------------------

    def committed(self) -> None:
        """Compare the newest committed image with the previous one."""
        before, self._image = self._image, self._ghost.image
        after = self._image
        if after.brokers is not before.brokers:
            for broker_id, epoch in list(self._steady.items()):
                broker = after.brokers.get(broker_id)
                if broker is None or broker.fenced or broker.broker_epoch != epoch:
                    del self._steady[broker_id]
        if after.inside is not before.inside:
            self._check_mode(before, after)
            self._check_shown(after)
        if self._calm and after.partitions is not before.partitions:
            self._check_isrs(before, after)

    def _check_mode(self, before: ClusterImage, after: ClusterImage) -> None:
        """Check the mode of TLS: each change moves towards Required, the goal of a run. A cluster
        that did not ask for certificates stays without."""
        if self.stays_open and after.inside.mode is not InsideMode.OFF:
            text = f"{after.inside.mode.value}, and no request for it was made"
            raise Violation("PhaseMonotone", text)
        step = ORDER.index(after.inside.mode) - ORDER.index(before.inside.mode)
        if step not in (0, 1):
            text = f"from {before.inside.mode.value} to {after.inside.mode.value}"
            raise Violation("PhaseMonotone", text)

    def _check_shown(self, after: ClusterImage) -> None:
        """Check that an active broker's certificate stays allowed until the broker shows another
        one."""
        if after.inside.mode is InsideMode.OFF:
            return
        for broker_id in [one.id for one in after.brokers.values() if not one.fenced]:
            host = self._brokers[int(broker_id)]
            identity = None if host.node is None else host.node.inside.identity
            if not host.running or identity is None:
                continue
            if identity.sha256 in after.inside.of(broker_id):
                self.made_anew.discard(broker_id)
            elif broker_id not in self.made_anew:
                text = f"what {host.name} shows is retired before it has another"
                raise Violation("RotationCutsNobody", text)

    def _check_isrs(self, before: ClusterImage, after: ClusterImage) -> None:
        for key, new in after.partitions.items():
            old = before.partitions.get(key)
            if old is None or old is new:
                continue
            left = sorted({*old.isr} - {*new.isr})
            if left and set(new.replicas) >= set(old.replicas):
                raise Violation("RotationCutsNobody", f"{self._name(key)}: {left} left the ISR")

    def _name(self, key: PartitionKey) -> str:
        ghost = self._ghost.partitions.get(key)
        return str(key if ghost is None else ghost.name)

    # --- authorities ------------------------------------------------------------------------------

    def stored(self, change: ObjectChange) -> None:
        """Check a write to the API server. Raises a Violation if a rotation went wrong."""
        body = change.after.body
        if change.resource.kind != SECRETS or body["metadata"]["name"] != self._authority:
            return
        if change.type == "ADDED":
            self.authorities = None  # the Secret was lost
        before, after = self.authorities, authorities_of(body)
        self.authorities = after
        if before is None or after is None:
            return
        if before.current != after.current:
            self._check_trusted(fingerprints(after.current.certificate)[0])
        elif before.former and not after.former:
            self._check_renewed(fingerprints(after.current.certificate)[0])
            self.rotations += 1
        brokers = self._image.brokers
        self._steady = {one.id: int(one.broker_epoch) for one in brokers.values() if not one.fenced}

    def _check_trusted(self, sha256: str) -> None:
        """Check that every active broker trusts the authority that signs from now on. `sha256`: its
        fingerprint."""
        for broker_id in self._steady:
            host = self._brokers[int(broker_id)]
            if host.running and host.node is not None:
                identity = host.node.inside.identity
                if identity is None or sha256 not in identity.authorities:
                    text = f"an authority signs that {host.name} does not trust"
                    raise Violation("TrustOnlyCommitted", text)

    def _check_renewed(self, sha256: str) -> None:
        """Check that no active broker still shows a certificate of the previous authority.
        `sha256`: that authority's fingerprint."""
        for broker_id in self._steady:
            host = self._brokers[int(broker_id)]
            if host.running and host.node is not None:
                identity = host.node.inside.identity
                if identity is None or self._issuer(identity.sha256) != sha256:
                    text = f"no authority is trusted that signed what {host.name} shows"
                    raise Violation("TrustOnlyCommitted", text)
