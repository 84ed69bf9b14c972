"""The TLS that listeners speak: versions, suites, and what is off.

TLS 1.2 at least, with forward secrecy and authenticated encryption only; no compression, no
renegotiation, no early data.  A context is made from files of a certificate and its key, checked
before it is used.  Never `ssl.create_default_context`: that one writes the keys of every session to
the file that SSLKEYLOGFILE names.  Source: RFC 9325 (BCP 195).
"""

from __future__ import annotations

import ssl
from pathlib import Path

SUITES_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.3 are all of this kind."""
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_OFF = (
    ssl.OP_NO_COMPRESSION
    | ssl.OP_NO_RENEGOTIATION
    | ssl.OP_SINGLE_ECDH_USE
    | ssl.OP_CIPHER_SERVER_PREFERENCE
)


class BadCertificate(Exception):
    """A certificate or its key cannot be used; a sentence for the log."""


def server_context(chain: Path, key: Path, version_min: str) -> ssl.SSLContext:
    """What a listener's connections are accepted with; `chain`, `key`: PEM files that belong
    together.  Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version_min]
    context.set_ciphers(SUITES_1_2)
    context.options |= _OFF
    try:
        context.load_cert_chain(chain, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(f"{chain.name} and {key.name} cannot be used: {error}") from error
    return context


def _no_password() -> str:
    """OpenSSL would ask the terminal."""
    raise ValueError("the key is encrypted")
