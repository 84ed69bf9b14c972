"""A process's own certificate for connections inside the cluster, the authorities (CAs) that it
trusts, and the identity of a peer.

A broker's certificate comes from the files of its Secret (`InsideFiles`), a controller's from
memory.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from plimsoll_core.security.inside import InsideMode, Peer, peer_named
from plimsoll_net.shown_certificate import place_of
from plimsoll_net.tls_policy import BadCertificate, mutual_context

logger = logging.getLogger("plimsoll.inside")

CERTIFICATE, KEY = "broker-inside.crt", "broker-inside.key"
AUTHORITIES = "broker-inside-ca.crt"
MODE = "broker-inside.mode"
FILES = (CERTIFICATE, KEY, AUTHORITIES, MODE)
"""Names of the files for TLS inside the cluster in a broker's Secret. Names of listeners' files, in
the same Secret, have no hyphen."""
FILE_BYTES_MAX = 64 * 1024
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InsideIdentity:
    """TLS contexts with a process's certificate for connections inside the cluster, and with the
    authorities that it trusts. `sha256`: the certificate's fingerprint; `authorities`: the
    fingerprints of the authorities' certificates."""

    sha256: str
    authorities: tuple[str, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext


def identity_of(certificate: bytes, key: bytes, authorities: bytes) -> InsideIdentity:
    """Build an identity from a certificate, its key and the authorities' certificates, all PEM.
    Raises BadCertificate if one cannot be used."""
    pair = certificate + b"\n" + key
    return InsideIdentity(
        sha256=fingerprints(certificate)[0],
        authorities=fingerprints(authorities),
        server=mutual_context(pair, authorities, server=True),
        client=mutual_context(pair, authorities, server=False),
    )


def fingerprints(pem: bytes) -> tuple[str, ...]:
    """Return the fingerprint (SHA-256 in hex) of each certificate in a PEM text, in its order.
    Raises BadCertificate if there is none, or the text is malformed."""
    found = []
    try:
        for part in pem.decode("ascii").split(_BEGIN)[1:]:
            one = _BEGIN + part.partition(_END)[0] + _END
            found.append(hashlib.sha256(ssl.PEM_cert_to_DER_cert(one)).hexdigest())
    except ValueError as error:
        raise BadCertificate(
            "the certificate file for internal TLS holds no readable certificate in PEM form: "
            f"{error}"
        ) from error
    if not found:
        raise BadCertificate(
            "the certificate file for internal TLS holds no certificate in PEM form"
        )
    return tuple(found)


def peer_of(tls: ssl.SSLObject) -> Peer | None:
    """Return the identity in the peer's certificate after a handshake that has verified it. Return
    None if the peer presented no certificate, or its names state no identity, or several."""
    der = tls.getpeercert(binary_form=True)
    shown = tls.getpeercert()
    if der is None or not shown:
        return None
    found = cast("tuple[tuple[str, str], ...]", shown.get("subjectAltName", ()))
    names = tuple(value for kind, value in found if kind == "URI")
    return peer_named(names, hashlib.sha256(der).hexdigest())


class InsideFiles:
    """A broker's identity inside the cluster, read from files. `look` reads them again: if the
    files are unusable the former identity stays in use, and if they are missing there is no
    identity."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The files' contents that were tried last, usable or not.
        self._tried: tuple[bytes, ...] | None = None
        self.identity: InsideIdentity | None = None
        # True if the files forbid plaintext connections.
        self.required = False
        # Why the files that are there cannot be used; empty: they are, or there are none.
        self.error = ""

    def look(self) -> bool:
        """Read the files again if they have changed. Return True if the identity has changed, also
        if it has gone with the files. If the files are unusable or cannot be read, keep the
        identity, set `error` and return False."""
        try:
            read = self._read()
        except OSError as error:  # it has no descriptor left, say: that is not "no files"
            why = f"{self._directory} cannot be read: {error.strerror or error}"
            if why != self.error:
                logger.warning(
                    "this process cannot read its certificate for internal TLS and tries again; "
                    "it keeps the old one, so make the files readable before that expires: %s",
                    why,
                )
            self.error, self._tried = why, None
            return False
        if read is None:
            gone, self.identity = self.identity is not None, None
            self._tried, self.required, self.error = None, False, ""
            return gone
        certificate, key, authorities, mode = read
        self.required = mode.strip() == InsideMode.REQUIRED.value.encode()
        tried = (certificate, key, authorities)
        if tried == self._tried:
            return False
        self._tried = tried
        try:
            self.identity = identity_of(*tried)
        except BadCertificate as error:
            self.error = str(error)
            logger.warning(
                "this process cannot use the new certificate for internal TLS in %s; it keeps "
                "the old one, and tries again when the files there change; the operator writes "
                "the Secret that is mounted there, so if this lasts, see the operator's log: %s",
                *(self._directory, error),
            )
            return False
        self.error = ""
        trusted = len(self.identity.authorities)
        shown = self.identity.sha256[:16]
        logger.info(
            "this process has loaded its certificate for internal TLS (SHA-256 %s…) and trusts "
            "%d certificate authorities",
            *(shown, trusted),
        )
        return True

    def _read(self) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Return the contents of the certificate, key, authorities and mode files; None if one is
        missing. Raises OSError."""
        place = place_of(self._directory)
        found = []
        for name in FILES:
            try:
                with (place / name).open("rb") as file:
                    found.append(file.read(FILE_BYTES_MAX))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return found[0], found[1], found[2], found[3]
