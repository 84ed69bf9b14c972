"""Reads the certificate that a client showed in a completed handshake, and its trust anchor."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple


class PeerChain(NamedTuple):
    """Both are DER.  `anchor`: the trusted certificate at the end of the chain; None: a session of
    TLS 1.2 was resumed, for which no chain is verified."""

    certificate: bytes
    anchor: bytes | None


def peer_chain(tls: ssl.SSLObject) -> PeerChain | None:
    """Return None if the peer showed no certificate."""
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        return None
    chain = _verified(tls)
    return PeerChain(certificate, chain[-1] if chain else None)


def _verified(tls: Any) -> tuple[bytes, ...]:
    """Public from Python 3.13 on; before, the same function of the object within."""
    inner = tls if hasattr(tls, "get_verified_chain") else tls._sslobj
    found = inner.get_verified_chain() or ()
    return tuple(
        one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes())
        for one in found
    )
