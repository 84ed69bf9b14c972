"""Logins by certificates: trusted authorities, and the user of a certificate.

Pure: TLS verifies the chain, the broker reads the certificate, and this module returns its user. A
certificate of the cluster's own authority belongs to a user if its fingerprint is committed for
that user: no name in it is read, and a removed fingerprint is refused. A certificate of another
authority gives the user its distinguished name, written as Java does; no other kind of user can
have such a name, since it has an equals sign. Source: RFC 2253, KIP-371,
`DefaultKafkaPrincipalBuilder`.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from plimsoll_core.security.inside import SCHEME

TLS_LOGIN = "Tls"
"""The name of the certificate login in listeners."""
CertificateMechanism = Literal["TLS"]
BY_CERTIFICATE: CertificateMechanism = "TLS"
OWN_AUTHORITY = "clients"
"""The name of the authority by which the operator signs users' certificates."""

SUBJECT_CHARACTERS_MAX = 240
CERTIFICATES_MAX = 4
"""The most certificates of a user: the newest, and earlier ones that have not expired."""
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The keywords of RFC 2253 for attributes of a name, by object identifier. Java writes all others
by their numbers."""
_BEGINS = re.compile(rf"(?:{'|'.join(_KEYWORDS.values())}|\d+(?:\.\d+)+)=")
_ESCAPED = frozenset(',=+<>#;"\\')


class ClientAuthority(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An authority that is trusted to sign client certificates. `name`: the name by which objects
    refer to it; `source`: the object from which it was read, empty for the cluster's own authority;
    `certificates`: of the authority itself (DER), each of which is trusted."""

    name: str
    certificates: tuple[bytes, ...]
    source: str = ""


class UserCertificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's certificate that the cluster's own authority signed. `sha256`: the SHA-256 of its
    DER, in hex. `not_after_ms`: its expiry, in ms since 1970."""

    sha256: str
    not_after_ms: int


class UserCertificates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The certificates by which a user may log in, newest first. `owner`: the uid of its User
    object."""

    user: str
    owner: str
    certificates: tuple[UserCertificate, ...]


class ShownClient(NamedTuple):
    """What a client's certificate states, after its chain was verified. `anchor`: the fingerprint
    of the authority certificate at the end of the chain; `subject`: the distinguished name, empty
    if it has none that can be a user's; `identities`: the URIs among its alternative names."""

    sha256: str
    anchor: str
    subject: str
    identities: tuple[str, ...]
    not_after_ms: int


class CertificateProof(NamedTuple):
    """The user that a client proved to be by a certificate, valid until `until_ms` (wall clock).
    `own`: True if the cluster's own authority signed the certificate."""

    user: str
    sha256: str
    anchor: str
    own: bool
    until_ms: int


class CertificateRefusal(Enum):
    """The reason to refuse a certificate with a valid chain; the values name it in metrics and the
    audit log."""

    UNREADABLE = "unreadable"
    UNTRUSTED = "untrusted"
    NOT_COMMITTED = "not-committed"
    NO_CLIENT = "no-client"
    NO_USER = "no-user"
    EXPIRED = "expired"
    DISABLED = "disabled"


def user_identity(cluster_id: object, user: str, uid: str) -> str:
    """Return the URI that names the user in a certificate of the cluster's own authority. Only the
    operator and people read it."""
    return f"{SCHEME}://{cluster_id}/user/{user}/{uid}"


@lru_cache(maxsize=256)
def fingerprint(der: bytes) -> str:
    """Return the SHA-256 of a certificate, in hex."""
    return hashlib.sha256(der).hexdigest()


def authority_of(authorities: Iterable[ClientAuthority], anchor: str) -> ClientAuthority | None:
    """Return the authority that has a certificate with the fingerprint `anchor`, or None. If
    several have it, the cluster's own is preferred."""
    found = (one for one in authorities if anchor in map(fingerprint, one.certificates))
    return min(found, key=lambda one: one.name != OWN_AUTHORITY, default=None)


def subject_refused(shown: ShownClient) -> CertificateRefusal | None:
    """Return the reason why a certificate signed by another authority cannot be a user's login, or
    None if it can."""
    if any(one.startswith(f"{SCHEME}:") for one in shown.identities):
        # It claims an identity of this product, which only the product's own authorities grant.
        return CertificateRefusal.NO_CLIENT
    return CertificateRefusal.NO_USER if illegal_subject(shown.subject) else None


def certificate_mark(sha256: str, anchor: str) -> bytes:
    """Return a mark that identifies a login by one certificate of the cluster's own authority. It
    cannot be used to log in."""
    return hashlib.sha256(f"certificate {sha256} of {anchor}".encode()).digest()[:16]


def anchor_mark(anchor: str) -> bytes:
    """Return a mark that identifies logins by certificates of another authority, which stay valid
    while the authority certificate with the fingerprint `anchor` is trusted."""
    return hashlib.sha256(f"certificate of {anchor}".encode()).digest()[:16]


def mark_of(proof: CertificateProof) -> bytes:
    return certificate_mark(proof.sha256, proof.anchor) if proof.own else anchor_mark(proof.anchor)


# --- distinguished names -------------------------------------------------------------------------


class NamePart(NamedTuple):
    """One attribute of a distinguished name. `oid`: dotted; `text`: the value, None if it is not
    text; `der`: the encoded value."""

    oid: str
    text: str | None
    der: bytes


def distinguished_name(parts: Sequence[Sequence[NamePart]]) -> str:
    """Return the name as Java's `X500Principal.getName()` writes it: the last of `parts` comes
    first. Return an empty string if a value has unprintable characters, since no user may have such
    a name."""
    written = []
    for several in reversed(parts):
        for part in several:
            if part.text is not None and not _can_be_seen(part.text):
                return ""
        written.append("+".join(map(_written, several)))
    return ",".join(written)


def illegal_subject(name: str) -> bool:
    """Return True if no user may have this distinguished name."""
    if not 0 < len(name) <= SUBJECT_CHARACTERS_MAX or _BEGINS.match(name) is None:
        return True
    return not _can_be_seen(name)


def _can_be_seen(text: str) -> bool:
    """Return True if the text has no control characters, no marks of writing direction and no
    surrogates."""
    return not any(unicodedata.category(one).startswith("C") for one in text)


def _written(part: NamePart) -> str:
    keyword = _KEYWORDS.get(part.oid)
    if keyword is None or part.text is None:
        return f"{keyword or part.oid}=#{part.der.hex()}"
    return f"{keyword}={_escaped(part.text)}"


def _escaped(text: str) -> str:
    body = "".join(f"\\{one}" if one in _ESCAPED else one for one in text)
    inner = body.strip(" ")
    if not inner:
        return "\\ " * len(body)
    begin = len(body) - len(body.lstrip(" "))
    end = len(body) - len(body.rstrip(" "))
    return "\\ " * begin + inner + "\\ " * end
