"""Runs the TLS handshakes of one listener; bounds their number, and the work for them in one turn
of the event loop.

A connection is admitted before any cryptography is done for it. The number of connections that have
not completed a handshake is bounded, in all and for each address; each has a time limit. In one
turn of the event loop a few steps of handshakes are computed, in the order in which their input
came. So many clients that connect at once delay others by milliseconds only, and a peer that is
slow on purpose occupies only its own place.

The module also reads the certificate that a client presented in a completed handshake, and its
trust anchor.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll_core.addresses import network_of
from plimsoll_core.late_timers import LateTimer
from plimsoll_core.security.inside import Peer
from plimsoll_net.inside_identity import peer_of
from plimsoll_net.tls_connection import NotTls, TlsConnection
from plimsoll_net.tls_policy import asking_context

logger = logging.getLogger("plimsoll.handshakes")


class PeerChain(NamedTuple):
    """A client's certificate and the trusted certificate at the end of its chain, both in DER.
    `anchor`: None if a session of TLS 1.2 was resumed, for which no chain is verified."""

    certificate: bytes
    anchor: bytes | None


def peer_chain(tls: ssl.SSLObject) -> PeerChain | None:
    """Return the certificate chain of a client after its handshake, or None if it presented no
    certificate."""
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        return None
    chain = _verified(tls)
    return PeerChain(certificate, chain[-1] if chain else None)


def _verified(tls: Any) -> tuple[bytes, ...]:
    """Return the verified certificate chain in DER, the client's certificate first. Before Python
    3.13 only an inner object of `tls` provides it."""
    inner = tls if hasattr(tls, "get_verified_chain") else tls._sslobj
    found = inner.get_verified_chain() or ()
    return tuple(
        one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes())
        for one in found
    )


HANDSHAKE_S_MAX = 10.0
HALF_OPEN_MAX = 1024
HALF_OPEN_PER_ADDRESS_MAX = 512
"""Bound on the connections of one address without a completed handshake. Many clients behind a load
balancer have one address."""
STEPS_A_TURN = 8
"""Number of handshake steps computed in one turn of the event loop. A step takes about a
millisecond."""
HANDSHAKE_RECORD = 0x16
"""First byte of a TLS record that contains handshake messages."""

NOT_TLS = "not-tls"
FAILED = "handshake-failed"
TOO_SLOW = "handshake-timeout"
TOO_MANY = "too-many-handshakes"
_NOTHING_TO_SHOW = asking_context(lambda _: None)
REFUSED = "certificate-refused"
REASONS = (NOT_TLS, FAILED, TOO_SLOW, TOO_MANY, REFUSED)
"""Reasons for which a connection ends before its handshake is complete: label values of a
metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepting:
    """How a listener accepts connections, given to `HandshakeQueue`.

    `session`: returns the protocol of a new connection. `context`: returns the TLS context for it,
    None if there is no certificate yet. `ended`: counts connections that end before they have a
    session, by reason. `admits`: returns True if the peer's address may have another connection;
    otherwise it arranges that the connection is closed, and no handshake is run. `left`: called
    with the address of each admitted connection that ends.

    After the handshake one of two functions decides, if set. Both get the peer's address last.
    `refuses`: returns why the peer inside the cluster is refused, or "". `identifies`: returns what
    a client's certificate proves (None without one), and why the client is refused, or "".

    `plain`: returns True if a peer that does not speak TLS is served in plaintext.
    """

    session: Callable[[], Any]
    context: Callable[[], ssl.SSLContext | None]
    ended: Counter[str]
    admits: Callable[[asyncio.Transport], bool] | None = None
    left: Callable[[str], None] | None = None
    refuses: Callable[[Peer | None, str], str] | None = None
    identifies: Callable[[PeerChain | None, str], tuple[object | None, str]] | None = None
    plain: Callable[[], bool] = lambda: False


@dataclass(slots=True, kw_only=True)
class _HalfOpen:
    """A connection that has not completed its handshake: the network for which it is counted, and
    the timer that ends it."""

    network: str
    timer: asyncio.TimerHandle
    late: LateTimer = field(default_factory=LateTimer)


class HandshakeQueue:
    """Admits the connections of one listener and runs their TLS handshakes, a few steps in each
    turn of the event loop. Above a bound, the connection that has waited longest for its handshake
    is closed for a new one. `connection`: the protocol factory for the server. `close` ends all
    connections that have not completed their handshake."""

    def __init__(self, accepting: Accepting) -> None:
        self._accepting = accepting
        self._loop = asyncio.get_running_loop()
        # Connections without a session.
        self._half_open: dict[TlsConnection, _HalfOpen] = {}
        self._addresses: Counter[str] = Counter()
        # Addresses of the admitted connections that are still open.
        self._admitted: dict[TlsConnection, str] = {}
        # Connections with unprocessed input, in the order in which it came.
        self._due: dict[TlsConnection, None] = {}
        self._scheduled = False
        self._half_open_max = HALF_OPEN_MAX

    def limit(self, half_open_max: int) -> None:
        """Keep at most this number of connections in their handshakes, of a process that has few
        descriptors. `HALF_OPEN_MAX` is the bound in any case."""
        self._half_open_max = min(half_open_max, HALF_OPEN_MAX)

    @property
    def half_open(self) -> int:
        return len(self._half_open)

    def connection(self) -> TlsConnection:
        return TlsConnection(self)

    def close(self) -> None:
        for connection in list(self._half_open):
            self._drop(connection, None)

    # --- what a connection says -------------------------------------------------------------------

    def arrived(self, connection: TlsConnection) -> bool:
        admits = self._accepting.admits
        if admits is not None:
            assert connection.plain is not None, "it has just come"
            if not admits(connection.plain):
                return True  # it is closed when its time has come
            self._admitted[connection] = connection.peer
        network = network_of(connection.peer)
        # Silent strangers keep no client out: the oldest makes room.
        if self._addresses[network] >= HALF_OPEN_PER_ADDRESS_MAX:
            fellows = (one for one, other in self._half_open.items() if other.network == network)
            self._drop(next(fellows), TOO_MANY)
        elif len(self._half_open) >= self._half_open_max:
            self._drop(next(iter(self._half_open)), TOO_MANY)
        self._half_open[connection] = self._half_opened(connection, network)
        self._addresses[network] += 1
        return True

    def has_input(self, connection: TlsConnection) -> None:
        if connection in self._half_open:
            self._due.setdefault(connection)
            self._schedule()

    def left(self, connection: TlsConnection) -> None:
        """Count a failed handshake, because the connection was lost before its handshake was
        complete."""
        if connection in self._half_open:
            self._drop(connection, FAILED)

    def over(self, connection: TlsConnection) -> None:
        host = self._admitted.pop(connection, None)
        if host is not None and self._accepting.left is not None:
            self._accepting.left(host)

    def _half_opened(self, connection: TlsConnection, network: str) -> _HalfOpen:
        at_s = self._loop.time() + HANDSHAKE_S_MAX
        timer = self._loop.call_at(at_s, self._judge, connection, at_s)
        return _HalfOpen(network=network, timer=timer)

    def _judge(self, connection: TlsConnection, expected_s: float) -> None:
        """Drop a connection that has not completed its handshake in time. If this process ran late
        itself, the peer's bytes may be unread, so the connection gets more time once."""
        half = self._half_open[connection]
        again_ms = half.late.not_before_ms(
            round(expected_s * 1000), round(self._loop.time() * 1000)
        )
        if again_ms is None:
            self._drop(connection, TOO_SLOW)
        else:
            at_s = again_ms / 1000
            half.timer = self._loop.call_at(at_s, self._judge, connection, at_s)

    # --- steps ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and self._due:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        for connection in list(self._due)[:STEPS_A_TURN]:
            del self._due[connection]
            self._step(connection)
        self._schedule()

    def _step(self, connection: TlsConnection) -> None:
        context = self._accepting.context()
        try:
            over = connection.shake_hands(context or _NOTHING_TO_SHOW, HANDSHAKE_RECORD)
        except NotTls as other:
            self._without_tls(connection, other.data)
        except (ssl.SSLError, ValueError) as error:
            logger.debug(
                "this process closed a connection of %s, because its TLS handshake failed: %s",
                *(connection.peer, error),
            )
            self._drop(connection, FAILED)
        else:
            if over and self._lets_in(connection):
                self._forget(connection)
                connection.serve(self._accepting.session())

    def _lets_in(self, connection: TlsConnection) -> bool:
        refuses, identifies = self._accepting.refuses, self._accepting.identifies
        assert connection.tls is not None, "after the handshake"
        if identifies is not None:
            connection.client_proof, reason = identifies(
                peer_chain(connection.tls), connection.peer
            )
            if reason:
                self._drop(connection, reason)
            return not reason
        if refuses is None:
            return True
        connection.inside_peer = peer_of(connection.tls)
        if reason := refuses(connection.inside_peer, connection.peer):
            self._drop(connection, reason)
        return not reason

    def _without_tls(self, connection: TlsConnection, data: bytes) -> None:
        if not self._accepting.plain():
            self._drop(connection, NOT_TLS)
            return
        self._forget(connection)
        connection.pass_on(self._accepting.session(), data)

    def _drop(self, connection: TlsConnection, reason: str | None) -> None:
        if reason is not None:
            self._accepting.ended[reason] += 1
        self._forget(connection)
        if connection.plain is not None:
            # An alert that says why may be on its way.
            connection.plain.close()

    def _forget(self, connection: TlsConnection) -> None:
        half = self._half_open.pop(connection)
        half.timer.cancel()
        self._due.pop(connection, None)
        self._addresses[half.network] -= 1
        if not self._addresses[half.network]:
            del self._addresses[half.network]
