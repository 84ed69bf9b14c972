"""Clients' certificates: what one says, whom it lets in, and the session that begins so.

OpenSSL has verified the chain, the times and the purpose when `judge` is called; the library
`cryptography` reads the certificate; `plimsoll_core.security` decides.  One for each lifetime of a
broker.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

from cryptography import x509

from plimsoll_broker.security.audit_log import AuditEvent
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.dispatch import ConnectionState
from plimsoll_core.security.client_certificates import (
    CertificateProof,
    CertificateRefusal,
    NamePart,
    ShownClient,
    distinguished_name,
    fingerprint,
)
from plimsoll_core.security.sasl import by_certificate
from plimsoll_net.handshakes import REFUSED
from plimsoll_net.peer_chain import PeerChain

ANCHORS_MAX = 20_000
"""As many sessions as OpenSSL keeps: a client of TLS 1.2 that resumes one shows no chain again."""


class CertificateLogins:
    """`judge` and `logged_in` are a listener's."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        # The authority's certificate at the end of the chain, by the client's own; the oldest goes.
        self._anchors: dict[str, str] = {}

    def judge(
        self, shown: PeerChain | None, host: str, listener: str
    ) -> tuple[CertificateProof | None, str]:
        """What is proven, None: nothing was shown; and why the client is not let in."""
        if shown is None:
            return None, ""
        found = self._judge(shown)
        if isinstance(found, CertificateProof):
            return found, ""
        authority = self._authority
        authority.stats.certificates_refused[found] += 1
        authority.stats.failed_logins += 1
        event = AuditEvent(
            decision="CertificateRefused",
            principal="",
            host=host,
            listener=listener,
            reason=found.value,
        )
        authority.audit.note(event)
        return None, REFUSED

    def _judge(self, shown: PeerChain) -> CertificateProof | CertificateRefusal:
        try:
            with warnings.catch_warnings():
                # Of parts that are longer than X.520 has them: each would be a line in the log.
                warnings.simplefilter("ignore")
                client = read(shown.certificate, self._anchor(shown))
        except Exception:  # noqa: BLE001 - whatever the library makes of it, it lets nobody in
            return CertificateRefusal.UNREADABLE
        return self._authority.security.judge_certificate(client, time.time_ns() // 1_000_000)

    def _anchor(self, shown: PeerChain) -> str:
        """Its fingerprint; empty: not known any more."""
        mine = fingerprint(shown.certificate)
        if shown.anchor is None:
            return self._anchors.get(mine, "")
        self._anchors.pop(mine, None)
        while len(self._anchors) >= ANCHORS_MAX:
            del self._anchors[next(iter(self._anchors))]
        anchor = self._anchors[mine] = fingerprint(shown.anchor)
        return anchor

    def logged_in(self, connection: ConnectionState, proof: CertificateProof) -> None:
        """From its first request on the connection is its certificate's user's."""
        connection.sasl = None
        self._authority.logged_in(connection, by_certificate(proof))
        event = AuditEvent(
            decision="LoggedIn",
            principal=connection.principal,
            host=connection.host,
            listener=connection.listener_name,
            reason="TLS",
        )
        self._authority.audit.note(event)


def read(der: bytes, anchor: str) -> ShownClient:
    """Raises whatever the library does for what it cannot read."""
    one = x509.load_der_x509_certificate(der)
    try:
        names = one.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        identities = tuple(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound:
        identities = ()
    return ShownClient(
        sha256=fingerprint(der),
        anchor=anchor,
        subject=distinguished_name([[_part(each) for each in rdn] for rdn in one.subject.rdns]),
        identities=identities,
        not_after_ms=int(one.not_valid_after_utc.timestamp() * 1000),
    )


def _part(attribute: x509.NameAttribute[Any]) -> NamePart:
    value = attribute.value
    return NamePart(
        oid=attribute.oid.dotted_string,
        text=value if isinstance(value, str) else None,
        der=_value_of(x509.Name([attribute]).public_bytes()),
    )


def _value_of(name: bytes) -> bytes:
    """The value of a name's only attribute: SEQUENCE { SET { SEQUENCE { OID, value }}} in DER."""
    rest = name
    for _ in range(3):
        rest = rest[_head(rest) :]
    return rest[_head(rest) + rest[1] :]  # the number's length is one byte


def _head(der: bytes) -> int:
    """How long tag and length are."""
    return 2 if der[1] < 0x80 else 2 + (der[1] & 0x7F)
