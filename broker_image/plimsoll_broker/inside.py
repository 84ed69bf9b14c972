"""This broker's peers inside: which it calls and how, and which it admits on the followers' port.

What it shows comes from the files of its Secret, the peers it trusts from what is committed
(`plimsoll_core.security.inside`).  Both may change at any time: owners of connections ask
`is_outdated` between requests and connect anew, so that no reply is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import InsideFigures
from plimsoll_core.security.inside import (
    NOTHING_INSIDE,
    InsideMode,
    Peer,
    controller_name,
    refuses_broker,
    refuses_controller,
)
from plimsoll_net.dialling import Dialler, Link, PeerAddress, Refusals
from plimsoll_net.inside_identity import InsideFiles, InsideIdentity

LOOK_S = 1.0
P = TypeVar("P", bound=asyncio.BaseProtocol)


class InsidePeers:
    """Connects this broker to brokers and controllers of its cluster, with TLS as the committed
    mode demands, and decides which peers may connect to it. `directory`: the folder of this
    broker's certificate files; None if all connections are in plaintext as long as the process
    runs. `refusals`: counts refused peers. `let_in_plaintext`: returns the number of accepted
    plaintext connections of brokers. `changed`: called when the committed mode or the trusted
    certificates change."""

    def __init__(self, cluster_id: UUID, directory: str | None = None) -> None:
        self._cluster_id = cluster_id
        self._files = None if directory is None else InsideFiles(Path(directory))
        self._committed = NOTHING_INSIDE
        self.refusals = Refusals()
        self._dialler = Dialler(lambda: self.identity, lambda: self.only_tls, self.refusals)
        # How many peers are connected here in plaintext.
        self.let_in_plaintext: Callable[[], int] = lambda: 0
        # Told when other peers are to be let in.
        self.changed: Callable[[], None] = lambda: None
        # True while a drill keeps this broker apart from all its peers.
        self.is_cut = False
        # By how many seconds a drill delays requests to brokers, and replies to them.
        self.delay_s = 0.0
        if self._files is not None:
            self._files.look()

    @property
    def may_change(self) -> bool:
        """True if this broker may get certificates, so that connections can become outdated."""
        return self._files is not None

    @property
    def identity(self) -> InsideIdentity | None:
        return None if self._files is None else self._files.identity

    @property
    def only_tls(self) -> bool:
        """True if no peer is called in plaintext. The committed mode decides; before it is known,
        the certificate files do."""
        if self._files is None:
            return False
        return self._files.required or self._committed.mode is InsideMode.REQUIRED

    @property
    def lets_plaintext_in(self) -> bool:
        return self._committed.mode is not InsideMode.REQUIRED

    @property
    def figures(self) -> InsideFigures:
        """The figures about inside connections that heartbeats report."""
        identity = self.identity
        plaintext = self._dialler.plaintext + self.let_in_plaintext()
        return InsideFigures(
            sha256="" if identity is None else identity.sha256,
            authorities=() if identity is None else identity.authorities,
            plaintext=plaintext,
            only_tls=self.only_tls,
        )

    @property
    def error(self) -> str:
        """Why the newest certificate files are not in use; empty if they are, or if there are
        none."""
        return "" if self._files is None else self._files.error

    def update(self, old: ClusterImage, new: ClusterImage) -> None:
        """Use the mode and the trusted certificates of the new metadata image, as `learn` does.
        Subscribed to the metadata stream."""
        self.learn(new)

    def learn(self, image: ClusterImage) -> None:
        """Use the mode and the trusted certificates that this metadata image has committed. If they
        differ from those in use, call `changed`."""
        if image.inside != self._committed:
            self._committed = image.inside
            self.changed()

    async def run(self) -> None:
        """Read the certificate files again every LOOK_S seconds, to find renewed ones, until
        cancelled. Without a directory only wait."""
        while self._files is not None:
            self._files.look()
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()

    # --- drills ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Close all connections to and from brokers and controllers, and allow none until
        `mend`."""
        self.is_cut = True
        self._dialler.abort()
        self.changed()

    def mend(self) -> None:
        self.is_cut = False

    # --- admission -----------------------------------------------------------------------------

    def refuses(self, peer: Peer | None, address: str = "") -> str:
        """Return the reason to refuse a peer that presented this certificate, by the committed mode
        and trust, or an empty string if it is admitted. `peer`: None without a certificate. With an
        `address`, a refusal is counted in `refusals`."""
        reason = refuses_broker(self._committed, self._cluster_id, peer)
        if reason and address:
            self.refusals.met(reason, address)
        return reason

    # --- calls -----------------------------------------------------------------------------------

    async def broker(
        self, protocol: Callable[[], P], address: PeerAddress, broker_id: BrokerId
    ) -> tuple[P, Link]:
        """Connect to a broker, and return the connection and its TLS state. Raise OSError if that
        fails or the peer is another broker."""
        self._check_cut()
        refuses = partial(self._is_not_broker, broker_id)
        return await self._dialler.dial(protocol, address, "", refuses)

    async def controller(self, protocol: Callable[[], P], address: PeerAddress) -> tuple[P, Link]:
        """Connect to a controller, and return the connection and its TLS state. Raise OSError."""
        self._check_cut()
        name = controller_name(self._cluster_id)
        refuses = partial(refuses_controller, self._cluster_id)
        return await self._dialler.dial(protocol, address, name, refuses)

    def _check_cut(self) -> None:
        if self.is_cut:
            raise ConnectionRefusedError(
                "a Verification has cut this broker's connections to other members of the cluster "
                "on purpose; they work again when its drill ends"
            )

    def is_outdated(self, link: Link | None) -> bool:
        """Return True if the connection should be replaced: it must use TLS now, this broker has a
        new certificate, or the peer broker's certificate is no longer trusted. Return False for
        None (a connection that is not tracked)."""
        if link is None:
            return False
        if self._dialler.is_outdated(link):
            return True
        peer = link.peer
        return peer is not None and peer.broker_id is not None and bool(self.refuses(peer))

    def _is_not_broker(self, broker_id: BrokerId, peer: Peer | None) -> str:
        return refuses_broker(self._committed, self._cluster_id, peer, broker_id)
