"""Replaces OpenSSL in a connection, without cryptography.

Implements `ssl.SSLContext` and `SSLObject` as far as `plimsoll_net` uses them. Each end shows its
certificate and accepts one signed by an authority that it trusts. A listener for clients also
checks the times in a client's certificate, and may accept a client that shows none. Data is carried
in plaintext. The product's own code decides to which peer a certificate belongs, and if it is still
trusted. As with TLS 1.3, a client's handshake is complete before the client learns that its
certificate was refused.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from plimsoll_net.tls_policy import ClientTrust
from plimsoll_operator.pki.authority import Unreadable
from plimsoll_sim.environment.certificates import checked, of_der

HELLO, CERTIFICATE, DATA, ALERT = 0x16, 0x17, 0x18, 0x15
"""Kinds of records. A handshake begins with 0x16, as in real TLS."""
RECORDS = frozenset((HELLO, CERTIFICATE, DATA, ALERT))
GOODBYE = b"close_notify"
_HEAD = 5


def record(kind: int, body: bytes | memoryview) -> bytes:
    """Return a record in the form that `Records` reads."""
    return bytes((kind,)) + len(body).to_bytes(4, "big") + body


class Records:
    """Splits the bytes of one direction into records, each a kind and a body."""

    def __init__(self) -> None:
        # The bytes of an incomplete record.
        self._raw = bytearray()

    def __len__(self) -> int:
        return len(self._raw)

    def receive(self, data: bytes) -> None:
        self._raw += data

    def next(self) -> tuple[int, bytes] | None:
        """Return the next record; None if no record is complete."""
        size = int.from_bytes(self._raw[1:_HEAD], "big")
        if len(self._raw) < _HEAD or len(self._raw) < _HEAD + size:
            return None
        kind, body = self._raw[0], bytes(self._raw[_HEAD : _HEAD + size])
        del self._raw[: _HEAD + size]
        return kind, body

    def carried(self, data: bytes) -> bytes:
        """Add received bytes, and return the session data of the records that they complete."""
        self.receive(data)
        found = iter(self.next, None)
        return b"".join(body for kind, body in found if kind == DATA)


class SimContext(NamedTuple):
    """A TLS context. `certificate`: the one to show, or None. `trusted`: the keys of trusted
    authorities. `find`: returns the context to use instead, by the server name that a client
    states. `clients`: the client certificates that a listener asks for; None: both ends are
    peers."""

    certificate: bytes | None = None
    trusted: frozenset[str] = frozenset()
    find: Callable[[str | None], SimContext | None] | None = None
    clients: ClientTrust | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> SimTls:
        return SimTls(self, incoming, outgoing, server_side=server_side, asks=server_hostname)


class SimTls:
    """TLS of one end of a connection."""

    def __init__(
        self,
        context: SimContext,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        *,
        server_side: bool,
        asks: str | None,
    ) -> None:
        self._context = context
        self._incoming, self._outgoing = incoming, outgoing
        self._server_side = server_side
        self._asks = asks
        self._records = Records()
        # Data that was decrypted but not read.
        self._clear = bytearray()
        self._begun = False
        self._shaken = False
        # The peer's, once it is believed.
        self._peer: bytes | None = None

    # --- the handshake ----------------------------------------------------------------------------

    def do_handshake(self) -> None:
        if not self._begun:
            self._begun = True
            if not self._server_side:
                self._put(HELLO, (self._asks or "").encode())
        while not self._shaken:
            kind, body = self._next()
            if self._server_side and kind == HELLO:
                self._answer(body.decode() or None)
            elif kind == CERTIFICATE:
                self._believe(body)
                if not self._server_side:
                    self._show()
                self._shaken = True
            else:
                raise ssl.SSLError(f"an alert, or a record out of turn: {kind}")

    def _answer(self, name: str | None) -> None:
        if self._context.find is not None:
            found = self._context.find(name)
            if found is None:
                raise self._refused("unrecognized_name")
            self._context = found
        self._show()

    def _show(self) -> None:
        if self._context.certificate is None:
            raise self._refused("no certificate")
        self._put(CERTIFICATE, self._context.certificate)

    def _believe(self, der: bytes) -> None:
        clients = self._context.clients
        if not der and clients is not None and not clients.required:
            return
        try:
            shown = of_der(der)
        except Unreadable as error:
            raise self._refused("certificate_required") from error
        if shown.issuer not in self._context.trusted:
            raise self._refused("unknown_ca")
        now_ms = time.time_ns() // 1_000_000
        if clients is not None and not shown.not_before_ms <= now_ms < shown.not_after_ms:
            raise self._refused("certificate_expired")
        self._peer = der

    def _refused(self, why: str) -> ssl.SSLError:
        """Return the error for a refused peer, and send the peer an alert. `why`: the reason."""
        self._put(ALERT, why.encode())
        return ssl.SSLError(why)

    # --- records ----------------------------------------------------------------------------------

    def _put(self, kind: int, body: bytes | memoryview) -> None:
        self._outgoing.write(record(kind, body))

    def _next(self) -> tuple[int, bytes]:
        self._records.receive(self._incoming.read())
        found = self._records.next()
        if found is None:
            raise ssl.SSLWantReadError
        return found

    def read(self, size: int, buffer: memoryview) -> int:
        """Decrypt into the buffer. Return the number of bytes; 0 after the peer's close_notify."""
        while not self._clear:
            kind, body = self._next()
            if kind == ALERT and body == GOODBYE:
                return 0
            if kind != DATA:
                raise ssl.SSLError(f"an alert, or a record out of turn: {kind}")
            self._clear += body
        count = min(size, len(self._clear))
        buffer[:count] = self._clear[:count]
        del self._clear[:count]
        return count

    def write(self, piece: bytes | memoryview) -> int:
        self._put(DATA, memoryview(piece))
        return len(piece)

    def pending(self) -> int:
        return len(self._clear) + len(self._records)

    def unwrap(self) -> None:
        self._put(ALERT, GOODBYE)

    # --- the peer ---------------------------------------------------------------------------------

    def get_verified_chain(self) -> list[bytes]:
        clients = self._context.clients
        if self._peer is None or clients is None:
            return []
        issuer = of_der(self._peer).issuer
        return [self._peer, next(one for one in clients.authorities if of_der(one).key == issuer)]

    def getpeercert(self, binary_form: bool = False) -> Any:
        if self._peer is None:
            return None
        if binary_form:
            return self._peer
        return {"subjectAltName": tuple(("URI", name) for name in of_der(self._peer).names)}


def asking_context(find: Callable[[str | None], Any]) -> SimContext:
    """Replaces `tls_policy.asking_context`."""
    return SimContext(find=find)


def mutual_context(pair: bytes, authorities: bytes, *, server: bool) -> SimContext:
    """Replaces `tls_policy.mutual_context`. Raises BadCertificate."""
    return SimContext(*checked(pair, authorities))


def listener_context(pair: bytes, clients: ClientTrust | None) -> SimContext:
    """Replaces `tls_policy.server_context`, from its files. Raises BadCertificate."""
    shown, _ = checked(pair, b"")
    asked = clients or ClientTrust()
    trusted = frozenset(of_der(der).key for der in asked.authorities)
    return SimContext(certificate=shown, trusted=trusted, clients=asked)
