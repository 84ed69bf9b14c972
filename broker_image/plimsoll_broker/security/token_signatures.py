"""Verifies that a token was signed by a trusted issuer. Run in a thread, one token at a time.

PyJWT parses the token and checks its signature, with the one algorithm of the key;
`security.tokens` judges the claims. Key references in the token's header are not followed.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from jwt import PyJWTError
from jwt.api_jws import PyJWS

from plimsoll_core.security.tokens import (
    Bearer,
    TokenIssuer,
    TokenProof,
    TokenRefusal,
    candidates,
    judge,
)

_UNREADABLE = (PyJWTError, ValueError, TypeError, KeyError, RecursionError)
"""Exceptions that PyJWT and cryptography raise for an invalid token or key."""
_JWS = PyJWS()


def verified(
    bearer: Bearer, issuers: tuple[TokenIssuer, ...], now_ms: int
) -> TokenProof | TokenRefusal:
    """Verify a token's signature with the keys of these issuers, then check its claims at `now_ms`
    (ms since 1970). Return the proof of the token's user, or the reason for refusal: that of the
    key with a valid signature; without one BAD_SIGNATURE if a key was tried, else UNKNOWN_KEY."""
    try:
        key_id = _JWS.get_unverified_header(bearer.token).get("kid")
    except _UNREADABLE:
        return TokenRefusal.MALFORMED
    refusal = TokenRefusal.UNKNOWN_KEY
    for issuer, key in candidates(issuers, key_id):
        try:
            public_key = _loaded(key.public_key)
            payload = _JWS.decode(bearer.token, public_key, algorithms=[key.algorithm])
        except _UNREADABLE:
            if refusal is TokenRefusal.UNKNOWN_KEY:
                refusal = TokenRefusal.BAD_SIGNATURE
            continue
        found = judge(payload, issuer, key, bearer.user, now_ms)
        if found is not TokenRefusal.OTHER_ISSUER:
            return found
        refusal = found  # several issuers may sign with one key: try the next
    return refusal


@lru_cache(maxsize=256)
def _loaded(public_key: bytes) -> RSAPublicKey | EllipticCurvePublicKey:
    """Return the public key that is encoded in DER; cached. Raises ValueError if it is of a type
    that no accepted algorithm uses."""
    found = load_der_public_key(public_key)
    if not isinstance(found, RSAPublicKey | EllipticCurvePublicKey):
        raise ValueError("the public key is neither an RSA nor an elliptic-curve key")
    return found
