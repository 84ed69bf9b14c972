"""TLS identities of the controllers' port and the brokers it accepts, for several clusters.

A connecting broker names the cluster of the controller that it wants (SNI) and gets that cluster's
certificate; a process that does not lead the cluster has no certificate to show. The broker that a
certificate names, and its presence in the metadata log, are checked after the handshake and at each
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from plimsoll_core.security.inside import (
    NO_IDENTITY,
    OTHER_CLUSTER,
    PLAINTEXT,
    Inside,
    InsideMode,
    Peer,
    cluster_asked_for,
    refuses_broker,
)
from plimsoll_net.dialling import Buffered, Refusals
from plimsoll_net.handshakes import Accepting, HandshakeQueue
from plimsoll_net.inside_identity import InsideIdentity
from plimsoll_net.tls_policy import asking_context


class InsideServer:
    """Server side of TLS for the controllers' port of one operator process: which certificate to
    show, and which peers to refuse. `committed` returns a cluster's committed TLS mode and its
    brokers' permitted certificates, by cluster id."""

    def __init__(self) -> None:
        self.committed: dict[UUID, Callable[[], Inside]] = {}
        # Tells if peers without a certificate are refused whatever is committed.
        self.demands_tls: dict[UUID, Callable[[], bool]] = {}
        # Called with the cause when a peer that is of the cluster, or claims to be, is refused.
        self.tell: dict[UUID, Callable[[str], None]] = {}
        self.refusals = Refusals()
        # Identity shown to brokers, by cluster.
        self._shown: dict[UUID, InsideIdentity] = {}
        self._handshakes: HandshakeQueue | None = None
        self._asking = asking_context(self._asked_for)

    def show(self, cluster_id: UUID, identity: InsideIdentity) -> None:
        """Show the certificate of `identity` to each broker that connects for this cluster from now
        on."""
        self._shown[cluster_id] = identity

    def forget(self, cluster_id: UUID) -> None:
        """Forget a cluster that this process no longer leads: it has no certificate to show any
        more."""
        self.committed.pop(cluster_id, None)
        self._shown.pop(cluster_id, None)
        self.tell.pop(cluster_id, None)
        self.demands_tls.pop(cluster_id, None)

    def asking_first(self, protocol: Callable[[], Any]) -> Callable[[], asyncio.BaseProtocol]:
        """Return the protocol factory of a server that makes a TLS handshake first and then runs
        `protocol`. A peer without TLS is accepted until it names its cluster."""
        accepting = Accepting(
            session=lambda: Buffered(protocol()),
            context=lambda: self._asking,
            ended=self.refusals.counts,
            refuses=self._refuses_new,
            plain=lambda: True,
        )
        self._handshakes = HandshakeQueue(accepting)
        return self._handshakes.connection

    def close(self) -> None:
        """Close connections that have not completed their handshake."""
        if self._handshakes is not None:
            self._handshakes.close()

    def refuses_now(self, cluster_id: UUID, peer: Peer | None) -> str:
        """Return the reason why requests of this connection must not be answered any more. Return
        "" if they may be, or if this process does not lead the cluster. `peer`: the identity in the
        connection's certificate, None for plaintext. A refusal is counted and reported."""
        committed = self.committed.get(cluster_id)
        if committed is None:
            return ""  # not led here: the answer is NotController
        inside = committed()
        if peer is not None:
            reason = refuses_broker(inside, cluster_id, peer)
        else:
            demands = self.demands_tls.get(cluster_id, lambda: False)
            reason = PLAINTEXT if inside.mode is InsideMode.REQUIRED or demands() else ""
        if reason:
            self.refusals.met(reason, f"a peer of cluster {cluster_id}")
            self._tell(cluster_id, reason)
        return reason

    def _tell(self, cluster_id: UUID, reason: str) -> None:
        if (tell := self.tell.get(cluster_id)) is not None:
            tell(reason)

    def _asked_for(self, name: str | None) -> Any:
        """Return the TLS context that shows the certificate of the cluster which a broker names
        (SNI). Return None if it names no cluster, or one for which this process has no
        certificate."""
        cluster_id = cluster_asked_for(name)
        shown = None if cluster_id is None else self._shown.get(cluster_id)
        return None if shown is None else shown.server

    def _refuses_new(self, peer: Peer | None, address: str) -> str:
        if peer is None:
            reason = NO_IDENTITY
        elif peer.cluster_id not in self.committed:
            reason = OTHER_CLUSTER
        else:
            reason = refuses_broker(self.committed[peer.cluster_id](), peer.cluster_id, peer)
        if reason:
            self.refusals.say(reason, address)  # counted at the close
            if peer is not None:
                self._tell(peer.cluster_id, reason)
        return reason
