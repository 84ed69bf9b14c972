"""What the controllers' port shows brokers, and which brokers it lets in, for several clusters.

A broker names the cluster whose controller it wants (SNI) and is shown that one's certificate; a
process that does not lead the cluster has none to show.  Whom a certificate names, and whether it
is still in the metadata log, is looked at after the handshake and with each request.
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
    """Of one operator process.  `committed`: by cluster, what is committed now."""

    def __init__(self) -> None:
        self.committed: dict[UUID, Callable[[], Inside]] = {}
        # Told why a peer was refused that is, or says that it is, of the cluster.
        self.tell: dict[UUID, Callable[[str], None]] = {}
        self.refusals = Refusals()
        # What is shown to brokers of each cluster.
        self._shown: dict[UUID, InsideIdentity] = {}
        self._handshakes: HandshakeQueue | None = None
        self._asking = asking_context(self._asked_for)

    def show(self, cluster_id: UUID, identity: InsideIdentity) -> None:
        """To every broker that connects from now on."""
        self._shown[cluster_id] = identity

    def forget(self, cluster_id: UUID) -> None:
        """It is not led here any more."""
        self.committed.pop(cluster_id, None)
        self._shown.pop(cluster_id, None)
        self.tell.pop(cluster_id, None)

    def asking_first(self, protocol: Callable[[], Any]) -> Callable[[], asyncio.BaseProtocol]:
        """A server's protocol factory.  Whoever comes in plaintext is let in until it says which
        cluster it is of."""
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
        """End what has no session."""
        if self._handshakes is not None:
            self._handshakes.close()

    def refuses_now(self, cluster_id: UUID, peer: Peer | None) -> str:
        """Why a connection is not answered any more; empty: it is.  `peer` None: plaintext."""
        committed = self.committed.get(cluster_id)
        if committed is None:
            return ""  # not led here: that is what it hears
        inside = committed()
        if peer is not None:
            reason = refuses_broker(inside, cluster_id, peer)
        else:
            reason = PLAINTEXT if inside.mode is InsideMode.REQUIRED else ""
        if reason:
            self.refusals.met(reason, f"a peer of cluster {cluster_id}")
            self._tell(cluster_id, reason)
        return reason

    def _tell(self, cluster_id: UUID, reason: str) -> None:
        if (tell := self.tell.get(cluster_id)) is not None:
            tell(reason)

    def _asked_for(self, name: str | None) -> Any:
        """The context of the cluster that a broker names; None: it is not led here."""
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
            self.refusals.say(reason, address)  # counted where it is closed
            if peer is not None:
                self._tell(peer.cluster_id, reason)
        return reason
