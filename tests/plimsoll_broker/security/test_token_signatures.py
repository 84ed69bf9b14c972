"""Signatures of tokens: which are verified, and hostile tokens of every kind."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.security.token_issuer import KEY_ID, AnIssuer, raw

from plimsoll_broker.security.token_signatures import verified
from plimsoll_core.security.tokens import Bearer, TokenIssuer, TokenProof, TokenRefusal

ISSUER = AnIssuer()
RSA = AnIssuer("https://id.example.test", "kafka-main", rsa=True, key_id="rsa-1")
ACCOUNT = "system:serviceaccount:shop:orders"
BAD = TokenRefusal.BAD_SIGNATURE
TWO_KEY_IDS = b'{"kid":"key-1","kid":"x","alg":"ES256"}'


def check(token: str, *issuers: TokenIssuer) -> TokenProof | TokenRefusal:
    known = issuers or (ISSUER.committed(), RSA.committed("OAuth"))
    return verified(Bearer(token, ""), known, int(time.time() * 1000))


def test_tokens_of_both_kinds_of_keys_are_verified() -> None:
    for token, user in ((ISSUER.account_token(), ACCOUNT), (RSA.token("alice"), "alice")):
        proof = check(token)
        assert isinstance(proof, TokenProof), proof
        assert proof.user == user


def hostile_tokens() -> dict[str, tuple[str, TokenRefusal]]:
    """By what is wrong with them."""
    account = {"namespace": "shop", "serviceaccount": {"name": "orders", "uid": "u"}}
    said = ISSUER.claims(ACCOUNT, **{"kubernetes.io": account})
    good = ISSUER.signed(said)
    head, body, signature = good.split(".")
    other = AnIssuer()  # another key, under the same id
    pem = RSA.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    hs256 = _hs256({"alg": "HS256", "kid": "rsa-1"}, RSA.claims("alice"), pem)
    stranger = generate_private_key(SECP384R1())
    own_key = {**other.key_set()["keys"][0]}
    return {
        "no algorithm": (f"{raw({'alg': 'none', 'kid': KEY_ID})}.{body}.AA", BAD),
        "no algorithm, no signature": (f"{raw({'alg': 'none', 'kid': KEY_ID})}.{body}.", BAD),
        "the public key as a secret": (hs256, BAD),
        "the other kind's algorithm": (f"{raw({'alg': 'RS256', 'kid': KEY_ID})}.{body}.AA", BAD),
        "another curve": (jwt.encode(said, stranger, "ES384", {"kid": KEY_ID}), BAD),
        "another's key": (other.signed(said), BAD),
        "a key of its own in the header": (
            other.signed(said, {"kid": KEY_ID, "jwk": own_key}),
            BAD,
        ),
        "a key at an address": (
            other.signed(said, {"kid": KEY_ID, "jku": "http://127.0.0.1:1/"}),
            BAD,
        ),
        "an extension that must be known": (
            ISSUER.signed(said, {"kid": KEY_ID, "crit": ["exp"], "exp": 1}),
            TokenRefusal.MALFORMED,
        ),
        "a payload apart": (ISSUER.signed(said, {"kid": KEY_ID, "b64": False}), BAD),
        "an unknown key": (ISSUER.signed(said, {"kid": "nobody's"}), TokenRefusal.UNKNOWN_KEY),
        "no key": (ISSUER.signed(said, {}), TokenRefusal.UNKNOWN_KEY),
        "a key that is a path": (
            ISSUER.signed(said, {"kid": "../../etc/passwd"}),
            TokenRefusal.UNKNOWN_KEY,
        ),
        "another payload": (f"{head}.{raw({**said, 'sub': 'admin'})}.{signature}", BAD),
        "half a signature": (f"{head}.{body}.{signature[:40]}", BAD),
        "a signature of zeros": (f"{head}.{body}.{raw(bytes(64))}", BAD),
        "a header of nothing": (f"{raw(b'')}.{body}.{signature}", TokenRefusal.MALFORMED),
        "a header that is a list": (f"{raw([1])}.{body}.{signature}", TokenRefusal.MALFORMED),
        "a header that is a number": (f"{raw(1)}.{body}.{signature}", TokenRefusal.MALFORMED),
        "a header without end": (f"{raw(b'[' * 9000)}.{body}.{signature}", TokenRefusal.MALFORMED),
        "a key id that is a number": (
            f"{raw({'alg': 'ES256', 'kid': 1})}.{body}.{signature}",
            TokenRefusal.MALFORMED,
        ),
        "two key ids": (
            f"{raw(TWO_KEY_IDS)}.{body}.{signature}",
            TokenRefusal.UNKNOWN_KEY,
        ),
        "an end in the past": (ISSUER.account_token(exp=1), TokenRefusal.EXPIRED),
        "an end in a century": (
            ISSUER.account_token(exp=4_102_444_800),
            TokenRefusal.GOOD_FOR_TOO_LONG,
        ),
        "another issuer's name": (
            ISSUER.account_token(iss="https://elsewhere"),
            TokenRefusal.OTHER_ISSUER,
        ),
        "another audience": (
            ISSUER.account_token(aud=["https://kubernetes.default.svc"]),
            TokenRefusal.OTHER_AUDIENCE,
        ),
    }


def _hs256(header: dict[str, Any], said: dict[str, Any], secret: bytes) -> str:
    signed = f"{raw(header)}.{raw(said)}"
    return f"{signed}.{raw(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize("wrong", sorted(hostile_tokens()))
def test_hostile_token_lets_nobody_in_and_says_why(wrong: str) -> None:
    token, why = hostile_tokens()[wrong]
    assert check(token) is why


def test_committed_key_that_is_none_lets_nobody_in() -> None:
    key = replace(ISSUER.committed().keys[0], public_key=b"no key")
    assert check(ISSUER.account_token(), replace(ISSUER.committed(), keys=(key,))) is BAD


def test_key_of_one_issuer_signs_for_no_other() -> None:
    corp = AnIssuer("https://id.example.test", "kafka-main")  # the same id
    known = (corp.committed("OAuth"), ISSUER.committed())
    assert isinstance(check(ISSUER.account_token(), *known), TokenProof)
    assert check(corp.account_token(iss=ISSUER.issuer, aud=ISSUER.audience), *known) is (
        TokenRefusal.OTHER_ISSUER
    )


@pytest.mark.parametrize("order", [1, -1])
def test_issuers_sharing_a_key_admit_own_users(order: int) -> None:
    one, two = (AnIssuer(f"https://id.example.test/{name}", "kafka-main") for name in "ab")
    two.key = one.key
    pair = (one.committed("OAuth", name="a"), two.committed("OAuth", name="b"))
    other = AnIssuer("https://id.example.test/c", "kafka-main").committed("OAuth", name="c")
    known = (*pair, other)[::order]
    for issuer, name in ((one, "a"), (two, "b")):
        proof = check(issuer.token("alice"), *known)
        assert isinstance(proof, TokenProof), proof
        assert proof.issuer.name == name
        assert check(issuer.token("alice", aud="other"), *known) is TokenRefusal.OTHER_AUDIENCE
    assert check(one.token("alice", iss="https://c"), *known) is TokenRefusal.OTHER_ISSUER


_PART = st.binary(max_size=80).map(raw) | st.sampled_from(ISSUER.account_token().split("."))


@given(st.lists(_PART, min_size=3, max_size=3), st.integers(0, 200), st.binary(max_size=2))
@settings(max_examples=200, deadline=None)
def test_token_of_any_parts_admits_signed_user_only(parts: list[str], at: int, bits: bytes) -> None:
    token = ".".join(parts)
    spoilt = token[:at] + base64.urlsafe_b64encode(bits).decode().rstrip("=") + token[at:]
    for one in (token, spoilt):
        found = check(one)
        assert isinstance(found, TokenRefusal) or found.user == ACCOUNT
