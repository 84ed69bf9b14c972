"""Simulated certificates: values with signer, key, names and times of validity.

The functions replace those of `plimsoll_operator.pki.authority` and `plimsoll_net.tls_policy`,
without cryptography: a PEM text contains JSON, and a private key is a random name that only its
holder knows.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Iterable

import msgspec

from plimsoll_core.security.client_certificates import ShownClient
from plimsoll_net.tls_policy import BadCertificate
from plimsoll_operator.pki.authority import (
    CLIENT_DAYS,
    INSIDE_DAYS,
    LISTENER_CA_DAYS,
    LISTENER_DAYS,
    Description,
    KeyPair,
    Unreadable,
    Validity,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLIENT_DAY_MS = 1_500
"""Virtual milliseconds that stand for a day in the validity of a client's certificate, so that it
can end within a run."""
CLIENT_EARLY_MS = 500
"""Milliseconds by which the validity of a client's certificate begins before its creation, since
clocks differ."""
_BEGIN, _END = b"-----BEGIN PRIVATE KEY-----\n", b"\n-----END PRIVATE KEY-----\n"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class SimCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated certificate. `key`: its own public key; `issuer`: the public key that signed
    it."""

    key: str
    issuer: str
    names: tuple[str, ...]
    not_before_ms: int
    not_after_ms: int
    subject: str = ""


def of_der(der: bytes) -> SimCertificate:
    """Decode a certificate. Raises Unreadable if `der` contains none."""
    try:
        return msgspec.json.decode(der, type=SimCertificate)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable("it holds no certificate") from error


def all_of(pem: bytes) -> list[SimCertificate]:
    """Return the certificates of a chain, in order."""
    return [of_der(der) for der in ders(pem)]


def ders(pem: bytes) -> list[bytes]:
    parts = (_CERTIFICATE + part for part in pem.split(_CERTIFICATE)[1:])
    return [ssl.PEM_cert_to_DER_cert(_trimmed(part)) for part in parts]


def _trimmed(part: bytes) -> str:
    end = "-----END CERTIFICATE-----"
    return part.decode().partition(end)[0] + end


def public(secret: str) -> str:
    """Return the public part of a key."""
    return f"public-{secret.removeprefix('secret-')}"


def _made(
    names: tuple[str, ...], issuer: str | None, not_before_ms: int, not_after_ms: int
) -> KeyPair:
    """Make a certificate and its key. `issuer` None: self-signed."""
    secret = f"secret-{os.urandom(8).hex()}"
    one = SimCertificate(
        key=public(secret),
        issuer=public(secret) if issuer is None else issuer,
        names=names,
        not_before_ms=not_before_ms,
        not_after_ms=not_after_ms,
    )
    return _signed(KeyPair(certificate=b"", key=_BEGIN + secret.encode() + _END), one)


def _signed(pair: KeyPair, one: SimCertificate) -> KeyPair:
    """Return the key pair with its certificate replaced by `one`."""
    certificate = ssl.DER_cert_to_PEM_cert(msgspec.json.encode(one)).encode()
    return KeyPair(certificate=certificate, key=pair.key)


def _secret(pem: bytes) -> str:
    return pem.partition(_BEGIN)[2].partition(_END)[0].decode()


# --- instead of `pki.authority` -------------------------------------------------------------------


def new_authority(common_name: str, now_ms: int, days: int = LISTENER_CA_DAYS) -> KeyPair:
    return _made((common_name,), None, now_ms - HOUR_MS, now_ms + days * DAY_MS)


def brief_authority(
    life_ms: int, common_name: str, now_ms: int, days: int = LISTENER_CA_DAYS
) -> KeyPair:
    """Return an authority. One of clients' certificates ends after `life_ms`, others after `days`,
    as with `new_authority`."""
    if not common_name.endswith(" clients"):
        return new_authority(common_name, now_ms, days)
    return _made((common_name,), None, now_ms, now_ms + life_ms)


def issue(
    authority: KeyPair, names: Iterable[str], now_ms: int, days: int = LISTENER_DAYS
) -> KeyPair:
    until_ms = min(now_ms + days * DAY_MS, _first(authority.certificate).not_after_ms)
    signer = public(_secret(authority.key))
    return _made(tuple(dict.fromkeys(names)), signer, now_ms - HOUR_MS, until_ms)


def issue_inside(
    authority: KeyPair, identity: str, now_ms: int, days: int = INSIDE_DAYS
) -> KeyPair:
    return issue(authority, (identity,), now_ms, days)


def issue_client(
    authority: KeyPair, user: str, identity: str, now_ms: int, days: int = CLIENT_DAYS
) -> KeyPair:
    return client_of(authority, f"CN={user}", now_ms, days, (identity,))


def client_of(
    authority: KeyPair,
    subject: str,
    now_ms: int,
    days: int = CLIENT_DAYS,
    names: tuple[str, ...] = (),
) -> KeyPair:
    """Return a client's certificate that any authority signed, with its key."""
    signer, end_ms = public(_secret(authority.key)), _first(authority.certificate).not_after_ms
    if end_ms <= now_ms:
        raise Unreadable("the certificate of the CA has expired")
    until_ms = min(now_ms + days * CLIENT_DAY_MS, end_ms)
    made = _made(names, signer, now_ms - CLIENT_EARLY_MS, until_ms)
    return _signed(made, msgspec.structs.replace(_first(made.certificate), subject=subject))


def authority_certificates(pem: bytes) -> tuple[bytes, ...]:
    return tuple(ders(pem))


def describe(pair_or_chain: bytes) -> Description:
    found = _first(pair_or_chain)
    return Description(
        names=frozenset(found.names),
        validity=Validity(not_before_ms=found.not_before_ms, not_after_ms=found.not_after_ms),
        sha256=hashlib.sha256(ders(pair_or_chain)[0]).hexdigest(),
    )


def signed_by(chain: bytes, authorities: bytes) -> bool:
    return _first(chain).issuer in {one.key for one in all_of(authorities)}


def why_unusable(pair: KeyPair) -> str:
    try:
        leaf = _first(pair.certificate)
    except Unreadable as error:
        return str(error)
    return "" if public(_secret(pair.key)) == leaf.key else "the key is another certificate's"


def _first(chain: bytes) -> SimCertificate:
    found = all_of(chain)
    if not found:
        raise Unreadable("the content has no readable PEM certificate")
    return found[0]


# --- instead of `certificate_logins` --------------------------------------------------------------


def read(der: bytes, anchor: str) -> ShownClient:
    """Return what a broker reads from a client's certificate."""
    one = of_der(der)
    return ShownClient(
        sha256=hashlib.sha256(der).hexdigest(),
        anchor=anchor,
        subject=one.subject,
        identities=one.names,
        not_after_ms=one.not_after_ms,
    )


# --- instead of `tls_policy` ----------------------------------------------------------------------


def checked(pair: bytes, authorities: bytes) -> tuple[bytes, frozenset[str]]:
    """Return the certificate to present and the keys of the trusted authorities. Raises
    BadCertificate."""
    try:
        leaf = _first(pair)
        trusted = frozenset(one.key for one in all_of(authorities))
    except (Unreadable, ValueError) as error:
        raise BadCertificate(f"they cannot be used: {error}") from error
    if public(_secret(pair)) != leaf.key:
        raise BadCertificate("the key is another certificate's")
    return ders(pair)[0], trusted
