"""One connection with TLS: passes data between a plain transport and the session above it through
OpenSSL.

All connections read into one buffer, so that an idle connection needs little more memory than
OpenSSL's own state. `TlsTransport` limits how fast output is encrypted. A connection belongs to
`HandshakeQueue` until its handshake is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Protocol, cast

from plimsoll_core.security.inside import Peer
from plimsoll_net.tls_transport import BYTES_A_TURN, Buffer, ServedProtocol, TlsTransport

AT_ONCE_BYTES = 64 * 1024
"""Maximum bytes passed through OpenSSL's buffers at once, because these buffers never shrink
again."""
_ARRIVED = memoryview(bytearray(AT_ONCE_BYTES))
"""Buffer into which the kernel writes the input of any connection. OpenSSL takes the input before
another connection reads."""


INSIDE_PEER = "inside_peer"
"""Key for `get_extra_info` of a transport: returns the peer's identity as a `Peer`, or None."""


CLIENT_PROOF = "client_proof"
"""Key for `get_extra_info` of a transport: returns the user that the client's certificate proves,
or None if the client presented none."""


FIRST_BYTES = 4096
"""Bytes of input that are passed to a new session at once. They fit the first buffer of any
session, since bytes that a session cannot take would be lost."""


class Admission(Protocol):
    """Owner of a TlsConnection until its handshake is complete: decides if the connection is
    accepted, and runs the handshake."""

    def arrived(self, connection: TlsConnection) -> bool:
        """Handle a new connection. Return True to keep it open for now, False to close it at
        once."""

    def has_input(self, connection: TlsConnection) -> None:
        """Handle the arrival of input: call the connection's `shake_hands` for it, now or later."""

    def left(self, connection: TlsConnection) -> None:
        """Handle the loss of the connection before its handshake was complete."""

    def over(self, connection: TlsConnection) -> None:
        """Handle the loss of the connection, before or after its handshake."""


class TlsConnection(asyncio.BufferedProtocol):
    """The protocol of a plain transport: encrypts and decrypts for a session above it. Until the
    handshake is complete there is no session, and `admission` decides about the connection."""

    def __init__(self, admission: Admission, asks_for: str | None = None) -> None:
        """Create a connection. `asks_for`: the server name that this end asks for as the client,
        empty for none; None if this end is the server."""
        self._admission = admission
        self._asks_for = asks_for
        self.plain: asyncio.Transport | None = None
        # The identity of the other end, if it was requested.
        self.inside_peer: Peer | None = None
        # The user that its certificate proves, if clients are asked for one.
        self.client_proof: object | None = None
        # Bytes that the session was given.
        self.heard_bytes = 0
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        # None before the handshake is over, and once the connection is lost.
        self.session: ServedProtocol | None = None
        self._transport: TlsTransport | None = None
        # True if the session has not paused reading.
        self._reading = True
        # True if received bytes wait for their step of the handshake.
        self._held = False
        # True if the kernel accepts no more encrypted bytes.  A peer that causes answers, also by
        # messages of TLS itself, is not read from until it takes them.
        self._choked = False
        # True if decrypting goes on in a later turn.
        self._scheduled = False

    # --- the plain transport's calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self.plain = cast("asyncio.Transport", transport)
        self.plain.set_write_buffer_limits(high=BYTES_A_TURN, low=0)
        if not self._admission.arrived(self):
            self.plain.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.plain = None
        self._admission.over(self)
        session, self.session = self.session, None
        if session is None:
            self._admission.left(self)
        else:
            session.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.session is None and self._tls is None and self._asks_for is None:
            # TLS or plaintext is still unknown: bound the first read as for plaintext.
            return _ARRIVED[:FIRST_BYTES]
        return _ARRIVED

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(_ARRIVED[:nbytes])
        if self.session is None:
            # Bytes that arrive before its turn stay in the kernel.
            self._held = True
            self._adjust_reading()
            self._admission.has_input(self)
        else:
            self._read()

    def eof_received(self) -> bool:
        """Close the connection when the peer closes its side: TLS connections are never half
        open."""
        if self.session is not None:
            self.session.eof_received()
        return False

    def pause_writing(self) -> None:
        self._choked = True
        self._adjust_reading()
        if self._transport is not None:
            self._transport.stuck()

    def resume_writing(self) -> None:
        if self.plain is not None:
            self.plain.set_write_buffer_limits(high=BYTES_A_TURN, low=0)
        self._choked = False
        self._adjust_reading()
        if self._transport is not None:
            self._transport.drained()

    def _adjust_reading(self) -> None:
        if self.plain is None or self.plain.is_closing():
            return
        if self._reading and not self._held and not self._choked:
            self.plain.resume_reading()
        else:
            self.plain.pause_reading()

    # --- the handshake ----------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """Return the peer's IP address, or "" once the connection is lost."""
        found = self.plain.get_extra_info("peername") if self.plain is not None else None
        return str(found[0]) if found else ""

    def shake_hands(self, context: ssl.SSLContext, first: int) -> bool | None:
        """Take one step of the handshake with the input that has arrived. Return True when it is
        complete, None while more input is needed. `first`: the first byte that the input must have
        if this end is the server. Raises ssl.SSLError if the handshake fails, NotTls for another
        first byte."""
        self._held = False
        self._adjust_reading()
        if self._tls is None:
            if self._asks_for is None and not self._incoming.pending:
                return None
            self._tls = self._begun(context, first)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None
        finally:
            self.flush()
        return True

    def _begun(self, context: ssl.SSLContext, first: int) -> ssl.SSLObject:
        if self._asks_for is not None:
            name = self._asks_for or None
            return context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        data = self._incoming.read()
        if data[0] != first:
            raise NotTls(data)
        self._incoming.write(data)
        return context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def pass_on(self, session: asyncio.BufferedProtocol, data: bytes) -> None:
        """Continue in plaintext: connect the session to the plain transport and give it `data`, the
        input received so far."""
        assert self.plain is not None, "a connection that is there"
        plain, self.plain = self.plain, None
        plain.set_protocol(session)
        # Before the session, which may have reading paused.
        plain.resume_reading()
        session.connection_made(plain)
        feed(cast("ServedProtocol", session), data)

    @property
    def tls(self) -> ssl.SSLObject | None:
        return self._tls

    def serve(self, session: ServedProtocol) -> None:
        """Connect the session after the handshake, and pass it the data that was received since."""
        assert self.plain is not None, "a connection that is there"
        self.session = session
        self._transport = TlsTransport(self, self.plain)
        session.connection_made(self._transport)
        self._read()

    # --- bytes ------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Decrypt what has arrived and pass it to the session: at most `BYTES_A_TURN` bytes now,
        the rest in a later turn of the event loop."""
        left = BYTES_A_TURN
        try:
            while self._reading and left > 0 and (count := self._read_once()):
                left -= count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended()
            return
        except ssl.SSLError:
            self._broken()
            return
        self.flush()
        if left <= 0:
            self._read_later()

    def _read_once(self) -> int:
        """Fill the session's buffer once with decrypted data and return the number of bytes. Return
        0 if there is no data, or the session accepts none."""
        session, tls = self.session, self._tls
        assert tls is not None, "after the handshake"
        buffer = None if session is None else session.get_buffer(AT_ONCE_BYTES)
        if session is None or not buffer or self.plain is None or self.plain.is_closing():
            return 0
        count, size = _decrypt(tls, buffer), len(buffer)
        while 0 < count < size and (self._incoming.pending or tls.pending()):
            try:
                count += _decrypt(tls, buffer[count:])
            except ssl.SSLError:
                break  # it is met again when the session has taken what there is
        self.heard_bytes += count
        session.buffer_updated(count)
        return count

    def _read_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._scheduled = False
        if self.session is not None and self.plain is not None:
            self._read()

    def _ended(self) -> None:
        """Close the connection after the peer's close_notify."""
        if self.session is not None:
            self.session.eof_received()
        if self._transport is not None:
            self._transport.close()

    def _broken(self) -> None:
        """Abort the connection: its bytes are corrupt, or the peer sent an alert."""
        self.flush()
        if self.plain is not None:
            self.plain.abort()

    def encrypt(self, piece: Buffer) -> None:
        """Encrypt a piece of data; `flush` sends it. After ssl.SSLError the connection cannot be
        used."""
        assert self._tls is not None, "after the handshake"
        if len(piece) <= AT_ONCE_BYTES:
            self._tls.write(piece)
            return
        view = memoryview(piece)
        for begin in range(0, len(view), AT_ONCE_BYTES):
            self._tls.write(view[begin : begin + AT_ONCE_BYTES])
            self.flush()

    def flush(self) -> None:
        if self._outgoing.pending and self.plain is not None:
            self.plain.write(self._outgoing.read())

    def say_goodbye(self) -> None:
        """Send close_notify, by which the peer knows that the data is complete. The peer's own
        close_notify is not awaited."""
        if self._tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # the peer's own goodbye is not waited for
            self.flush()

    def pause(self) -> None:
        self._reading = False
        self._adjust_reading()

    def resume(self) -> None:
        """Resume reading. Bytes that arrived meanwhile are delivered first."""
        self._reading = True
        self._adjust_reading()
        self._read_later()

    def tell_when_drained(self) -> None:
        if self.plain is not None:
            # Any byte that is left is too many: it calls `pause_writing`, and then the other.
            self.plain.set_write_buffer_limits(high=0, low=0)

    def info(self, name: str, default: Any) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == INSIDE_PEER:
            return self.inside_peer
        if name == CLIENT_PROOF:
            return self.client_proof
        return default if self.plain is None else self.plain.get_extra_info(name, default)


def _decrypt(tls: ssl.SSLObject, buffer: memoryview) -> int:
    """Decrypt at most one record into `buffer`, and return its number of bytes. Raises
    SSLZeroReturnError after the peer's close_notify, for which `read` would return 0 each time."""
    count = cast("int", tls.read(len(buffer), buffer))
    if not count:
        raise ssl.SSLZeroReturnError
    return count


def feed(session: ServedProtocol, data: bytes) -> None:
    """Pass bytes to a session as if they had just been read from the socket."""
    view = memoryview(data)
    while view:
        buffer = session.get_buffer(len(view))
        count = min(len(buffer), len(view))
        if not count:
            return  # it takes no more: it has ended the connection
        buffer[:count] = view[:count]
        session.buffer_updated(count)
        view = view[count:]


class NotTls(Exception):
    """Raised if the first input of a peer is not the beginning of a TLS handshake. `data`: that
    input."""

    def __init__(self, data: bytes) -> None:
        super().__init__("not TLS")
        self.data = data
