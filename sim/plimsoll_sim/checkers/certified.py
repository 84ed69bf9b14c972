"""Decides from the committed rows whether a client's certificate is a valid login.

Called by `rights` for A1, A4 and A5 of clients that log in by certificate, and by `tenancy` for
A7.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll_core.security.client_certificates import OWN_AUTHORITY
from plimsoll_core.security.state import Security
from plimsoll_sim.environment.certificates import of_der


def issuers(security: Security, *, key: str = "", sha256: str = "") -> set[str]:
    """Return the names of the authorities that have a certificate with this key or fingerprint."""
    return {
        one.name
        for one in security.authorities
        for der in one.certificates
        if of_der(der).key == key or hashlib.sha256(der).hexdigest() == sha256
    }


def is_login(security: Security, der: bytes, user: str, now_ms: int) -> bool:
    """Return True if a client that presents this certificate is logged in as this user."""
    one = of_der(der)
    signers = issuers(security, key=one.issuer)
    if OWN_AUTHORITY in signers:
        named = _has(security, user, hashlib.sha256(der).hexdigest())
    else:
        named = bool(signers) and one.subject == user
    return named and not _is_disabled(security, user) and now_ms < one.not_after_ms


def is_still_login(security: Security, proof: Any, now_ms: int) -> bool:
    """Return True if a connection that was let in by this `CertificateProof` may stay."""
    signers = issuers(security, sha256=proof.anchor)
    if proof.own:
        named = OWN_AUTHORITY in signers and _has(security, proof.user, proof.sha256)
    else:
        named = bool(signers - {OWN_AUTHORITY})
    return named and not _is_disabled(security, proof.user) and now_ms < proof.until_ms


def cut_off(security: Security, issuers_of: Mapping[str, str], now_ms: int) -> Iterator[str]:
    """Yield the committed and unexpired certificates that no trusted authority signed, for people.

    `issuers_of`: the key that signed a certificate, by its fingerprint.
    """
    believed = {
        of_der(der).key
        for one in security.authorities
        if one.name == OWN_AUTHORITY
        for der in one.certificates
    }
    for user, row in sorted(security.certificates.items()):
        for one in row.certificates:
            if one.not_after_ms > now_ms and issuers_of[one.sha256] not in believed:
                yield f"a certificate of {user}"


def _has(security: Security, user: str, sha256: str) -> bool:
    row = security.certificates.get(user)
    return row is not None and sha256 in {one.sha256 for one in row.certificates}


def _is_disabled(security: Security, user: str) -> bool:
    declared = security.users.get(user)
    return declared is not None and declared.disabled
