"""Logins by tokens: trusted issuers, the client's message, and the claims of a verified token.

Pure: the broker verifies signatures with the keys that `candidates` yields, and before that only
the key id of a token is read. Issuers and their public keys are committed, so brokers send no
request. Source: RFC 7519, RFC 7628, KIP-255, KIP-768; `OAuthBearerClientInitialResponse` of Kafka;
projected ServiceAccount tokens of Kubernetes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple

import msgspec

from plimsoll_core.security.scram import illegal_user_name

TokenMechanism = Literal["OAUTHBEARER"]
OAUTHBEARER: TokenMechanism = "OAUTHBEARER"
TokenLogin = Literal["ServiceAccount", "OAuth"]
TOKEN_LOGINS: tuple[TokenLogin, ...] = ("OAuth", "ServiceAccount")
"""The kinds of token logins, as listeners name them."""
Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384"]

TOKEN_BYTES_MAX = 16 * 1024
KEY_BYTES_MAX = 1024
"""The most bytes of a public key. An RSA key with 4096 bits has 550 bytes."""
SKEW_MS = 30_000
"""The tolerated lead of an issuer's clock, in milliseconds. The end of a token's time is never
extended."""
LIFE_MAX_MS = 24 * 3600 * 1000
"""The longest validity of a token in ms; a token with a longer one is refused, so that a stolen
token is usable for a day at most."""
USER_CHARACTERS_MAX = 240
INVALID_TOKEN = b'{"status":"invalid_token"}'
"""The server's answer to an invalid token (RFC 7628). The client acknowledges it, and is then told
that the login failed."""

_TOKEN = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):([a-z0-9.-]{1,253})")


class TokenKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A public key of an issuer. `key_id`: the id by which a token names it; `algorithm`: the only
    signature algorithm accepted with it; `public_key`: a SubjectPublicKeyInfo (DER)."""

    key_id: str
    algorithm: Algorithm
    public_key: bytes


class TokenIssuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trusted issuer of tokens.

    `name`: by which objects refer to it. `login`: the kind of listener authentication that accepts
    its tokens. `issuer`, `audiences`: values that a token's claims must have. `user_claim`: the
    claim with the user's name, to which `user_prefix` is prepended (for ServiceAccounts `sub`,
    unchanged).
    """

    name: str
    login: TokenLogin
    issuer: str
    audiences: tuple[str, ...]
    user_claim: str = "sub"
    user_prefix: str = ""
    keys: tuple[TokenKey, ...] = ()

    def still_says(self, issuers: tuple[TokenIssuer, ...], key: TokenKey) -> bool:
        """Return True if `issuers` still has this issuer, unchanged apart from its keys, and with
        this key. Then a login by its token stays valid."""
        mine = msgspec.structs.replace(self, keys=())
        return any(
            msgspec.structs.replace(one, keys=()) == mine and key in one.keys for one in issuers
        )


def token_mark(issuer: TokenIssuer, key: TokenKey) -> bytes:
    """Return a mark that identifies logins by tokens of this issuer and key. It cannot be used to
    log in."""
    named_by = (issuer.name, issuer.login, issuer.issuer, issuer.audiences)
    named = (issuer.user_claim, issuer.user_prefix)
    by = (key.key_id, key.algorithm, key.public_key)
    return hashlib.sha256(msgspec.json.encode((named_by, named, by))).digest()[:16]


class TokenRefusal(Enum):
    """The reason to refuse a token; the values name it in metrics and the audit log."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    UNKNOWN_KEY = "unknown-key"
    BAD_SIGNATURE = "bad-signature"
    OTHER_ISSUER = "other-issuer"
    OTHER_AUDIENCE = "other-audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    GOOD_FOR_TOO_LONG = "good-for-too-long"
    NO_USER = "no-user"
    DISABLED = "disabled"


class Bearer(NamedTuple):
    """A token as a client sends it. `user`: the user that the message names; empty if it names
    none, and the token decides."""

    token: str
    user: str


class TokenProof(NamedTuple):
    """The user that a verified token proves, with its issuer and key, and the time until which the
    login is valid (wall clock)."""

    user: str
    issuer: TokenIssuer
    key: TokenKey
    until_ms: int


def bearer_of(message: bytes) -> Bearer | TokenRefusal:
    """Parse a client's first message, `n,a=user,^Aauth=Bearer …^A^A`. Return the refusal if it is
    malformed. Other key-value pairs are extensions, and ignored."""
    if len(message) > TOKEN_BYTES_MAX:
        return TokenRefusal.TOO_LARGE
    head, separator, rest = message.partition(b"\x01")
    binding, _, named = head.partition(b",")
    if not separator or binding != b"n" or not named.endswith(b",") or not rest.endswith(b"\x01"):
        return TokenRefusal.MALFORMED
    user = named[:-1]
    if user and not user.startswith(b"a="):
        return TokenRefusal.MALFORMED
    stated = [pair[5:] for pair in rest.split(b"\x01") if pair.startswith(b"auth=")]
    scheme, _, token = (stated[0] if len(stated) == 1 else b"").partition(b" ")
    if scheme.lower() != b"bearer" or _TOKEN.fullmatch(token := token.strip(b" ")) is None:
        return TokenRefusal.MALFORMED
    return Bearer(token.decode("ascii"), user[2:].decode("utf-8", "replace"))


def candidates(
    issuers: tuple[TokenIssuer, ...], key_id: object
) -> Iterator[tuple[TokenIssuer, TokenKey]]:
    """Yield the keys with the id `key_id`, each with its issuer. Each issuer has at most one such
    key."""
    for issuer in issuers:
        for key in issuer.keys:
            if key.key_id == key_id:
                yield issuer, key


# --- what a token says, once its signature was verified ------------------------------------------


class _ServiceAccount(msgspec.Struct):
    name: str


class _Kubernetes(msgspec.Struct):
    namespace: str
    serviceaccount: _ServiceAccount


class _Claims(msgspec.Struct):
    iss: str
    aud: str | tuple[str, ...]
    exp: float
    nbf: float | None = None
    iat: float | None = None
    kubernetes: _Kubernetes | None = msgspec.field(default=None, name="kubernetes.io")


def judge(
    payload: bytes, issuer: TokenIssuer, key: TokenKey, wanted: str, now_ms: int
) -> TokenProof | TokenRefusal:
    """Check the claims in `payload`, which are those of a token with a verified signature. Return
    the user that the token proves at `now_ms`, or the reason to refuse it. `wanted`: the user that
    the client named, or empty."""
    try:
        claims = msgspec.json.decode(payload, type=_Claims)
        named = msgspec.json.decode(payload, type=dict[str, Any]).get(issuer.user_claim)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError):
        return TokenRefusal.MALFORMED
    if claims.iss != issuer.issuer:
        return TokenRefusal.OTHER_ISSUER
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if not set(audiences) & set(issuer.audiences):
        return TokenRefusal.OTHER_AUDIENCE
    if refusal := _out_of_time(claims, now_ms):
        return refusal
    user = _user(issuer, claims, named)
    if user is None or (wanted and wanted != user):
        return TokenRefusal.NO_USER
    return TokenProof(user, issuer, key, int(claims.exp * 1000))


def _out_of_time(claims: _Claims, now_ms: int) -> TokenRefusal | None:
    if not claims.exp * 1000 > now_ms:
        return TokenRefusal.EXPIRED
    if not claims.exp * 1000 <= now_ms + LIFE_MAX_MS + SKEW_MS:
        return TokenRefusal.GOOD_FOR_TOO_LONG
    for begins in (claims.nbf, claims.iat):
        if begins is not None and not begins * 1000 <= now_ms + SKEW_MS:
            return TokenRefusal.NOT_YET_VALID
    return None


def _user(issuer: TokenIssuer, claims: _Claims, named: object) -> str | None:
    """Return the user that the token names, or None if no user of that name may log in."""
    if not isinstance(named, str):
        return None
    if issuer.login == "OAuth":
        user = issuer.user_prefix + named
        return None if illegal_user_name(user) else user
    found = claims.kubernetes
    if found is None or named != account_user(found.namespace, found.serviceaccount.name):
        return None
    return None if illegal_account(named) else named


def account_user(namespace: str, name: str) -> str:
    """Return the user name of a ServiceAccount, as Kubernetes forms it."""
    return f"system:serviceaccount:{namespace}:{name}"


def illegal_account(user: str) -> bool:
    """Return True if the user name is not that of a ServiceAccount, or is too long."""
    return len(user) > USER_CHARACTERS_MAX or _ACCOUNT.fullmatch(user) is None
