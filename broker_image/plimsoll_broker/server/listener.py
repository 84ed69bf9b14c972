"""BrokerListener: the broker's listener. It accepts connections and keeps them within its limits.

Made by `node.client_listeners` and `node.broker` with a `Dispatch`. It never looks into a request.
`connection_limits` decides which connection is evicted for a new one, and which one is overdue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.server.client_memory import ClientMemory
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_limits import (
    AddressAdmission,
    ConnectionOrder,
    ListenerLimits,
    overdue,
)
from plimsoll_broker.server.connection_session import ServerStats, Session, SessionOwner
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.turn_budget import SliceTurns, TurnBudget
from plimsoll_core.addresses import to_listen
from plimsoll_core.cluster import listener_peers
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.late_timers import LateTimer
from plimsoll_core.security.client_certificates import CertificateProof
from plimsoll_core.security.inside import PLAINTEXT
from plimsoll_net.handshakes import Accepting, HandshakeQueue, PeerChain
from plimsoll_net.shown_certificate import ShownCertificate

_SWEPT_MIN, _SWEEP_PORTIONS = 32, 128
_SWEEP_PAUSE_S = 0.01
"""The pause in seconds between two portions of a sweep; a portion has at least `_SWEPT_MIN`
connections. A sweep of thousands of connections in one turn of the event loop delayed requests by
tens of milliseconds. A sweep has at most `_SWEEP_PORTIONS` portions."""
_BACKLOG = 512
CUT = "drill"
"""The reason with which connections are closed while a drill cuts this broker's links."""


class ClientCertificates(Protocol):
    """Judges the certificates that clients present in a TLS handshake, and logs clients in by them
    (implemented by `security.certificate_logins`)."""

    def judge(
        self, shown: PeerChain | None, host: str, listener: str
    ) -> tuple[CertificateProof | None, str]:
        """Check the certificate chain that a client at `host` presented (None: no certificate) to
        `listener`. Return the proof of its user and an empty string; or None and the reason for
        rejection; or, without a certificate, None and an empty string."""

    def logged_in(self, connection: ConnectionState, proof: CertificateProof) -> None:
        """Log the connection in as the user of the certificate. Called in the turn of the event
        loop in which `judge` returned the proof."""


class BrokerListener:
    """One listening port of the broker, with its open connections. `port` is known after
    `start`."""

    def __init__(
        self,
        dispatch: Dispatch,
        limits: ListenerLimits | None = None,
        memory: ClientMemory | None = None,
        listener: Listener = listener_peers.IMPLICIT,
        certificate: ShownCertificate | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Make a listener that is not open yet. `memory`: the budget of this listener's clients;
        None: unbounded. `listener`: the configuration of its connections. `certificate`: the
        certificate that it presents, with TLS. `quotas`: the quotas of all clients of the broker;
        None: no limits."""
        assert listener.tls == (certificate is not None), "TLS is with a certificate"
        self.stats = ServerStats()
        self.listener = listener
        self.certificate = certificate
        # Judges clients' certificates; None: clients are not asked for one.
        self.clients: ClientCertificates | None = None
        # For the followers' listener: admits peers by certificate; None: none is required.
        self.inside: InsidePeers | None = None
        self.port = 0
        self.limits = limits or ListenerLimits()
        self.memory = memory
        # The open connections.
        self._open: ConnectionOrder[Session] = ConnectionOrder(self.limits.connections_max)
        self._quotas = quotas
        self._server: asyncio.Server | None = None
        # TLS connections that are still in their handshake.
        self.handshakes: HandshakeQueue | None = None
        self._admission = (
            None if quotas is None else AddressAdmission(quotas.addresses, self.stats.closed_for)
        )
        self._unswept: list[Session] = []
        self._portion = _SWEPT_MIN
        self._sweeper: asyncio.TimerHandle | None = None
        self._swept_next_s = 0.0
        self._late = LateTimer()
        self._failure: asyncio.Future[None] | None = None
        self._owner = SessionOwner(
            dispatch=dispatch,
            listener=lambda: self.listener,
            limits=self.limits,
            memory=memory,
            stats=self.stats,
            turns=TurnBudget(),
            quotas=quotas,
            admission=self._admission if certificate is None else None,
            opened=self._opened,
            heard=self._open.requested,
            closed=self._open.closed,
            failed=self._failed,
            proved=self._proved,
        )

    @property
    def slices(self) -> SliceTurns:
        """The turns of the clients' long requests."""
        return self._owner.turns.slices

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def limits_addresses(self) -> bool:
        """True if this listener may reject connections by their address."""
        return self._admission is not None

    async def start(self, host: str, port: int) -> int:
        """Listen on this host and port, and return the port; with port 0 the kernel chooses one.
        Raises OSError if the port cannot be used."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        factory: Callable[[], asyncio.BaseProtocol] = self._session
        if self.certificate is not None or self._asks_peers:
            self.handshakes = HandshakeQueue(self._accepting())
            factory = self.handshakes.connection
        self._server = await loop.create_server(
            factory, to_listen(host), port, backlog=_BACKLOG, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._schedule_sweep()
        self._tell_of_connections(self.listener.name)
        return self.port

    @property
    def _asks_peers(self) -> bool:
        return self.inside is not None and self.inside.may_change

    def _accepting(self) -> Accepting:
        admission, peers = self._admission, self.inside
        if peers is not None:
            return Accepting(
                session=self._session,
                context=lambda: None if peers.identity is None else peers.identity.server,
                ended=self.stats.closed_for,
                refuses=peers.refuses,
                plain=lambda: peers.lets_plaintext_in,
            )
        return Accepting(
            session=self._session,
            context=self._context,
            ended=self.stats.closed_for,
            admits=None if admission is None else admission.arrived,
            left=None if admission is None else admission.left,
            identifies=None if self.clients is None else self._identify,
        )

    def _identify(self, shown: PeerChain | None, host: str) -> tuple[CertificateProof | None, str]:
        """Check a client's certificate chain. Return its proof and an empty string, or None and the
        reason for rejection (empty if it presented no certificate)."""
        assert self.clients is not None, "clients are asked"
        return self.clients.judge(shown, host, self.listener.name)

    def _proved(self, connection: ConnectionState, proof: CertificateProof) -> None:
        assert self.clients is not None, "clients are asked"
        self.clients.logged_in(connection, proof)

    def _context(self) -> Any:
        """Return the current TLS context. Open connections keep the one that they began with."""
        assert self.certificate is not None, "a listener with TLS has one"
        assert self.certificate.context is not None, "it was opened with a certificate"
        return self.certificate.context

    @property
    def plaintext(self) -> int:
        """The number of brokers' connections without a certificate. Connections that have not
        identified themselves as a broker's do not count: otherwise any client that connects could
        delay the step to Required, which closes such connections."""
        open_ = list(self._open)
        return sum(session.is_broker and session.inside_peer is None for session in open_)

    def review(self) -> None:
        """Close the open connections, with or without a certificate, that `inside` no longer
        admits; all of them while a drill cuts this broker's links."""
        assert self.inside is not None, "the followers' listener"
        for session in list(self._open):
            if self.inside.is_cut:
                reason = CUT
            elif session.inside_peer is not None:
                reason = self.inside.refuses(session.inside_peer)
            else:
                reason = "" if self.inside.lets_plaintext_in else PLAINTEXT
            if reason:
                session.close(reason)

    async def failure(self) -> None:
        """Wait until a request meets an error on the commit path, and raise the error, which ends
        the process. Never returns. Any other error of a handler only closes one connection and is
        counted in `stats.handler_failures`."""
        assert self._failure is not None, "not started"
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop listening and close every connection at once; waiting requests are cancelled. Do
        nothing if it was not started."""
        if self._server is None:
            return
        self._server.close()
        self._tell_of_connections(None)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self.handshakes is not None:
            self.handshakes.close()
        if self._admission is not None:
            self._admission.close()
        for session in list(self._open):
            session.close("shutdown")
        await self._server.wait_closed()
        self._server = None

    def rename(self, listener: Listener, limits: ListenerLimits) -> None:
        """Give the listener another configuration and other limits. Open connections stay open:
        their requests use the new configuration, but they keep the limits that they began with,
        except for the number of connections."""
        self._tell_of_connections(listener.name)
        self.listener, self.limits = listener, limits
        self._open.shares.capacity = limits.connections_max
        for session in self._open:
            session.moved_to(listener)

    def _tell_of_connections(self, name: str | None) -> None:
        """Report this listener's connections among the principals' holdings under this name, and no
        longer under an earlier one. If `name` is None, stop reporting them."""
        if self.memory is not None:
            self.memory.holdings.drop(f"connections of {self.listener.name}", self._open.shares)
            if name is not None:
                self.memory.holdings.add(f"connections of {name}", self._open.shares)

    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call `callback` once there is an error that `failure` raises."""
        assert self._failure is not None, "not started"
        self._failure.add_done_callback(lambda _: callback())

    def raise_failure(self) -> None:
        """Raise the error that `failure` raises, if there is one by now; otherwise return."""
        if self._failure is not None and self._failure.done() and not self._failure.cancelled():
            self._failure.result()

    def _session(self) -> Session:
        return Session(self._owner)

    def _opened(self, session: Session) -> bool:
        if self.inside is not None and self.inside.is_cut:
            self.stats.turned_away += 1
            return False
        if self.connections >= self.limits.connections_max and not self._make_room():
            self.stats.turned_away += 1
            return False
        self.stats.accepted += 1
        self._open.opened(session)
        return True

    def _make_room(self) -> bool:
        """Evict a client's connection for a new one and return True. Return False, and evict none,
        if the limits forbid evictions or no connection may be evicted. Connections of
        administrators are evicted last."""
        keeps = () if self._quotas is None else self._quotas.administrators
        session = self._open.makes_room(keeps) if self.limits.makes_room else None
        if session is None:
            return False
        session.close("made-room")
        return True

    def _failed(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _schedule_sweep(self) -> None:
        self._sweep_in(_SWEEP_PAUSE_S if self._unswept else self.limits.sweep_ms / 1000)

    def _sweep_in(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._swept_next_s = loop.time() + delay_s
        self._sweeper = loop.call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        """Close overdue connections, one portion of them in each call, and schedule the next call.
        If this process has not run for a while, first let the event loop read input that waits in
        the kernel."""
        now = asyncio.get_running_loop().time()
        now_ms = int(now * 1000)
        not_before_ms = self._late.not_before_ms(int(self._swept_next_s * 1000), now_ms)
        if not_before_ms is not None:
            self._sweep_in((not_before_ms - now_ms) / 1000)
            return
        memory, nobody = self.memory, frozenset[str]()
        unread = nobody if memory is None else memory.replies.pressing()
        unfinished = nobody if memory is None else memory.requests.pressing()
        if not self._unswept:
            self._unswept = list(self._open)
            self._portion = max(_SWEPT_MIN, len(self._unswept) // _SWEEP_PORTIONS)
        sessions = self._unswept[: self._portion]
        del self._unswept[: self._portion]
        for session in sessions:
            short, wanted = session.holder in unread, session.holder in unfinished
            conduct = session.conduct(now, wanted=wanted)
            reason = overdue(conduct, self.limits, short=short, wanted=wanted)
            if reason is not None:
                session.close(reason)
        self._schedule_sweep()
