"""Authorities and what they sign; when one is replaced, and by which steps."""

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_operator.pki.authority import (
    KEY_BYTES_MAX,
    LISTENER_DAYS,
    PEM_BYTES_MAX,
    KeyPair,
    Unreadable,
    authority_certificates,
    describe,
    issue,
    issue_inside,
    new_authority,
    signed_by,
    why_unusable,
)
from plimsoll_operator.pki.rotation import (
    AGAIN_MS,
    CLIENT_OVERLAP_MS,
    DAY_MS,
    OVERLAP_MS,
    Authorities,
    step,
)

NOW_MS = 1_800_000_000_000
NAMES = ("b-0.brokers.kafka.svc", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return new_authority("main listeners", NOW_MS)


# --- authorities and certificates -----------------------------------------------------------------


def test_certificate_has_names_and_two_thirds_life(
    authority: KeyPair,
) -> None:
    found = describe(issue(authority, NAMES, NOW_MS).certificate)
    assert found.names == frozenset(NAMES)
    assert found.validity.not_before_ms < NOW_MS
    assert found.validity.not_after_ms == NOW_MS + LISTENER_DAYS * DAY_MS
    left = found.validity.not_after_ms - found.validity.due_ms()
    assert left == pytest.approx(LISTENER_DAYS * DAY_MS / 3, rel=0.01)


def test_certificate_never_outlives_its_authority(authority: KeyPair) -> None:
    end = describe(authority.certificate).validity.not_after_ms
    late = issue(authority, NAMES, end - DAY_MS)
    assert describe(late.certificate).validity.not_after_ms == end


def test_openssl_accepts_certificate_for_servers_only(authority: KeyPair, tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(authority.certificate)
    (tmp_path / "leaf").write_bytes(issue(authority, NAMES, NOW_MS).certificate)
    for purpose, accepted in (("sslserver", True), ("sslclient", False)):
        command = ["openssl", "verify", "-x509_strict", "-attime", str(NOW_MS // 1000)]
        command += ["-purpose", purpose, "-CAfile", str(tmp_path / "ca"), str(tmp_path / "leaf")]
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
        assert (done.returncode == 0) == accepted, done


@pytest.mark.parametrize(
    "make",
    [
        ["ecparam", "-name", "secp112r1", "-genkey", "-noout"],  # no curve that is used
        ["genpkey", "-algorithm", "X25519"],  # it signs nothing
        ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],  # another's
    ],
    ids=["curve", "exchange", "rsa"],
)
def test_mismatched_key_is_reported_unusable(authority: KeyPair, make: list[str]) -> None:
    """Whoever may write a User's Secret chose it, and it ends no term."""
    made = subprocess.run(["openssl", *make], capture_output=True, timeout=30, check=True)
    leaf = issue(authority, NAMES, NOW_MS).certificate
    assert why_unusable(KeyPair(certificate=leaf, key=made.stdout))


def test_long_keys_and_chains_are_not_read(authority: KeyPair) -> None:
    pair = issue(authority, NAMES, NOW_MS)
    padded = replace(pair, key=pair.key + b"\n" * KEY_BYTES_MAX)
    assert "larger" in why_unusable(padded)
    with pytest.raises(Unreadable, match="larger"):
        authority_certificates(authority.certificate * (PEM_BYTES_MAX // 500))


def test_certificate_of_an_unknown_version_is_no_certificate(authority: KeyPair) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.certificate.decode())
    version = b"\xa0\x03\x02\x01"
    assert der.count(version + b"\x02") == 1
    odd = ssl.DER_cert_to_PEM_cert(der.replace(version + b"\x02", version + b"\x05")).encode()
    for read in (describe, authority_certificates):
        with pytest.raises(Unreadable):
            read(odd)
    assert why_unusable(KeyPair(certificate=odd, key=authority.key))
    assert not signed_by(odd, authority.certificate)


def test_authority_that_is_over_signs_nothing(authority: KeyPair) -> None:
    end = describe(authority.certificate).validity.not_after_ms
    with pytest.raises(Unreadable, match="expired"):
        issue(authority, NAMES, end + DAY_MS)
    # Inside nobody asks for times: whoever could show nothing would never hear of the next one.
    issue_inside(authority, "plimsoll://x/broker/1", end + DAY_MS)


def test_keys_are_never_shown(authority: KeyPair) -> None:
    authorities = Authorities(current=authority, since_ms=0)
    assert "PRIVATE" not in f"{authority!r} {authority} {authorities!r}"


def test_what_was_signed_by_another_is_told_apart(authority: KeyPair) -> None:
    other = new_authority("main listeners", NOW_MS)
    leaf = issue(other, NAMES, NOW_MS).certificate
    assert signed_by(leaf, other.certificate)
    assert not signed_by(leaf, authority.certificate)
    assert signed_by(leaf, authority.certificate + other.certificate)
    assert not signed_by(b"nothing", authority.certificate)


def test_unusable_pairs_are_refused_with_reason(authority: KeyPair) -> None:
    pair, other = issue(authority, NAMES, NOW_MS), issue(authority, NAMES, NOW_MS)
    assert why_unusable(pair) == ""
    assert "does not match the certificate" in why_unusable(replace(pair, key=other.key))
    assert "no readable, unencrypted PEM private key" in why_unusable(replace(pair, key=b"x"))
    assert "no readable PEM certificate" in why_unusable(replace(pair, certificate=b"\x00"))
    with pytest.raises(Unreadable):
        describe(b"")


def test_library_of_clients_reads_what_is_made(authority: KeyPair) -> None:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    assert context.get_ca_certs()[0]["subject"] == ((("commonName", "main listeners"),),)


# --- rotation -------------------------------------------------------------------------------------


def test_authority_is_announced_signs_and_stays_trusted() -> None:
    begun = step(None, "main", NOW_MS)
    due = describe(begun.current.certificate).validity.due_ms()
    assert step(begun, "main", due - 1) is begun
    announced = step(begun, "main", due)
    assert announced.announced is not None
    assert announced.current == begun.current, "it does not sign before clients know it"
    assert announced.announced.certificate in announced.trusted
    assert step(announced, "main", due + OVERLAP_MS - 1) is announced
    signing = step(announced, "main", due + OVERLAP_MS)
    assert signing.current == announced.announced
    assert begun.current.certificate in signing.trusted
    assert step(signing, "main", due + 2 * OVERLAP_MS - 1) is signing
    over = step(signing, "main", due + 2 * OVERLAP_MS)
    assert over.trusted == signing.current.certificate
    assert step(over, "main", due + 2 * OVERLAP_MS) is over


def test_every_rotation_step_keeps_signers_trusted() -> None:
    now_ms, known = NOW_MS, step(None, "main", NOW_MS)
    for _ in range(120):
        now_ms += 45 * DAY_MS
        after = step(known, "main", now_ms)
        assert after.current.certificate in after.trusted
        assert after.current.certificate in known.trusted, "nobody trusts what signs now"
        leaf_ms = LISTENER_DAYS * DAY_MS
        if after.current != known.current:
            assert known.current.certificate in after.trusted
            assert leaf_ms <= OVERLAP_MS, "what it signed ends before it is forgotten"
        known = after


@pytest.mark.parametrize("announced_before", [False, True])
def test_authority_expired_unattended_is_replaced(
    announced_before: bool,
) -> None:
    """It signed nothing for the 90 days that the next one was announced for."""
    known = step(None, "main", NOW_MS)
    validity = describe(known.current.certificate).validity
    if announced_before:
        known = step(known, "main", validity.not_after_ms - DAY_MS)
    after = step(known, "main", validity.not_after_ms)
    assert after.announced is None
    assert after.current in ([known.announced] if announced_before else [after.current])
    assert describe(after.current.certificate).validity.not_after_ms > validity.not_after_ms
    issue(after.current, NAMES, validity.not_after_ms)
    assert step(after, "main", validity.not_after_ms) is after


def test_announced_authority_that_expired_is_replaced() -> None:
    begun = step(None, "main", NOW_MS)
    announced = step(begun, "main", describe(begun.current.certificate).validity.due_ms())
    assert announced.announced is not None
    end_ms = describe(announced.announced.certificate).validity.not_after_ms
    after = step(announced, "main", end_ms)
    assert after.announced is None
    issue(after.current, NAMES, end_ms)


def test_former_authority_is_trusted_while_requested() -> None:
    begun = step(None, "main", NOW_MS)
    due = describe(begun.current.certificate).validity.due_ms()
    signing = step(step(begun, "main", due), "main", due + OVERLAP_MS)
    late_ms = signing.since_ms + CLIENT_OVERLAP_MS
    assert step(signing, "main", late_ms - 1, CLIENT_OVERLAP_MS) is signing
    assert step(signing, "main", late_ms, CLIENT_OVERLAP_MS).former == b""


# --- asked for ------------------------------------------------------------------------------------


def test_each_request_takes_one_rotation_step() -> None:
    begun = step(None, "main", NOW_MS)
    announced = step(begun, "main", NOW_MS + 1, asked="1")
    assert (announced.current, announced.since_ms) == (begun.current, NOW_MS + 1)
    assert announced.announced is not None
    assert step(announced, "main", NOW_MS + OVERLAP_MS, asked="1") is announced
    signing = step(announced, "main", NOW_MS + 1 + AGAIN_MS, asked="2")
    assert signing.current == announced.announced
    assert signing.trusted == signing.current.certificate + begun.current.certificate
    over = step(signing, "main", NOW_MS + 1 + 2 * AGAIN_MS, CLIENT_OVERLAP_MS, asked="3")
    assert over.trusted == signing.current.certificate
    assert step(over, "main", NOW_MS + DAY_MS, asked="3") is over
    again = step(over, "main", NOW_MS + DAY_MS, asked="1")
    assert again.announced is not None


def test_repeated_request_of_a_step_is_idempotent() -> None:
    """Also behind a step that was due by itself: brokers hear of each before the next."""
    begun = step(None, "main", NOW_MS)
    announced = step(begun, "main", NOW_MS, asked="1")
    noted = step(announced, "main", NOW_MS + AGAIN_MS - 1, asked="2")
    assert noted == replace(announced, served="2")
    assert step(noted, "main", NOW_MS + AGAIN_MS, asked="2") is noted
    due = describe(begun.current.certificate).validity.due_ms()
    by_itself = step(begun, "main", due, asked="1")
    assert by_itself.announced is not None
    assert (by_itself.current, by_itself.served) == (begun.current, "1")


def test_requested_steps_continue_unattended() -> None:
    announced = step(step(None, "main", NOW_MS), "main", NOW_MS, asked="1")
    signing = step(announced, "main", NOW_MS + OVERLAP_MS, asked="1")
    assert (signing.current, signing.served) == (announced.announced, "1")
    over = step(signing, "main", NOW_MS + 2 * OVERLAP_MS, asked="1")
    assert over.former == b""


def test_new_authority_serves_no_earlier_request() -> None:
    begun = step(None, "main", NOW_MS, asked="1")
    assert step(begun, "main", NOW_MS + DAY_MS, asked="1") is begun
