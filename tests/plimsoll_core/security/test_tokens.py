"""Tokens: whom they let in, and the many ways in which they let nobody in."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.security.token_issuer import AnIssuer, bearer

from plimsoll_core.errors import Code
from plimsoll_core.security.sasl import LoginAnswer, LoginStage, SaslSession, mechanisms_of
from plimsoll_core.security.tokens import (
    INVALID_TOKEN,
    LIFE_MAX_MS,
    OAUTHBEARER,
    SKEW_MS,
    TOKEN_BYTES_MAX,
    Bearer,
    TokenIssuer,
    TokenProof,
    TokenRefusal,
    bearer_of,
    candidates,
    judge,
)

ISSUER = AnIssuer()
COMMITTED = ISSUER.committed()
(KEY,) = COMMITTED.keys
CORP = AnIssuer("https://id.example.test", "kafka-main")
NOW_MS = int(time.time() * 1000)
# However long after the import a test runs.
ISSUER.clock = CORP.clock = lambda: NOW_MS / 1000
ACCOUNT = "system:serviceaccount:shop:orders"
KUBERNETES = {"namespace": "shop", "serviceaccount": {"name": "orders", "uid": "u"}}


def claims(**more: Any) -> dict[str, Any]:
    return ISSUER.claims(ACCOUNT, **{"kubernetes.io": KUBERNETES, **more})


def judged(
    said: dict[str, Any] | bytes, issuer: TokenIssuer = COMMITTED, wanted: str = ""
) -> TokenProof | TokenRefusal:
    payload = said if isinstance(said, bytes) else json.dumps(said).encode()
    return judge(payload, issuer, issuer.keys[0], wanted, NOW_MS)


# --- what a client sends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", Bearer("a.b.c", "")),
        (b"n,a=me,\x01auth=bearer  a.b.c\x01traceId=1\x01\x01", Bearer("a.b.c", "me")),
        (b"n,,\x01host=h\x01auth=Bearer a.b.c\x01\x01", Bearer("a.b.c", "")),
        (b"", TokenRefusal.MALFORMED),
        (b"n,,", TokenRefusal.MALFORMED),
        (b"y,,\x01auth=Bearer a.b.c\x01\x01", TokenRefusal.MALFORMED),
        (b"n,b=me,\x01auth=Bearer a.b.c\x01\x01", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Basic a.b.c\x01\x01", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Bearer a.b\x01\x01", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Bearer a.b.c.d\x01\x01", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Bearer a.b.c", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer a.b.c\x01\x01", TokenRefusal.MALFORMED),
        (b"n,,\x01auth=Bearer " + b"a" * TOKEN_BYTES_MAX, TokenRefusal.TOO_LARGE),
    ],
)
def test_first_message_is_parsed_per_rfc_7628(sent: bytes, found: Bearer | TokenRefusal) -> None:
    assert bearer_of(sent) == found


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_whatever_bytes_come_first_are_read_or_refused(sent: bytes) -> None:
    assert isinstance(bearer_of(sent), Bearer | TokenRefusal)


# --- what a token says ---------------------------------------------------------------------------


def test_service_account_token_names_account_and_expiry() -> None:
    said = claims()
    assert judged(said) == TokenProof(ACCOUNT, COMMITTED, KEY, said["exp"] * 1000)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "https://elsewhere"}, TokenRefusal.OTHER_ISSUER),
        ({"aud": "plimsoll:default/other"}, TokenRefusal.OTHER_AUDIENCE),
        ({"aud": []}, TokenRefusal.OTHER_AUDIENCE),
        ({"aud": None}, TokenRefusal.MALFORMED),
        ({"aud": {"plimsoll:default/main": 1}}, TokenRefusal.MALFORMED),
        ({"exp": None}, TokenRefusal.MALFORMED),
        ({"exp": "4102444800"}, TokenRefusal.MALFORMED),
        ({"exp": NOW_MS / 1000}, TokenRefusal.EXPIRED),
        ({"exp": -1}, TokenRefusal.EXPIRED),
        ({"exp": 4102444800}, TokenRefusal.GOOD_FOR_TOO_LONG),
        ({"exp": 1e300}, TokenRefusal.GOOD_FOR_TOO_LONG),
        ({"exp": 10**40}, TokenRefusal.GOOD_FOR_TOO_LONG),
        ({"nbf": (NOW_MS + SKEW_MS) / 1000 + 1}, TokenRefusal.NOT_YET_VALID),
        ({"iat": (NOW_MS + SKEW_MS) / 1000 + 1}, TokenRefusal.NOT_YET_VALID),
        ({"sub": None}, TokenRefusal.NO_USER),
        ({"sub": 7}, TokenRefusal.NO_USER),
        ({"sub": "alice"}, TokenRefusal.NO_USER),
        ({"sub": "system:serviceaccount:kube-system:orders"}, TokenRefusal.NO_USER),
        ({"kubernetes.io": None}, TokenRefusal.NO_USER),
        ({"kubernetes.io": {"namespace": "shop"}}, TokenRefusal.MALFORMED),
    ],
)
def test_token_that_says_anything_else_lets_nobody_in(
    changed: dict[str, Any], why: TokenRefusal
) -> None:
    assert judged(claims(**changed)) is why


def test_issuer_clock_skew_and_token_life_are_bounded() -> None:
    ahead = (NOW_MS + SKEW_MS) / 1000
    assert isinstance(judged(claims(nbf=ahead, iat=ahead)), TokenProof)
    assert isinstance(judged(claims(exp=(NOW_MS + LIFE_MAX_MS) / 1000)), TokenProof)


def test_account_with_invalid_kubernetes_name_is_rejected() -> None:
    for namespace, name in (("shop", "a:b"), ("shop", "x" * 250), ("Shop", "orders"), ("", "a")):
        account = {"namespace": namespace, "serviceaccount": {"name": name}}
        said = claims(sub=f"system:serviceaccount:{namespace}:{name}")
        assert judged({**said, "kubernetes.io": account}) is TokenRefusal.NO_USER


@pytest.mark.parametrize("payload", [b"", b"[]", b"1", b"{", b"[" * 9_000, b'{"a":' * 3_000])
def test_payload_that_is_no_object_lets_nobody_in(payload: bytes) -> None:
    assert judged(payload) is TokenRefusal.MALFORMED


def test_user_named_by_client_must_match_token() -> None:
    assert isinstance(judged(claims(), wanted=ACCOUNT), TokenProof)
    assert judged(claims(), wanted="admin") is TokenRefusal.NO_USER


def test_users_of_other_issuers_carry_its_prefix() -> None:
    corp = CORP.committed("OAuth", user_prefix="corp:")
    proof = judged(CORP.claims("alice"), corp)
    assert isinstance(proof, TokenProof)
    assert proof.user == "corp:alice"
    bare = replace(corp, user_prefix="", user_claim="email")
    proof = judged(CORP.claims("7", email="a@example.test"), bare)
    assert isinstance(proof, TokenProof)
    assert proof.user == "a@example.test"
    for name in (ACCOUNT, "ANONYMOUS", "a,b", "", "x" * 200, None):
        assert judged(CORP.claims("7", email=name), bare) is TokenRefusal.NO_USER


def test_key_is_found_by_its_id_only() -> None:
    corp = CORP.committed("OAuth")
    both = (COMMITTED, corp)
    assert [issuer for issuer, _ in candidates(both, KEY.key_id)] == [COMMITTED, corp]
    for wrong in ("", None, 1, "key-2", ["key-1"]):
        assert list(candidates(both, wrong)) == []


def test_issuer_stands_by_signature_while_unchanged() -> None:
    assert COMMITTED.still_says((COMMITTED,), KEY)
    new_key = replace(KEY, key_id="key-2")
    assert COMMITTED.still_says((replace(COMMITTED, keys=(new_key, KEY)),), KEY)
    assert not COMMITTED.still_says((replace(COMMITTED, keys=(new_key,)),), KEY)
    assert not COMMITTED.still_says((replace(COMMITTED, audiences=("other",)),), KEY)
    # Another key under the same id is another key.
    assert not COMMITTED.still_says((replace(COMMITTED, keys=CORP.committed().keys),), KEY)


# --- a connection's login ------------------------------------------------------------------------


class Login:
    """One connection to a listener with tokens and passwords."""

    def __init__(self, session_max_ms: int | None = None) -> None:
        self.session = SaslSession(mechanisms_of(("ServiceAccount", "ScramSha512")), session_max_ms)

    def sends(self, message: bytes) -> LoginAnswer:
        return self.session.authenticate(message, lambda _, __: None, "n", b"d" * 32, NOW_MS)

    def token(self, user: str = ACCOUNT, until_ms: int = NOW_MS + 60_000) -> LoginAnswer:
        """In full, with a token that was found good."""
        assert self.session.handshake(1, OAUTHBEARER).code == 0
        asked = self.sends(bearer("a.b.c"))
        assert asked.token == Bearer("a.b.c", "")
        assert self.session.stage is LoginStage.VERIFYING
        return self.session.judged(TokenProof(user, COMMITTED, KEY, until_ms), NOW_MS)


def test_listener_offers_what_it_is_declared_with() -> None:
    assert mechanisms_of(("ServiceAccount", "OAuth")) == (OAUTHBEARER,)
    assert mechanisms_of(("OAuth", "ScramSha256")) == ("SCRAM-SHA-256", OAUTHBEARER)
    assert mechanisms_of(("ScramSha512",)) == ("SCRAM-SHA-512",)


def test_token_login_lasts_for_token_or_listener_limit() -> None:
    login = Login()
    told = login.token()
    assert told.lifetime_ms == 60_000
    assert told.logged_in is not None
    assert told.logged_in.principal == f"User:{ACCOUNT}"
    assert login.session.refuses(0) == ""
    assert Login(session_max_ms=5_000).token().lifetime_ms == 5_000
    assert Login(session_max_ms=90_000).token().lifetime_ms == 60_000


def test_rejected_token_is_reported_per_rfc_7628() -> None:
    login = Login()
    login.session.handshake(1, OAUTHBEARER)
    login.sends(bearer("a.b.c"))
    told = login.session.judged(TokenRefusal.EXPIRED, NOW_MS)
    assert (told.code, told.payload, told.refused) == (0, INVALID_TOKEN, TokenRefusal.EXPIRED)
    assert login.session.refuses(0) == "not-logged-in"
    told = login.sends(b"\x01")
    assert told.code == Code.SASL_AUTHENTICATION_FAILED
    assert told.closes
    assert login.session.judged(TokenProof(ACCOUNT, COMMITTED, KEY, NOW_MS), NOW_MS).closes


def test_second_token_during_verification_ends_the_login() -> None:
    login = Login()
    login.session.handshake(1, OAUTHBEARER)
    login.sends(bearer("a.b.c"))
    assert login.sends(bearer("a.b.c")).code == Code.ILLEGAL_SASL_STATE
    told = login.session.judged(TokenProof(ACCOUNT, COMMITTED, KEY, NOW_MS + 60_000), NOW_MS)
    assert told.logged_in is None
    assert login.session.refuses(0) == "login-failed"


def test_ended_session_only_accepts_a_new_login() -> None:
    login = Login()
    login.token()
    login.session.expired = True
    assert login.session.refuses(0) == "session-expired"
    assert login.session.refuses(17) == ""
    assert login.token(until_ms=NOW_MS + 90_000).lifetime_ms == 90_000
    assert login.session.refuses(0) == ""


def test_reauthentication_requires_same_user_and_mechanism() -> None:
    login = Login()
    login.token()
    assert login.token("system:serviceaccount:shop:other").code == Code.SASL_AUTHENTICATION_FAILED
    login = Login()
    login.token()
    told = login.session.handshake(1, "SCRAM-SHA-512")
    assert told.code == Code.UNSUPPORTED_SASL_MECHANISM


@given(st.lists(st.binary(max_size=60) | st.just(bearer("a.b.c")), max_size=4))
@settings(max_examples=150, deadline=None)
def test_no_message_order_admits_without_verified_token(
    messages: list[bytes],
) -> None:
    login = Login()
    login.session.handshake(1, OAUTHBEARER)
    for message in messages:
        told = login.sends(message)
        assert told.logged_in is None
        if told.token is not None:
            login.session.judged(TokenRefusal.BAD_SIGNATURE, NOW_MS)
    assert login.session.refuses(0)
