"""Commits the issuers of trusted tokens, with their keys.  Called for DeclareTokenIssuers.

One record states all issuers and keys, and brokers verify tokens by it, without a request to the
issuer. A key that is no longer published is left out of the next record, and clients that logged in
by it are cut off.
"""

from __future__ import annotations

from typing import get_args

from plimsoll_core.cluster.records import TokenIssuersConfigured
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.security.security_version import too_old
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.messages.security import DeclareTokenIssuers
from plimsoll_core.security.tokens import KEY_BYTES_MAX, Algorithm, TokenIssuer

ISSUERS_MAX = 9
KEYS_MAX = 16
NAME_CHARACTERS_MAX = 512
_ALGORITHMS = get_args(Algorithm)


def declare_token_issuers(turn: DecisionContext, request: DeclareTokenIssuers) -> Answer | Refusal:
    if request.issuers == turn.image.security.issuers:
        return Done()
    if refusal := too_old(turn):
        return refusal
    names = [one.name for one in request.issuers]
    stated = [(one.login, one.issuer) for one in request.issuers]
    if len(names) > ISSUERS_MAX:
        return _no(f"A cluster can trust at most {ISSUERS_MAX} token issuers.")
    if len(set(names)) < len(names) or len(set(stated)) < len(stated):
        return _no("Each token issuer must be named once.")
    for issuer in request.issuers:
        if text := malformed(issuer):
            return _no(f"Issuer {issuer.name[:100]}: {text}")
    turn.add(TokenIssuersConfigured(cause="declared", issuers=request.issuers))
    return Done()


def malformed(issuer: TokenIssuer) -> str:
    """Return a sentence that says why the issuer cannot be trusted, or "" if it can."""
    texts = (issuer.name, issuer.issuer, issuer.user_claim, *issuer.audiences)
    if not all(0 < len(one) <= NAME_CHARACTERS_MAX for one in texts) or not issuer.audiences:
        return f"a name, an issuer or an audience must have 1 to {NAME_CHARACTERS_MAX} characters."
    if len(issuer.user_prefix) > NAME_CHARACTERS_MAX:
        return f"its user prefix can have at most {NAME_CHARACTERS_MAX} characters."
    ids = [key.key_id for key in issuer.keys]
    if len(ids) > KEYS_MAX or len(set(ids)) < len(ids):
        return f"it can have at most {KEYS_MAX} keys, each with its own id."
    for key in issuer.keys:
        long = len(key.key_id) > NAME_CHARACTERS_MAX or len(key.public_key) > KEY_BYTES_MAX
        if long or key.algorithm not in _ALGORITHMS:
            return f"the key {key.key_id[:100]} is too long, or for an algorithm not known here."
    return ""


def _no(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)
