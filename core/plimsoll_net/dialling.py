"""Connections to peers inside the cluster, with TLS if both ends can.

With a certificate, TLS is tried first. If plaintext is allowed, a peer that does not complete the
handshake within `HANDSHAKE_S` is dialled again in plaintext at once, and for `PLAINTEXT_S`
plaintext is tried first. If plaintext is not allowed, the connection fails.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from plimsoll_core.addresses import host_and_port
from plimsoll_core.security.inside import NO_IDENTITY, PLAINTEXT, RETIRED, Peer
from plimsoll_net.inside_identity import InsideIdentity, peer_of
from plimsoll_net.tls_connection import TlsConnection
from plimsoll_net.tls_transport import ServedProtocol

logger = logging.getLogger("plimsoll.dialling")

PLAINTEXT_S = 10.0
"""Seconds for which a peer that did not answer with TLS is dialled in plaintext first, if that is
allowed."""
HANDSHAKE_S = 0.5
"""Seconds that a TLS handshake may take with a peer that may also be dialled in plaintext. It is
short because callers give a whole call a second or more."""
SAID_S = 60.0
"""Seconds in which at most one log line about refused peers is written."""
ADDRESSES_MAX = 1024
HANDSHAKE_FAILED = "handshake-failed"
_BUFFER_BYTES = 16 * 1024
_REFUSED = "the peer's certificate is refused"
_STRANGER = (
    "the connection is tried again by itself; if this lasts, find out which process is at that "
    "address, because it is no broker or operator of this cluster"
)
_ADVICE = {
    NO_IDENTITY: (
        "the peer shows no certificate of this cluster's internal CA; the operator writes one for "
        "each broker; if this lasts, the peer is no broker or operator of this cluster"
    ),
    RETIRED: (
        "the peer shows a certificate that was replaced; a broker loads its new one by itself "
        "within minutes; if this lasts, see that broker's log, or its key may be stolen"
    ),
    PLAINTEXT: (
        "the peer does not use TLS, which this cluster requires; a broker changes to TLS by itself "
        "when the operator has written its certificate; if this lasts, see that broker's log"
    ),
    HANDSHAKE_FAILED: (
        "the connection is tried again by itself; if this lasts, see the log of the process at "
        "that address, which says what it refuses"
    ),
}
"""What a person can do, by the reason of a refusal."""
_WRONG_CA = (
    "its certificate is of no internal CA that this process trusts (times in certificates do not "
    "matter); the operator gives brokers their certificates and CAs by itself; if this lasts, the "
    "peer is of another cluster, or see the operator's log"
)

P = TypeVar("P", bound=asyncio.BaseProtocol)


class PeerAddress(NamedTuple):
    """Host and port of a peer."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


class PeerRefused(ConnectionError):
    """Raised if the process that answered is not the peer that was dialled, according to its
    certificate."""


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Link:
    """An open connection to a peer. `identity`: the certificate that this process presented, None
    in plaintext; `peer`: the identity in the peer's certificate, None if no certificate was
    requested."""

    transport: asyncio.Transport
    address: PeerAddress
    identity: InsideIdentity | None = None
    peer: Peer | None = None

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Counts refused peers by reason, and logs them with their address at most once in `SAID_S`
    seconds. `met` counts a refusal and logs it."""

    counts: Counter[str] = field(default_factory=Counter)
    _said_s: float = -SAID_S

    def met(self, reason: str, who: str, detail: str = "") -> None:
        self.counts[reason] += 1
        self.say(reason, who, detail)

    def say(self, reason: str, who: str, detail: str = "") -> None:
        """Log a refused peer and the reason, at a limited rate, without counting the refusal.
        `detail`: why a TLS handshake failed."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= SAID_S:
            self._said_s = now_s
            total = self.counts.total()
            logger.warning(
                "this process closed an internal connection with the process at %s, because one of "
                "them does not accept the other as a broker or operator of this cluster (%s%s); %s "
                "(%d such connections since the start, at most one line a minute)",
                *(who, reason, f": {detail}" if detail else "", advice(reason, detail), total),
            )


def advice(reason: str, detail: str = "") -> str:
    """Return what a person can do about refused peers, a clause. `reason`: one of
    `inside.REASONS`, or `HANDSHAKE_FAILED`; `detail`: why the handshake failed."""
    return _WRONG_CA if detail.startswith(_REFUSED) else _ADVICE.get(reason, _STRANGER)


def _why(error: ssl.SSLError) -> str:
    # Only errors that OpenSSL raised have these attributes.
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{_REFUSED}: {getattr(error, 'verify_message', error)}"
    return getattr(error, "reason", None) or str(error)


class Dialler:
    """Opens the connections of one process to peers inside the cluster. `identity`: function that
    returns the certificate to present, None if there is none; `only_tls`: function that returns
    True if plaintext is not allowed."""

    def __init__(
        self,
        identity: Callable[[], InsideIdentity | None],
        only_tls: Callable[[], bool],
        refusals: Refusals,
    ) -> None:
        self._identity = identity
        self._only_tls = only_tls
        self._refusals = refusals
        # Until when a peer is called in plaintext.
        self._plaintext_until_s: dict[PeerAddress, float] = {}
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()

    @property
    def plaintext(self) -> int:
        """Return the number of open connections in plaintext."""
        return sum(link.identity is None and link.is_open for link in list(self._links))

    async def dial(
        self,
        protocol: Callable[[], P],
        address: PeerAddress,
        name: str,
        refuses: Callable[[Peer | None], str],
    ) -> tuple[P, Link]:
        """Connect to a peer, with TLS if possible, in plaintext if that fails and is allowed.
        Return the session, which `protocol` makes, and the link. `name`: the TLS server name to ask
        for, empty for none. `refuses`: function that returns why the identity in a peer's
        certificate is not the expected one, or "". Raises OSError, as PeerRefused if the peer is
        not the expected one. The caller sets a time limit."""
        identity = self._identity()
        only_tls = self._only_tls()
        if identity is not None and (only_tls or not self._plain_by_now(address)):
            try:
                return await self._with_tls(protocol, address, name, identity, refuses)
            except ssl.SSLError as error:
                self._refusals.met(HANDSHAKE_FAILED, str(address), _why(error))
                if self._only_tls():
                    raise
                logger.debug(
                    "the process at %s does not speak TLS, so this process connects to it in "
                    "plaintext: %s",
                    *(address, error),
                )
            except (ConnectionResetError, PeerRefused):
                if self._only_tls():
                    raise
            except _Unanswered as error:
                self._refusals.met(HANDSHAKE_FAILED, str(address), str(error))
                if self._only_tls():  # it was learned meanwhile
                    raise ConnectionError(str(error)) from error
            self._call_in_plaintext(address)
        elif only_tls:
            raise ConnectionError(
                "this process cannot connect to other members of the cluster yet, because it has "
                "no certificate for internal TLS; the operator writes the certificate, and the "
                "process tries again"
            )
        loop = asyncio.get_running_loop()
        transport, session = await loop.create_connection(protocol, *address)
        link = Link(transport=transport, address=address)
        self._links.add(link)
        return session, link

    def abort(self) -> None:
        """Close all open connections at once."""
        for link in list(self._links):
            link.transport.abort()

    def is_outdated(self, link: Link) -> bool:
        """Return True if this connection should be replaced by a new one: it is in plaintext and
        TLS is possible or required now, or this process's certificate has changed."""
        identity = self._identity()
        if link.identity is None:
            due = identity is not None and not self._plain_by_now(link.address)
            return due or self._only_tls()
        return link.identity is not identity

    def _plain_by_now(self, address: PeerAddress) -> bool:
        return self._plaintext_until_s.get(address, 0.0) > asyncio.get_running_loop().time()

    def _call_in_plaintext(self, address: PeerAddress) -> None:
        if len(self._plaintext_until_s) >= ADDRESSES_MAX:
            self._plaintext_until_s.clear()
        self._plaintext_until_s[address] = asyncio.get_running_loop().time() + PLAINTEXT_S

    async def _with_tls(
        self,
        protocol: Callable[[], P],
        address: PeerAddress,
        name: str,
        identity: InsideIdentity,
        refuses: Callable[[Peer | None], str],
    ) -> tuple[P, Link]:
        loop = asyncio.get_running_loop()
        call = _Call(identity.client, loop.create_future())
        connection = TlsConnection(call, name)
        transport, _ = await loop.create_connection(lambda: connection, *address)
        try:
            call.has_input(connection)
            await self._shaken(call, bounded=not self._only_tls())
            assert connection.tls is not None, "after the handshake"
            peer = peer_of(connection.tls)
            if reason := refuses(peer):
                who = str(address)
                self._refusals.met(reason, who)
                raise PeerRefused(
                    f"the process at {who} is not the expected member of the cluster, so the "
                    f"connection was closed: {reason}"
                )
        except BaseException:
            transport.abort()
            call.forget()
            raise
        connection.inside_peer = peer
        session = protocol()
        served = session if isinstance(session, asyncio.BufferedProtocol) else Buffered(session)
        call.lost = lambda: self._ended_unheard(connection, address)
        connection.serve(cast("ServedProtocol", served))
        link = Link(transport=transport, address=address, identity=identity, peer=peer)
        self._links.add(link)
        return session, link

    async def _shaken(self, call: _Call, *, bounded: bool) -> None:
        """Wait for the end of the handshake. `bounded`: True if the peer may be dialled in
        plaintext instead; raises _Unanswered after `HANDSHAKE_S`, so that a silent peer does not
        use up the caller's time."""
        done, _ = await asyncio.wait((call.shaken,), timeout=HANDSHAKE_S if bounded else None)
        if not done:
            raise _Unanswered(
                "the peer did not complete the TLS handshake of the internal connection in time"
            )
        call.shaken.result()

    def _ended_unheard(self, connection: TlsConnection, address: PeerAddress) -> None:
        """Make the next connection to this peer try plaintext first, if this one ended before any
        data came. With TLS 1.3 a client learns only in this way that its certificate was
        refused."""
        if not connection.heard_bytes and not self._only_tls():
            self._call_in_plaintext(address)


class _Unanswered(Exception):
    """Raised if the peer has not completed the TLS handshake in time."""


class _Call:
    """The `tls_connection.Admission` of one outgoing connection: its handshake starts at once."""

    def __init__(self, context: ssl.SSLContext, shaken: asyncio.Future[None]) -> None:
        self._context = context
        self.shaken = shaken
        # Called when the connection is lost.
        self.lost: Callable[[], None] = lambda: None

    def arrived(self, connection: TlsConnection) -> bool:
        return True

    def has_input(self, connection: TlsConnection) -> None:
        if self.shaken.done():
            return
        try:
            if connection.shake_hands(self._context, 0):
                self.shaken.set_result(None)
        except (ssl.SSLError, ValueError) as error:
            wrong = error if isinstance(error, ssl.SSLError) else ssl.SSLError(str(error))
            self.shaken.set_exception(wrong)

    def forget(self) -> None:
        """Stop waiting for the result of the handshake: asyncio does not log its error."""
        if not self.shaken.done():
            self.shaken.cancel()
        elif not self.shaken.cancelled():
            self.shaken.exception()

    def left(self, connection: TlsConnection) -> None:
        if not self.shaken.done():
            self.shaken.set_exception(
                ConnectionResetError(
                    "the peer of an internal connection closed it during the TLS handshake"
                )
            )

    def over(self, connection: TlsConnection) -> None:
        self.lost()


class Buffered(asyncio.BufferedProtocol):
    """Adapts an asyncio.Protocol to the interface of a BufferedProtocol."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.connection_made = protocol.connection_made  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))
