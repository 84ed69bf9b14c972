"""Certificates at a broker's listener: who gets in with one, as whom, and until when."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.plimsoll_broker.security.client_certificates import (
    CLUSTER,
    DAY,
    Certified,
    a_pair,
    certified,
    other,
    own,
)
from tests.plimsoll_broker.security.secured import Closed, a_rule
from tests.plimsoll_broker.tls_listening import HOST, now_ms, until

from plimsoll_broker.security import authority as authorities
from plimsoll_core.cluster import records as r
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.client_certificates import CertificateRefusal
from plimsoll_core.security.inside import broker_identity, controller_identity
from plimsoll_net import handshakes
from plimsoll_operator.pki.authority import KeyPair, issue, issue_inside, new_authority
from plimsoll_wire.api_versions import ApiKey

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
BESIDE = ("ScramSha512", "Tls")
READS = a_rule(AclOperation.READ)
SUBJECT = ((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Shop, Inc."))
ORDERS = "CN=orders,O=Shop\\, Inc.,C=DE"


@pytest.fixture
async def tls(tmp_path: Path):
    async with certified(tmp_path, READS) as made:
        yield made


async def refused(made: Certified, pair: KeyPair | None, version: ssl.TLSVersion) -> None:
    """In the handshake, or, as clients of TLS 1.3 hear it, by the first answer."""
    with pytest.raises((ssl.SSLError, ConnectionError, Closed)):
        async with made.client(pair, version) as client:
            await client.topics()


# --- who gets in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_certificate_authenticates_user_with_rights_of_name(
    tls: Certified, version: ssl.TLSVersion
) -> None:
    alice, carol = tls.a_user(), tls.a_user("carol")
    async with tls.client(alice, version) as client:
        assert await client.topics() == {"orders": 0}
    async with tls.client(carol, version) as client:
        assert await client.topics() == {}
        denied = Code.TOPIC_AUTHORIZATION_FAILED
        assert await client.topics("orders") == {"orders": denied}
    assert tls.secured.authority.stats.logins == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_client_without_certificate_is_refused_when_required(
    tls: Certified, version: ssl.TLSVersion
) -> None:
    await refused(tls, None, version)
    await until(lambda: tls.server.stats.closed_for[handshakes.FAILED] == 1)


async def test_certificate_needs_no_sasl_and_is_refused_it(tls: Certified) -> None:
    async with tls.client(tls.a_user()) as client:
        told = await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})
        assert told.error_code == Code.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("version", VERSIONS)
async def test_beside_passwords_a_certificate_may_be_left_out(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    async with certified(tmp_path, READS, authentication=BESIDE) as made:
        async with made.client(None, version) as client:
            await client.log_in()
            assert await client.topics() == {"orders": 0}
        async with made.client(None, version) as client:
            with pytest.raises(Closed):
                await client.topics()
        async with made.client(made.a_user(), version) as client:
            assert await client.topics() == {"orders": 0}
        # Who shows one that is not believed is not let in by a password either.
        await refused(made, a_pair(new_authority("stranger", now_ms())), version)


async def test_certificate_is_not_requested_for_password_listeners(tmp_path: Path) -> None:
    async with certified(tmp_path, authentication=("ScramSha512",)) as made:
        pair = made.a_user()
        async with made.client(pair) as client:
            with pytest.raises(Closed):
                await client.topics()


# --- who does not --------------------------------------------------------------------------------


def inside_of(made: Certified) -> KeyPair:
    internal = new_authority("internal", now_ms())
    return issue_inside(internal, controller_identity(CLUSTER), now_ms())


STRANGERS = {
    "signed by itself": lambda made: a_pair(None),
    "of an authority of the same name": lambda made: a_pair(
        new_authority("test clients", now_ms())
    ),
    "of the listeners' authority": lambda made: issue(made.servers_authority, ("alice",), now_ms()),
    "of the internal authority": inside_of,
    "for servers": lambda made: a_pair(made.authority, usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    "for signing code": lambda made: a_pair(
        made.authority, usages=(ExtendedKeyUsageOID.CODE_SIGNING,)
    ),
    "expired": lambda made: a_pair(made.authority, begins=-2 * DAY, ends=-DAY),
    "not yet valid": lambda made: a_pair(made.authority, begins=DAY, ends=2 * DAY),
    "signed by a user's": lambda made: a_pair(made.a_user()),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", STRANGERS)
async def test_bad_certificate_ends_handshake_with_counted_alert(
    tls: Certified, kind: str, version: ssl.TLSVersion
) -> None:
    pair = STRANGERS[kind](tls)
    with pytest.raises(ssl.SSLError, match=r"alert|ALERT"):
        async with tls.client(pair, version) as client:
            await client.reader.read(1)
    await until(lambda: tls.server.stats.closed_for[handshakes.FAILED] == 1)
    assert tls.secured.authority.stats.logins == 0


REFUSED_NAMES = {
    "another user's common name": (((NameOID.COMMON_NAME, "alice"),), ()),
    "two common names": (((NameOID.COMMON_NAME, "bob"), (NameOID.COMMON_NAME, "alice")), ()),
    "everybody": (((NameOID.COMMON_NAME, "*"),), ()),
    "another user's identity": (
        ((NameOID.COMMON_NAME, "x"),),
        (f"plimsoll://{CLUSTER}/user/alice/uid",),
    ),
}


@pytest.mark.parametrize("kind", REFUSED_NAMES)
async def test_uncommitted_certificate_is_refused_whatever_its_name(
    tls: Certified, kind: str
) -> None:
    subject, uris = REFUSED_NAMES[kind]
    tls.a_user()
    await refused(tls, a_pair(tls.authority, subject, uris=uris), VERSIONS[1])
    stats = tls.secured.authority.stats
    await until(lambda: stats.certificates_refused[CertificateRefusal.NOT_COMMITTED] == 1)
    assert tls.server.stats.closed_for[handshakes.REFUSED] == 1
    assert stats.logins == 0


# --- other authorities ---------------------------------------------------------------------------


async def test_certificate_of_other_authority_uses_distinguished_name(
    tmp_path: Path,
) -> None:
    corporate = new_authority("corporate", now_ms())
    rule = a_rule(AclOperation.READ, principal=f"User:{ORDERS}")
    async with certified(tmp_path, rule, READS) as made:
        await made.believe(own(made.authority), other("corp", corporate))
        pair = a_pair(corporate, (*SUBJECT, (NameOID.COMMON_NAME, "orders")))
        async with made.client(pair) as client:
            assert await client.topics() == {"orders": 0}
        # alice is a user, and no other authority's certificate is hers.
        async with made.client(a_pair(corporate)) as client:
            assert await client.topics() == {}
        made.disable(ORDERS)
        await refused(made, pair, VERSIONS[1])


NO_NAMES = {
    "empty": (),
    "a zero": ((NameOID.COMMON_NAME, "alice\0.example"),),
    "written from right to left": ((NameOID.COMMON_NAME, "a\u202eecila"),),
    "very long": tuple((NameOID.ORGANIZATIONAL_UNIT_NAME, "x" * 60) for _ in range(5)),
}


@pytest.mark.parametrize("kind", NO_NAMES)
async def test_certificate_of_other_authority_needs_usable_name(tls: Certified, kind: str) -> None:
    corporate = new_authority("corporate", now_ms())
    await tls.believe(own(tls.authority), other("corp", corporate))
    await refused(tls, a_pair(corporate, NO_NAMES[kind]), VERSIONS[1])
    counts = tls.secured.authority.stats.certificates_refused
    await until(lambda: counts[CertificateRefusal.NO_USER] == 1)


async def test_broker_name_from_other_authority_is_refused(
    tls: Certified,
) -> None:
    corporate = new_authority("corporate", now_ms())
    await tls.believe(own(tls.authority), other("corp", corporate))
    pair = a_pair(corporate, uris=(broker_identity(CLUSTER, 1),))
    await refused(tls, pair, VERSIONS[1])
    counts = tls.secured.authority.stats.certificates_refused
    await until(lambda: counts[CertificateRefusal.NO_CLIENT] == 1)


async def test_certificate_chain_ends_at_the_trusted_authority(
    tls: Certified,
) -> None:
    root = a_pair(None, ((NameOID.COMMON_NAME, "root"),), usages=None, signs=True)
    between = a_pair(root, ((NameOID.COMMON_NAME, "between"),), usages=None, signs=True)
    leaf = a_pair(between)
    chain = KeyPair(certificate=leaf.certificate + between.certificate, key=leaf.key)
    await tls.believe(own(tls.authority), other("corp", root))
    async with tls.client(chain) as client:
        assert await client.topics() == {}
        await refused(tls, leaf, VERSIONS[1])
        await tls.believe(own(tls.authority))
        await client.closed()


# --- until when ----------------------------------------------------------------------------------


async def test_disabled_user_is_disconnected_at_once(tls: Certified) -> None:
    pair = tls.a_user()
    async with tls.client(pair) as client:
        assert await client.topics() == {"orders": 0}
        tls.disable("alice")
        assert tls.secured.authority.stats.cut_off == 1
        await client.closed()
    await refused(tls, pair, VERSIONS[1])


async def test_removed_user_is_disconnected_at_once(tls: Certified) -> None:
    pair = tls.a_user()
    async with tls.client(pair) as client:
        assert await client.topics() == {"orders": 0}
        tls.secured.change(r.UserCertificatesRemoved(cause="t", user="alice"))
        await client.closed()
    assert tls.server.stats.closed_for["revoked"] == 1


async def test_former_certificate_is_valid_while_committed(tls: Certified) -> None:
    former, newest = tls.a_user(), tls.unknown()
    async with tls.client(former) as client:
        tls.commit("alice", newest, former)
        for pair in (former, newest):
            async with tls.client(pair) as another:
                assert await another.topics() == {"orders": 0}
        tls.commit("alice", newest)
        await client.closed()
    await refused(tls, former, VERSIONS[1])


async def test_withdrawn_authority_disconnects_and_refuses_its_users(
    tls: Certified,
) -> None:
    pair, following = tls.a_user(), new_authority("following", now_ms())
    async with tls.client(pair) as client:
        assert await client.topics() == {"orders": 0}
        # The next one is announced: nobody is cut off.
        await tls.believe(own(tls.authority, following))
        assert await client.topics() == {"orders": 0}
        await tls.believe(own(following))
        await client.closed()
    with pytest.raises(ssl.SSLError, match=r"alert|ALERT"):
        async with tls.client(pair) as client:
            await client.reader.read(1)


async def test_session_ends_with_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corporate = new_authority("corporate", now_ms())
    async with certified(tmp_path, READS) as made:
        await made.believe(own(made.authority), other("corp", corporate))
        async with made.client(a_pair(corporate, ends=timedelta(days=1))) as client:
            assert await client.topics() == {}
            # The clock of the broker goes on: what is left of a session is found anew.
            (identities,) = made.secured.authority._logged_in.values()
            ((connection, identity),) = list(identities.items())
            assert identity.until_ms is not None
            late_ms = identity.until_ms + 1
            monkeypatch.setattr(authorities, "_wall_ms", lambda: late_ms)
            made.secured.authority._end_later(connection, identity)
            await client.closed()
        assert made.server.stats.closed_for["certificate-expired"] == 1


async def test_resumed_tls_1_2_session_is_judged_again(tls: Certified) -> None:
    pair = tls.a_user()
    context = tls.context(pair, VERSIONS[0])
    context.options |= ssl.OP_NO_TICKET

    def connect(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
        import socket

        with (
            socket.create_connection((HOST, tls.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=HOST, session=session) as made,
        ):
            made.settimeout(30)
            made.send(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00")
            try:
                heard = made.recv(64)
            except OSError:
                heard = b""
            return made.session, bool(made.session_reused), heard

    session, _, heard = await asyncio.to_thread(connect, None)
    assert heard
    session, reused, heard = await asyncio.to_thread(connect, session)
    assert (reused, bool(heard)) == (True, True)
    tls.secured.change(r.UserCertificatesRemoved(cause="t", user="alice"))
    _, reused, heard = await asyncio.to_thread(connect, session)
    assert (reused, heard) == (True, b"")


async def test_change_that_is_passed_on_names_the_certificate(tls: Certified) -> None:
    pair = tls.a_user()
    async with tls.client(pair) as client:
        assert await client.topics() == {"orders": 0}
        authority = tls.secured.authority
        ((connection, _),) = list(authority._logged_in["alice"].items())
        mark = connection.login
        assert mark
        assert authority.security.login_is_good("alice", mark)
        tls.commit("alice", tls.unknown())
        assert not authority.security.login_is_good("alice", mark)
