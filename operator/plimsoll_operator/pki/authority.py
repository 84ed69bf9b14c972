"""Creates certificate authorities, and signs certificates: of listeners, of users, and of internal
connections.

The library `cryptography` does X.509; this module states the parameters. Keys are ECDSA on P-256. A
certificate is valid from an hour before it is made, since clocks differ. This module reads no
clock: the caller passes the time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EARLIER_MS = 3_600_000
DAY_MS = 24 * 3_600_000
LISTENER_CA_DAYS = 1095
LISTENER_DAYS = 90
INSIDE_CA_DAYS = 365
INSIDE_DAYS = 30
CLIENT_DAYS = 90
CLIENT_DAYS_MAX = 365
"""Largest value, in days, of `validityDays` in a User."""
PEM_BYTES_MAX = 256 * 1024
"""Bound on the size in bytes of a PEM text of certificates: several times that of all CA
certificates that a broker gets."""
KEY_BYTES_MAX = 16 * 1024
"""Bound on the size in bytes of a private key. An RSA key of 16,384 bits takes 13 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate, followed by its chain, and its private key, both in PEM. `repr` hides both."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(***)"


class Unreadable(Exception):
    """Raised if the given bytes are no usable certificate or private key. The message says why, as
    a part of a sentence."""


def new_authority(common_name: str, now_ms: int, days: int = LISTENER_CA_DAYS) -> KeyPair:
    """Create a self-signed certificate authority, valid for `days` from `now_ms` on. It may sign
    only certificates of servers and clients, no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    builder = _begun(name, name, key.public_key(), _from(now_ms, days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return KeyPair(certificate=_pem(builder.sign(key, hashes.SHA256())), key=_key_pem(key))


def issue(
    authority: KeyPair, names: Iterable[str], now_ms: int, days: int = LISTENER_DAYS
) -> KeyPair:
    """Create a key and sign a server's certificate for these DNS names and IP addresses. It is
    valid for `days`, but no longer than the authority. Raises Unreadable if the authority has
    expired or cannot be decoded."""
    alternatives = [_alternative(name) for name in dict.fromkeys(names)]
    assert alternatives, "a server has a name"
    validity = _within(authority, now_ms, days)
    return _issued(authority, alternatives, [ExtendedKeyUsageOID.SERVER_AUTH], validity)


def issue_inside(
    authority: KeyPair, identity: str, now_ms: int, days: int = INSIDE_DAYS
) -> KeyPair:
    """Create a key and sign a certificate for a broker or a controller, as server and as client.
    `identity`: its name, a URI (`plimsoll_core.security.inside`). The certificate may outlive the
    authority: internal connections ignore validity times (`tls_policy`), and peers that still
    accept the authority replace an expired one. Raises Unreadable if the authority cannot be
    decoded."""
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = [x509.UniformResourceIdentifier(identity)]
    return _issued(authority, alternatives, usages, _from(now_ms, days))


def issue_client(
    authority: KeyPair, user: str, identity: str, now_ms: int, days: int = CLIENT_DAYS
) -> KeyPair:
    """Create a key and sign a certificate by which the user `user` logs in; servers cannot use it.
    `identity`: the user's name as a URI (`client_certificates.user_identity`). Raises Unreadable if
    the authority has expired or cannot be decoded."""
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = [x509.UniformResourceIdentifier(identity)]
    return _issued(authority, alternatives, usages, _within(authority, now_ms, days), user)


_Name = x509.DNSName | x509.IPAddress | x509.UniformResourceIdentifier


def _issued(
    authority: KeyPair,
    alternatives: Sequence[_Name],
    usages: Sequence[x509.ObjectIdentifier],
    validity: Validity,
    common_name: str = "",
) -> KeyPair:
    """Create a key and sign its certificate. `alternatives`: the names that it certifies; `usages`:
    server or client authentication; `common_name`: for people only (empty: the first name)."""
    signer = _certificate(authority.certificate)
    signing = _private_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    first = common_name or str(alternatives[0].value)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, first[:64])])
    builder = _begun(subject, signer.subject, key.public_key(), validity)
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
    )
    return KeyPair(certificate=_pem(builder.sign(signing, hashes.SHA256())), key=_key_pem(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The time for which a certificate is valid, in milliseconds since 1970."""

    not_before_ms: int
    not_after_ms: int

    def due_ms(self) -> int:
        """Return the time at which the certificate is to be renewed: after two thirds of its
        validity."""
        return self.not_before_ms + 2 * (self.not_after_ms - self.not_before_ms) // 3


def _from(now_ms: int, days: int) -> Validity:
    return Validity(not_before_ms=now_ms - EARLIER_MS, not_after_ms=now_ms + days * DAY_MS)


def _within(authority: KeyPair, now_ms: int, days: int) -> Validity:
    """Return a validity of `days` from `now_ms` on, cut off where the authority's ends. Raises
    Unreadable if the authority has expired."""
    asked, end_ms = _from(now_ms, days), describe(authority.certificate).validity.not_after_ms
    if end_ms <= now_ms:
        why = (
            f"the CA {_subject(_certificate(authority.certificate))} has expired, so it signs no "
            "new certificates"
        )
        raise Unreadable(why)
    return replace(asked, not_after_ms=min(asked.not_after_ms, end_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Properties of a certificate, as `describe` reads them. `names`: its alternative names;
    `sha256`: the fingerprint of its DER form, in hex."""

    names: frozenset[str]
    validity: Validity
    sha256: str


def describe(pair_or_chain: bytes) -> Description:
    """Return the properties of the first certificate in a PEM text; `names` is empty if it has no
    readable alternative names. Raises Unreadable if there is no certificate."""
    found = _certificate(pair_or_chain)
    try:
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = frozenset(str(one.value) for one in extension.value)
    except Exception:  # noqa: BLE001 - the library raises many types for malformed input
        names = frozenset()
    validity = Validity(
        not_before_ms=_ms(found.not_valid_before_utc), not_after_ms=_ms(found.not_valid_after_utc)
    )
    return Description(
        names=names, validity=validity, sha256=found.fingerprint(hashes.SHA256()).hex()
    )


def signed_by(chain: bytes, authorities: bytes) -> bool:
    """Return True if one of `authorities` (PEM) issued and signed the first certificate of `chain`
    (PEM), whatever their validity times; False also if either text cannot be decoded."""
    try:
        leaf, known = _certificate(chain), _certificates(authorities)
    except Unreadable:
        return False
    return any(_signed(leaf, authority) for authority in known)


def _signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - any failure means: not signed by this one
        return False
    return True


def authority_certificates(pem: bytes) -> tuple[bytes, ...]:
    """Return the certificates in a PEM text as DER, each once. Raises Unreadable if there is none,
    or one is not a CA certificate."""
    found = _certificates(pem)
    for one in found:
        if not _signs(one):
            raise Unreadable(f"the certificate of {_subject(one)} is not a CA certificate")
    return tuple(dict.fromkeys(one.public_bytes(serialization.Encoding.DER) for one in found))


def _signs(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except Exception:  # noqa: BLE001 - not a CA certificate that can be trusted
        return False
    return constraints.value.ca


def _subject(certificate: x509.Certificate) -> str:
    """Return a certificate's subject as text, cut to 100 characters."""
    try:
        return certificate.subject.rfc4514_string()[:100]
    except Exception:  # noqa: BLE001 - the library cannot print this name
        return "an unprintable name"


def why_unusable(pair: KeyPair) -> str:
    """Return the reason why a server cannot use a certificate and key that a user supplied: they
    cannot be decoded, or do not match. Return "" if it can."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        leaf, key = _certificate(pair.certificate), _private_key(pair.key)
        its_own = key.public_key().public_bytes(encoding, form)
        certified = leaf.public_key().public_bytes(encoding, form)
    except Unreadable as error:
        return str(error)
    except Exception:  # noqa: BLE001 - the library raises many types for malformed input
        return "its key type is not supported"
    return "" if its_own == certified else "the private key does not match the certificate"


# --- the library -------------------------------------------------------------------------------


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    validity: Validity,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(validity.not_before_ms))
        .not_valid_after(_time(validity.not_after_ms))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(chain: bytes) -> x509.Certificate:
    return _certificates(chain)[0]


def _certificates(pem: bytes) -> list[x509.Certificate]:
    """Return all certificates of a PEM text. Raises Unreadable if there is none. The text is
    untrusted: it may come from a user's object."""
    if len(pem) > PEM_BYTES_MAX:
        raise Unreadable(f"the PEM text of certificates is larger than {PEM_BYTES_MAX} bytes")
    try:
        return x509.load_pem_x509_certificates(pem)
    except Exception as error:  # the library has more kinds than ValueError: InvalidVersion
        raise Unreadable("the content has no readable PEM certificate") from error


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    if len(pem) > KEY_BYTES_MAX:
        raise Unreadable(f"the PEM text of a private key is larger than {KEY_BYTES_MAX} bytes")
    try:
        # Checking that an RSA key's numbers are primes would block the event loop for seconds.
        key = serialization.load_pem_private_key(
            pem, password=None, unsafe_skip_rsa_key_validation=True
        )
    except Exception as error:  # such as UnsupportedAlgorithm, of a curve
        raise Unreadable("the content has no readable, unencrypted PEM private key") from error
    # A given pair may have any kind of key; an authority's own key is always of this kind.
    return key  # type: ignore[return-value]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(microsecond=0)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
