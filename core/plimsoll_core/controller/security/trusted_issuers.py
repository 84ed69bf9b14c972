"""Commits the authorities of clients' certificates and the issuers of trusted tokens.

Called for DeclareClientAuthorities and DeclareTokenIssuers. One record states all authorities, one
all issuers with their keys; brokers verify certificates and tokens by them, without a request to
the issuer. An authority or a key that the next record does not name is removed, and brokers close
the connections of clients that logged in by it.
"""

from __future__ import annotations

from typing import get_args

from plimsoll_core.cluster.records import ClientAuthoritiesConfigured, TokenIssuersConfigured
from plimsoll_core.controller.kernel.decision import DecisionContext, access_too_old
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.messages.security import DeclareClientAuthorities, DeclareTokenIssuers
from plimsoll_core.security.client_certificates import ClientAuthority
from plimsoll_core.security.tokens import KEY_BYTES_MAX, Algorithm, TokenIssuer

AUTHORITIES_MAX = 9
CERTIFICATES_MAX = 16
BYTES_MAX = 128 * 1024
"""The greatest size of all certificates together, in bytes. They are one record, which each broker
reads at every change."""
NAME_CHARACTERS_MAX = 512
ISSUERS_MAX = 9
KEYS_MAX = 16
_ALGORITHMS = get_args(Algorithm)


def declare_client_authorities(
    turn: DecisionContext, request: DeclareClientAuthorities
) -> Answer | Refusal:
    if request.authorities == turn.image.security.authorities:
        return Done()
    if refusal := access_too_old(turn):
        return refusal
    if text := malformed_authorities(request.authorities):
        return Refusal(reason=Reason.InvalidRequest, message=text)
    turn.add(ClientAuthoritiesConfigured(cause="declared", authorities=request.authorities))
    return Done()


def malformed_authorities(authorities: tuple[ClientAuthority, ...]) -> str:
    """Return a sentence that says why the authorities cannot be committed, or an empty string if
    they can."""
    names = [one.name for one in authorities]
    if len(names) > AUTHORITIES_MAX or len(set(names)) < len(names):
        return (
            f"The LogCluster has {len(names)} CAs that sign clients' certificates; a cluster can "
            f"trust at most {AUTHORITIES_MAX}, each with its own name. Remove those that are too "
            "many or have the same name."
        )
    if sum(len(der) for one in authorities for der in one.certificates) > BYTES_MAX:
        return (
            "The CAs that sign clients' certificates have more than "
            f"{BYTES_MAX} bytes together, which is the limit; remove some."
        )
    for one in authorities:
        if not 0 < len(one.name) <= NAME_CHARACTERS_MAX or len(one.source) > NAME_CHARACTERS_MAX:
            return (
                f"The CA of clients' certificates that is named {one.name[:100]!r} has an invalid "
                f"name or source: each must have at most {NAME_CHARACTERS_MAX} characters, and the "
                "name at least one."
            )
        if not 0 < len(one.certificates) <= CERTIFICATES_MAX:
            return (
                f"The CA of clients' certificates that is named {one.name[:100]!r} (in "
                "spec.certificates.clients.externalCas) must have 1 to "
                f"{CERTIFICATES_MAX} certificates, not {len(one.certificates)}."
            )
    return ""


def declare_token_issuers(turn: DecisionContext, request: DeclareTokenIssuers) -> Answer | Refusal:
    if request.issuers == turn.image.security.issuers:
        return Done()
    if refusal := access_too_old(turn):
        return refusal
    names = [one.name for one in request.issuers]
    stated = [(one.login, one.issuer) for one in request.issuers]
    if len(names) > ISSUERS_MAX:
        return _no(
            f"The LogCluster has {len(names)} token issuers; at most {ISSUERS_MAX} are allowed."
        )
    if len(set(names)) < len(names) or len(set(stated)) < len(stated):
        return _no("Two token issuers have the same name or the same URL; remove one of them.")
    for issuer in request.issuers:
        if text := malformed_issuer(issuer):
            return _no(f"Token issuer {issuer.name[:100]} cannot be trusted: {text}")
    turn.add(TokenIssuersConfigured(cause="declared", issuers=request.issuers))
    return Done()


def malformed_issuer(issuer: TokenIssuer) -> str:
    """Return a sentence that says why the issuer cannot be trusted, or an empty string if it
    can."""
    texts = (issuer.name, issuer.issuer, issuer.user_claim, *issuer.audiences)
    if not all(0 < len(one) <= NAME_CHARACTERS_MAX for one in texts) or not issuer.audiences:
        return f"a name, an issuer or an audience must have 1 to {NAME_CHARACTERS_MAX} characters."
    if len(issuer.user_prefix) > NAME_CHARACTERS_MAX:
        return f"its user prefix has more than {NAME_CHARACTERS_MAX} characters, the most allowed."
    ids = [key.key_id for key in issuer.keys]
    if len(ids) > KEYS_MAX or len(set(ids)) < len(ids):
        return f"it must have at most {KEYS_MAX} keys, each with its own id."
    for key in issuer.keys:
        long = len(key.key_id) > NAME_CHARACTERS_MAX or len(key.public_key) > KEY_BYTES_MAX
        if long or key.algorithm not in _ALGORITHMS:
            return (
                f"its key with the id {key.key_id[:100]} is too long, or is for an unsupported "
                "algorithm."
            )
    return ""


def _no(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)
