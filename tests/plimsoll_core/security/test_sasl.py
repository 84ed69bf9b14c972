"""Logins: who gets in, who does not, and that those who do not learn nothing."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.security.scram_client import ScramClient, a_credential

from plimsoll_core.errors import Code
from plimsoll_core.security import scram
from plimsoll_core.security.sasl import FAILED, LoginAnswer, LoginStage, SaslSession
from plimsoll_core.security.scram import PreviousKeys, ScramCredential, ScramMechanism

DISGUISE = b"d" * 32
NOW_MS = 1_000_000


class Login:
    """One connection of a client to a listener with both mechanisms."""

    def __init__(self, *credentials: ScramCredential) -> None:
        self.known = {(one.user, one.mechanism): one for one in credentials}
        self.session = SaslSession(scram.MECHANISMS)

    def sends(self, message: bytes, now_ms: int = NOW_MS) -> LoginAnswer:
        return self.session.authenticate(
            message, lambda u, m: self.known.get((u, m)), "c2VydmVy", DISGUISE, now_ms
        )

    def in_full(
        self,
        user: str = "alice",
        password: str = "secret",
        mechanism: ScramMechanism = "SCRAM-SHA-512",
        now_ms: int = NOW_MS,
    ) -> LoginAnswer:
        assert self.session.handshake(1, mechanism).code == 0
        client = ScramClient(user, password, mechanism)
        challenge = self.sends(client.first(), now_ms)
        assert challenge.code == 0
        told = self.sends(client.last(challenge.payload), now_ms)
        if told.logged_in:
            assert client.check(told.payload)
        return told


@pytest.mark.parametrize("mechanism", scram.MECHANISMS)
def test_login_with_right_password_succeeds_mutually(mechanism: ScramMechanism) -> None:
    login = Login(a_credential(mechanism=mechanism))
    told = login.in_full(mechanism=mechanism)
    assert told.logged_in is not None
    assert told.logged_in.principal == "User:alice"
    assert login.session.stage is LoginStage.AUTHENTICATED
    assert login.session.refuses(0) == ""


def test_login_example_matches_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = a_credential("user", "pencil", "SCRAM-SHA-256", salt)
    first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = scram.begin("SCRAM-SHA-256", first, lambda _: known, nonce, DISGUISE)
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proven = scram.end(challenge, final, NOW_MS)
    assert proven.server_final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_login_with_repeated_nonce_succeeds_as_on_kafka() -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    client = ScramClient("alice", "secret", "SCRAM-SHA-512")
    challenge = login.sends(client.first()).payload
    repeated = challenge.replace(b"r=", b"r=rOprNGfwEbeRWgbNEkqO", 1)
    last = client.last(repeated)
    signed = client.signed.replace(repeated, challenge, 1)
    last = client.proven(last, signed)
    assert login.sends(last).logged_in is not None


def test_login_with_another_servers_nonce_is_not_in() -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    client = ScramClient("alice", "secret", "SCRAM-SHA-512")
    challenge = login.sends(client.first()).payload
    other = challenge.replace(b"c2VydmVy", b"b3RoZXIh", 1)
    assert login.sends(client.last(other)).logged_in is None


def test_wrong_password_and_unknown_user_look_alike() -> None:
    wrong = Login(a_credential()).in_full(password="guess")
    unknown = Login(a_credential()).in_full(user="mallory", password="guess")
    assert wrong == unknown
    assert (wrong.code, wrong.message) == (Code.SASL_AUTHENTICATION_FAILED, FAILED)
    assert wrong.closes
    assert wrong.logged_in is None


def test_unknown_user_always_has_the_same_salt() -> None:
    def salt(user: str) -> bytes:
        login = Login()
        login.session.handshake(1, "SCRAM-SHA-512")
        told = login.sends(ScramClient(user, "x", "SCRAM-SHA-512").first()).payload
        found = re.search(rb"s=([^,]+)", told)
        assert found is not None
        return found[1]

    assert salt("mallory") == salt("mallory") != salt("trudy")


@given(st.binary(min_size=32, max_size=32))
def test_disguised_salts_look_like_kafka_tool_salts(random: bytes) -> None:
    """`new BigInteger(130, random).toString(Character.MAX_RADIX)`: the number, in base 36."""
    salt = scram.salt_of(random)
    assert re.fullmatch(rb"0|[1-9a-z][0-9a-z]{0,25}", salt)
    assert int(salt, 36) == int.from_bytes(random, "big") & ((1 << 130) - 1)


@pytest.mark.parametrize("credential", [None, a_credential()])
def test_unknown_user_challenge_takes_known_user_steps(
    credential: ScramCredential | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making a salt takes 30 microseconds, which can be seen from a pod."""
    made: list[bytes] = []
    real = scram.salt_of
    monkeypatch.setattr(scram, "salt_of", lambda random: made.append(random) or real(random))
    scram.begin("SCRAM-SHA-256", b"n,,n=alice,r=abc", lambda _: credential, "server", b"k")
    assert len(made) == 1


def test_salt_of_unknown_user_has_right_form() -> None:
    told = Login()
    told.session.handshake(1, "SCRAM-SHA-256")
    payload = told.sends(ScramClient("nobody", "x", "SCRAM-SHA-256").first()).payload
    found = re.search(rb"s=([^,]+),i=4096", payload)
    assert found is not None
    assert re.fullmatch(rb"[0-9a-z]{20,26}", base64.b64decode(found[1]))


def test_previous_password_is_valid_until_its_end() -> None:
    old, new = a_credential(password="old"), a_credential(password="new")
    previous = PreviousKeys(
        stored_key=old.stored_key, server_key=old.server_key, until_ms=NOW_MS + 1
    )
    both = replace(new, previous=previous)
    assert Login(both).in_full(password="new").logged_in
    assert Login(both).in_full(password="old").logged_in
    assert not Login(both).in_full(password="old", now_ms=NOW_MS + 1).logged_in
    assert Login(both).in_full(password="new", now_ms=NOW_MS + 1).logged_in


def test_password_change_during_login_rejects_old_password() -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    client = ScramClient("alice", "secret", "SCRAM-SHA-512")
    challenge = login.sends(client.first())
    del login.known["alice", "SCRAM-SHA-512"]
    assert login.sends(client.last(challenge.payload)).code == Code.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("key", [0, 1, 3, 19, 29, 51, 60, 1000])
def test_nothing_but_a_login_is_answered_before_it(key: int) -> None:
    assert Login().session.refuses(key) == "not-logged-in"


def test_login_that_never_ends_is_cut_off() -> None:
    session = Login().session
    assert [session.refuses(18) for _ in range(9)] == [""] * 8 + ["not-logged-in"]


def test_failed_login_ends_the_connection_whatever_comes_then() -> None:
    login = Login(a_credential())
    login.in_full(password="guess")
    assert login.session.refuses(18)
    assert login.session.handshake(1, "SCRAM-SHA-512").code == Code.ILLEGAL_SASL_STATE
    assert login.sends(b"n,,n=alice,r=x").code == Code.ILLEGAL_SASL_STATE


def test_handshake_version_0_is_refused() -> None:
    told = Login().session.handshake(0, "SCRAM-SHA-512")
    assert (told.code, bool(told.closes)) == (Code.ILLEGAL_SASL_STATE, True)


def test_handshake_unknown_mechanism_is_told_the_list() -> None:
    told = Login().session.handshake(1, "PLAIN")
    assert told.code == Code.UNSUPPORTED_SASL_MECHANISM
    assert told.mechanisms == scram.MECHANISMS


def test_authenticate_without_a_handshake_is_refused() -> None:
    assert Login().sends(b"n,,n=alice,r=x").code == Code.ILLEGAL_SASL_STATE


def test_reauthentication_requires_the_same_user() -> None:
    login = Login(a_credential(), a_credential("bob"))
    assert login.in_full().logged_in
    assert login.in_full().logged_in
    assert login.session.handshake(1, "SCRAM-SHA-256").code == Code.UNSUPPORTED_SASL_MECHANISM
    other = Login(a_credential(), a_credential("bob"))
    assert other.in_full().logged_in
    assert other.in_full("bob").code == Code.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=ali=ce,r=x",
        b"n,,n=alice",
        b"n,,m=ext,n=alice,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,n=\xff,r=x",
        b"n,,n=alice,r=" + b"x" * 5000,
    ],
)
def test_malformed_first_message_fails_like_wrong_password(first: bytes) -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    assert login.sends(first).code == Code.SASL_AUTHENTICATION_FAILED


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(first=st.binary(max_size=200), last=st.binary(max_size=200))
def test_any_bytes_are_answered_and_let_nobody_in(first: bytes, last: bytes) -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    for message in (first, last):
        told = login.sends(message)
        assert told.logged_in is None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_proof_with_any_byte_changed_lets_nobody_in(data: st.DataObject) -> None:
    login = Login(a_credential())
    login.session.handshake(1, "SCRAM-SHA-512")
    client = ScramClient("alice", "secret", "SCRAM-SHA-512")
    last = bytearray(client.last(login.sends(client.first()).payload))
    at = data.draw(st.integers(0, len(last) - 4))
    last[at] ^= data.draw(st.integers(1, 255))
    assert login.sends(bytes(last)).logged_in is None


def test_nothing_kept_of_a_password_is_printed() -> None:
    one = a_credential()
    assert "***" in repr(one)
    assert one.stored_key.hex() not in repr(one)
    assert repr(one.stored_key)[2:-1] not in repr(replace(one, previous=None))
