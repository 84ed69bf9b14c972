"""Certificates of any bytes in a handshake, and to the broker's own reading: counted closes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_broker.security.client_certificates import (
    CLUSTER,
    Certified,
    a_pair,
    certified,
    der,
    own,
)
from tests.plimsoll_broker.tls_listening import HOST, now_ms, until

from plimsoll_broker.security.audit_log import AuditLog
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.security.certificate_logins import CertificateLogins
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.security.client_certificates import CertificateRefusal
from plimsoll_core.security.state import SecurityState
from plimsoll_net import handshakes
from plimsoll_net.handshakes import PeerChain
from plimsoll_operator.pki.authority import KeyPair, new_authority

AUTHORITY = new_authority("clients", 1_800_000_000_000)
GOOD = der(a_pair(AUTHORITY, uris=("urn:a",)).certificate)
ALERT = b"\x15\x03"


@pytest.fixture
async def tls(tmp_path: Path):
    async with certified(tmp_path) as made:
        yield made


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1))
def test_any_certificate_is_judged_and_none_admitted(
    changes: list[tuple[int, int]],
) -> None:
    spoilt = bytearray(GOOD)
    for place, byte in changes:
        spoilt[place] = byte
    security = SecurityState(authorities=(own(AUTHORITY),))
    image = ClusterImage(cluster_id=CLUSTER, security=security)
    authority = Authority(image, AuditLog(0))
    logins = CertificateLogins(authority)
    anchor = der(AUTHORITY.certificate)
    authority.audit.note = lambda _: None  # type: ignore[method-assign]
    for certificate in (bytes(spoilt), bytes(spoilt[: len(spoilt) // 2]), b""):
        proof, why = logins.judge(PeerChain(certificate, anchor), "h", "tls")
        assert (proof, why) == (None, handshakes.REFUSED)
    known = CertificateRefusal.UNREADABLE, CertificateRefusal.NOT_COMMITTED
    assert sum(authority.stats.certificates_refused[one] for one in known) == 3


async def spoilt_handshake(made: Certified, pair: KeyPair, change: bytes) -> bytes:
    """One of TLS 1.2, in which certificates are not encrypted: some bytes of ours are changed on
    their way.  What the listener answers last."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = made.context(pair, ssl.TLSVersion.TLSv1_2)
    client = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    reader, writer = await asyncio.open_connection(HOST, made.port)
    last = b""
    mine = der(pair.certificate)
    async with asyncio.timeout(30):
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            sent = outgoing.read()
            if mine in sent:
                place = sent.index(mine) + 40
                sent = sent[:place] + change + sent[place + len(change) :]
            writer.write(sent)
            heard = await reader.read(65536)
            if not heard:
                break
            last = heard
            incoming.write(heard)
    writer.transport.abort()
    return last


async def test_spoilt_certificates_end_handshakes_with_an_alert(tls: Certified) -> None:
    pair = tls.a_user()
    changes = [b"\xff" * 8, b"\x30\x84\xff\xff\xff\xff", bytes(64), b"\x80" * 3]
    for change in changes:
        assert ALERT in await spoilt_handshake(tls, pair, change)
    await until(lambda: tls.server.stats.closed_for[handshakes.FAILED] == len(changes))
    assert tls.server.handshakes is not None
    assert tls.server.handshakes.half_open == 0
    async with tls.client(pair) as client:
        assert await client.topics() == {}


async def test_huge_chain_ends_its_handshake_and_is_counted(tls: Certified) -> None:
    pair, stranger = tls.a_user(), new_authority("stranger", now_ms())
    names = tuple(f"urn:{'x' * 60_000}{number}" for number in range(2))
    many = a_pair(stranger, uris=names).certificate * 2
    chain = KeyPair(certificate=pair.certificate + many, key=pair.key)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with tls.client(chain, version) as client:
                await client.reader.read(1)
    await until(lambda: tls.server.stats.closed_for[handshakes.FAILED] == 2)
