"""Certificates as logins: names as Java writes them, and whose a certificate is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.security.client_certificates import (
    OWN_AUTHORITY,
    CertificateProof,
    CertificateRefusal,
    ClientAuthority,
    NamePart,
    ShownClient,
    UserCertificate,
    UserCertificates,
    anchor_mark,
    certificate_mark,
    distinguished_name,
    fingerprint,
    illegal_subject,
)
from plimsoll_core.security.scram import USER_NAME
from plimsoll_core.security.state import DeclaredUser, SecurityState, UserObject

OWN, CORP = b"own", b"corp"
CN, OU, ORG, COUNTRY = "2.5.4.3", "2.5.4.11", "2.5.4.10", "2.5.4.6"
MAIL = "1.2.840.113549.1.9.1"
ROW = UserCertificates(
    user="alice", owner="u", certificates=(UserCertificate(sha256="a1", not_after_ms=100),)
)
SECURITY = SecurityState(
    authorities=(
        ClientAuthority(name=OWN_AUTHORITY, certificates=(OWN,)),
        ClientAuthority(name="corp", certificates=(CORP,), source="ConfigMap ca"),
    )
).with_certificates(ROW)


def part(oid: str, text: str | None, der: bytes = b"") -> NamePart:
    return NamePart(oid, text, der)


# As new X500Principal(bytes).getName() of Java prints them.
NAMES = {
    "the last part is first": (
        [[part(COUNTRY, "DE")], [part(ORG, "Shop")], [part(CN, "orders")]],
        "CN=orders,O=Shop,C=DE",
    ),
    "several in one": ([[part(CN, "a"), part(OU, "b")]], "CN=a+OU=b"),
    "what means something is escaped": (
        [[part(CN, 'a,b=c+d<e>f#g;h"i\\j')]],
        'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j',
    ),
    "spaces at the ends": ([[part(CN, " a b ")]], "CN=\\ a b\\ "),
    "spaces alone": ([[part(CN, "  ")]], "CN=\\ \\ "),
    "other alphabets": ([[part(CN, "заказ")]], "CN=заказ"),
    "another attribute": (
        [[part(MAIL, "a@b", b"\x16\x03a@b")]],
        "1.2.840.113549.1.9.1=#1603614062",
    ),
}


@pytest.mark.parametrize("kind", NAMES)
def test_distinguished_name_is_written_as_java_writes_it(kind: str) -> None:
    parts, written = NAMES[kind]
    assert distinguished_name(parts) == written
    assert not illegal_subject(written)


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "a\u202eb", "\ud800", "a\u200bb"])
def test_name_with_what_cannot_be_seen_is_none(text: str) -> None:
    assert distinguished_name([[part(CN, text)]]) == ""


@pytest.mark.parametrize("name", ["", "alice", "*", "a=b", "CN", "system:serviceaccount:a:b"])
def test_what_is_no_distinguished_name_is_no_subject(name: str) -> None:
    assert illegal_subject(name)
    assert illegal_subject("CN=" + "x" * 238)


@given(st.text(max_size=40), st.sampled_from([CN, OU, MAIL]))
def test_user_names_never_collide_with_certificate_names(text: str, oid: str) -> None:
    name = distinguished_name([[part(oid, text, b"\x0c")]])
    assert USER_NAME.fullmatch(name) is None
    assert not name.startswith("system:")


def shown(sha256: str = "a1", anchor: bytes = OWN, **more: object) -> ShownClient:
    plain = ShownClient(sha256, fingerprint(anchor), "CN=alice", (), 100)
    return plain._replace(**more)


REFUSED = {
    "of nobody's": (shown(anchor=b"other"), CertificateRefusal.UNTRUSTED),
    "not resumed from what is known": (
        shown()._replace(anchor=""),
        CertificateRefusal.UNTRUSTED,
    ),
    "not committed": (shown("b2"), CertificateRefusal.NOT_COMMITTED),
    "ended": (shown(not_after_ms=10), CertificateRefusal.EXPIRED),
    "without a name": (shown("b2", CORP, subject=""), CertificateRefusal.NO_USER),
    "of a broker": (
        shown("b2", CORP, identities=("plimsoll://x/broker/1",)),
        CertificateRefusal.NO_CLIENT,
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_rejected_certificate_states_its_reason(kind: str) -> None:
    client, why = REFUSED[kind]
    assert SECURITY.judge_certificate(client, 10) is why


def test_own_certificate_maps_to_user_others_to_subject() -> None:
    own = SECURITY.judge_certificate(shown(subject="CN=bob"), 10)
    other = SECURITY.judge_certificate(shown("a1", CORP), 10)
    assert isinstance(own, CertificateProof)
    assert isinstance(other, CertificateProof)
    assert (own.user, other.user) == ("alice", "CN=alice")
    assert SECURITY.believes(own)
    assert SECURITY.believes(other)


def test_disabled_user_is_rejected_and_disbelieved() -> None:
    proof = SECURITY.judge_certificate(shown(), 10)
    assert isinstance(proof, CertificateProof)
    row = DeclaredUser(
        object=UserObject(namespace="n", name="a", uid="u"), user_name="alice", disabled=True
    )
    disabled = SecurityState(
        authorities=SECURITY.authorities, users=SECURITY.users.set("alice", row)
    ).with_certificates(ROW)
    assert disabled.judge_certificate(shown(), 10) is CertificateRefusal.DISABLED
    assert not disabled.believes(proof)


def test_certificate_login_lasts_while_authority_is_committed() -> None:
    own, corp = fingerprint(OWN), fingerprint(CORP)
    assert SECURITY.login_is_good("alice", certificate_mark("a1", own))
    assert not SECURITY.login_is_good("bob", certificate_mark("a1", own))
    assert not SECURITY.login_is_good("alice", certificate_mark("b2", own))
    assert SECURITY.login_is_good("CN=x", anchor_mark(corp))
    assert not SECURITY.login_is_good("CN=x", anchor_mark(own))
    gone = SECURITY.without_certificates("alice")
    assert not gone.login_is_good("alice", certificate_mark("a1", own))
    assert not gone.certificate_users
