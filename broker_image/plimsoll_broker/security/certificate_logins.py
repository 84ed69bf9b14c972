"""CertificateLogins: logins by client certificates, and the sessions that begin with one.

When `judge` is called, OpenSSL has verified the chain, the times and the purpose of the
certificate. The library `cryptography` parses it; `plimsoll_core.security` decides. A broker makes
one object for each of its lifetimes.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

from cryptography import x509

from plimsoll_broker.security.audit_log import AuditEvent
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.security.client_certificates import (
    CertificateProof,
    CertificateRefusal,
    NamePart,
    ShownClient,
    distinguished_name,
    fingerprint,
)
from plimsoll_core.security.sasl import by_certificate
from plimsoll_net.handshakes import REFUSED, PeerChain

ANCHORS_MAX = 20_000
"""The most remembered CA fingerprints, by client certificate. OpenSSL keeps as many sessions: a TLS
1.2 client that resumes one presents no chain, so its CA must be remembered."""


class CertificateLogins:
    """Decides on the certificates of clients of all listeners, and logs their connections in. A
    listener calls `judge`, then `logged_in`."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        # By the client certificate's fingerprint: that of the CA certificate at the end of its
        # chain. The oldest entry is dropped.
        self._anchors: dict[str, str] = {}

    def judge(
        self, shown: PeerChain | None, host: str, listener: str
    ) -> tuple[CertificateProof | None, str]:
        """Check the certificate chain that a client at `host` presented (None: no certificate) to
        `listener`. Return the proof of its user and an empty string; or None and the reason for
        rejection, which is counted and written to the audit log; or, without a certificate, None
        and an empty string."""
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
                # Parts longer than X.520 allows would each log a warning.
                warnings.simplefilter("ignore")
                client = read(shown.certificate, self._anchor(shown))
        except Exception:  # noqa: BLE001 - any parse error means refusal
            return CertificateRefusal.UNREADABLE
        return self._authority.security.judge_certificate(client, time.time_ns() // 1_000_000)

    def _anchor(self, shown: PeerChain) -> str:
        """Return the fingerprint of the CA certificate at the end of the client's chain, and
        remember it by the client's certificate. If the client has resumed a session, so that the
        chain is missing, return the remembered fingerprint, or an empty string if it is no longer
        known."""
        mine = fingerprint(shown.certificate)
        if shown.anchor is None:
            return self._anchors.get(mine, "")
        self._anchors.pop(mine, None)
        while len(self._anchors) >= ANCHORS_MAX:
            del self._anchors[next(iter(self._anchors))]
        anchor = self._anchors[mine] = fingerprint(shown.anchor)
        return anchor

    def logged_in(self, connection: ConnectionState, proof: CertificateProof) -> None:
        """Log the connection in as the certificate's user, and write an audit entry."""
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
    """Parse a client certificate in DER. `anchor`: the fingerprint of its CA certificate. Raises
    any exception of the library if the certificate is invalid."""
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
    """Return the value of a name's only attribute, SEQUENCE { SET { SEQUENCE { OID, value }}} in
    DER."""
    rest = name
    for _ in range(3):
        rest = rest[_head(rest) :]
    return rest[_head(rest) + rest[1] :]  # the OID's length is one byte


def _head(der: bytes) -> int:
    """Return the number of bytes that the tag and the length of a DER value take."""
    return 2 if der[1] < 0x80 else 2 + (der[1] & 0x7F)
