"""A listener with TLS: what it speaks, what it bounds, and how it gets another certificate."""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import struct
import subprocess

import pytest
import uvloop
from tests.plimsoll_broker.tls_listening import HOST, MIB, now_ms, s_client, tls_serving, until

from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_core.addresses import network_of
from plimsoll_net import handshakes, tls_connection, tls_transport
from plimsoll_operator.pki.authority import issue, new_authority
from plimsoll_wire.api_versions import ApiKey


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def harness(tmp_path):
    async with tls_serving(tmp_path) as made:
        yield made


async def answered(client, body=b"hello"):
    client.send(ApiKey.METADATA, 1, body)
    return await client.reply()


# --- what it speaks -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_listener_serves_clients_over_tls(harness, version):
    context = harness.trust(minimum_version=version, maximum_version=version)
    assert await answered(await harness.connect(context)) == (1, b"at once hello")


OLD = ("-cipher", "DEFAULT:@SECLEVEL=0")
REFUSED_OPTIONS = {
    "TLS 1.0": ("-tls1", *OLD),
    "TLS 1.1": ("-tls1_1", *OLD),
    "CBC": ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"),
    "no forward secrecy": ("-tls1_2", "-cipher", "AES128-GCM-SHA256"),
}


@pytest.mark.parametrize("options", REFUSED_OPTIONS.values(), ids=REFUSED_OPTIONS)
async def test_weak_versions_and_suites_are_refused(harness, options):
    printed = await s_client(harness.server.port, *options)
    assert "Cipher is (NONE)" in printed
    await until(lambda: harness.server.stats.closed_for[handshakes.FAILED] == 1)


@pytest.mark.parametrize("options", [("-tls1_2",), ("-tls1_3",)], ids=["1.2", "1.3"])
async def test_openssl_client_gets_forward_secrecy_without_compression(harness, options):
    printed = await s_client(harness.server.port, *options)
    assert "Cipher is (NONE)" not in printed
    assert "Compression: NONE" in printed
    suite = next(line for line in printed.splitlines() if "Cipher is" in line).split()[-1]
    assert suite.startswith(("ECDHE-", "TLS_"))
    assert any(kind in suite for kind in ("GCM", "CHACHA20"))


async def test_listener_that_wants_1_3_refuses_1_2(tmp_path):
    async with tls_serving(tmp_path, "1.3") as harness:
        assert "Cipher is (NONE)" in await s_client(harness.server.port, "-tls1_2")
        assert await answered(await harness.connect()) == (1, b"at once hello")


async def test_renegotiation_is_refused(harness):
    context = harness.trust(maximum_version=ssl.TLSVersion.TLSv1_2)
    assert await answered(await harness.connect(context)) == (1, b"at once hello")

    def renegotiate():
        command = ["openssl", "s_client", "-tls1_2", "-connect", f"{HOST}:{harness.server.port}"]
        done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=30, check=False)
        return (done.stdout + done.stderr).decode(errors="replace").lower()

    printed = await asyncio.to_thread(renegotiate)
    assert "no renegotiation" in printed or "renegotiation is not" in printed, printed


async def test_client_trusting_other_name_ends_handshake(harness):
    with pytest.raises(ssl.SSLCertVerificationError):
        await harness.connect(name="other.example.test")
    stranger = new_authority("stranger", now_ms())
    context = ssl.create_default_context(cadata=stranger.certificate.decode())
    with pytest.raises(ssl.SSLCertVerificationError):
        await harness.connect(context)
    assert await answered(await harness.connect()) == (1, b"at once hello")


async def test_keys_of_sessions_are_written_nowhere(tmp_path, monkeypatch):
    secrets = tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(secrets))
    async with tls_serving(tmp_path / "pki") as harness:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=harness.authority.certificate.decode())
        assert await answered(await harness.connect(context)) == (1, b"at once hello")
    assert not secrets.exists()


# --- large replies --------------------------------------------------------------------------------


async def test_large_messages_pass_whole_and_in_order(harness):
    client = await harness.connect()
    bodies = [os.urandom(size) for size in (3 * MIB, 10, 0, 700_001, 65_536, 5)]
    for number, body in enumerate(bodies):
        client.send(ApiKey.METADATA, number, body)
    for number, body in enumerate(bodies):
        assert await client.reply() == (number, b"at once " + body)
    await until(lambda: harness.memory.replies.used == 0)


async def test_reply_is_encrypted_in_pieces_of_a_turn(harness, monkeypatch):
    handed = []
    taken = tls_transport.TlsTransport._hand_over

    def noted(transport):
        before = transport._queued
        taken(transport)
        handed.append(before - transport._queued)

    monkeypatch.setattr(tls_transport.TlsTransport, "_hand_over", noted)
    client = await harness.connect()
    body = bytes(3 * MIB)
    assert await answered(client, body) == (1, b"at once " + body)
    assert max(handed) <= tls_transport.BYTES_A_TURN
    assert len(handed) >= 3 * MIB // tls_transport.BYTES_A_TURN


async def test_client_that_does_not_read_stops_being_served(harness):
    client = await harness.connect()
    client.writer.transport.pause_reading()
    body = bytes(MIB)

    async def send_all():
        for correlation_id in range(64):
            client.send(ApiKey.METADATA, correlation_id, body)
            await client.writer.drain()

    sending = asyncio.ensure_future(send_all())
    done, _ = await asyncio.wait([sending], timeout=3)
    assert not done, "the server stopped reading, so that this client cannot go on"
    sending.cancel()
    seen = len(harness.handlers.seen)
    assert seen < 64
    assert harness.memory.replies.used <= harness.memory.replies.limit
    other = await harness.connect()
    assert await answered(other) == (1, b"at once hello")
    client.writer.transport.resume_reading()
    for expected in range(seen - 1):
        assert (await client.reply())[0] == expected


async def test_connection_that_is_reset_gives_all_memory_back(harness):
    client = await harness.connect()
    client.writer.transport.pause_reading()
    for number in range(8):
        client.send(ApiKey.METADATA, number, bytes(MIB))
    await harness.handlers.until_seen(2)
    client.reset()
    await until(lambda: harness.server.connections == 0)
    assert harness.memory.replies.used == 0
    assert harness.memory.requests.used == 0


# --- certificates ---------------------------------------------------------------------------------


async def test_renewed_certificate_serves_new_connections_only(harness):
    before = await harness.connect()
    first = before.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    harness.renew()
    assert harness.certificate.look()
    after = await harness.connect()
    second = after.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert first != second
    assert await answered(before) == (1, b"at once hello")
    assert await answered(after) == (1, b"at once hello")
    assert not harness.certificate.look(), "it is read again only when it changes"


async def test_unusable_certificate_leaves_the_previous_one(harness):
    wrong = issue(harness.authority, ("localhost",), now_ms())
    harness.renew()
    (harness.directory / "..data" / "tls.key").write_bytes(wrong.key)
    assert not harness.certificate.look()
    assert "cannot be used" in harness.certificate.error
    assert await answered(await harness.connect()) == (1, b"at once hello")
    (harness.directory / "..data" / "tls.key").unlink()
    assert not harness.certificate.look()
    assert await answered(await harness.connect()) == (1, b"at once hello")
    harness.renew()
    assert harness.certificate.look()
    assert harness.certificate.error == ""


# --- bounds ---------------------------------------------------------------------------------------


def raw(harness, sent=b""):
    """A socket that has sent so much of a handshake, or of something else."""
    made = socket.create_connection((HOST, harness.server.port))
    made.sendall(sent)
    return made


def client_hello(harness):
    """The first flight of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = harness.trust().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_half_handshakes_end_by_themselves(harness, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 0.5)
    hello = client_hello(harness)
    held = [raw(harness, hello[:size]) for size in (0, 1, 5, len(hello) // 2, len(hello) - 1)]
    await until(lambda: harness.server.stats.closed_for[handshakes.TOO_SLOW] == len(held))
    queue = harness.server.handshakes
    assert queue.half_open == 0
    assert not queue._addresses
    # A busy machine may take longer for a whole one.
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 30.0)
    assert await answered(await harness.connect()) == (1, b"at once hello")
    for one in held:
        one.close()


async def test_half_handshakes_from_one_address_are_few(harness, monkeypatch):
    monkeypatch.setattr(handshakes, "HALF_OPEN_PER_ADDRESS_MAX", 4)
    held = [raw(harness) for _ in range(4)]
    queue = harness.server.handshakes
    await until(lambda: queue.half_open == 4)
    over = raw(harness)
    held[0].settimeout(10)
    assert await asyncio.to_thread(held[0].recv, 1) == b"", "the oldest makes room"
    assert harness.server.stats.closed_for[handshakes.TOO_MANY] == 1
    for one in (*held, over):
        one.close()
    await until(lambda: queue.half_open == 0)
    assert await answered(await harness.connect()) == (1, b"at once hello")


async def test_handshakes_run_few_at_a_time(harness, monkeypatch):
    monkeypatch.setattr(handshakes, "STEPS_A_TURN", 2)
    computed = []
    turn = handshakes.HandshakeQueue._turn

    def noted(queue):
        before = len(queue._due)
        turn(queue)
        computed.append(before - len(queue._due))

    monkeypatch.setattr(handshakes.HandshakeQueue, "_turn", noted)
    clients = await asyncio.gather(*(harness.connect() for _ in range(16)))
    for client in clients:
        assert await answered(client) == (1, b"at once hello")
    assert max(computed) <= 2


async def test_early_bytes_stay_in_the_kernel(harness, monkeypatch):
    """A stranger that floods during its handshake is read from once for each of its steps."""
    monkeypatch.setattr(handshakes, "STEPS_A_TURN", 0)
    flood = raw(harness)
    flood.setblocking(False)
    hello, sent = client_hello(harness), 0
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            sent += flood.send(hello + bytes(64 * 1024))
        await asyncio.sleep(0)
    (connection,) = harness.server.handshakes._half_open
    assert connection._incoming.pending <= tls_connection.AT_ONCE_BYTES < sent
    flood.close()


async def test_client_with_unsent_answers_is_not_read(harness):
    client = await harness.connect()
    assert await answered(client) == (1, b"at once hello")
    client.writer.transport.pause_reading()
    (session,) = harness.server._open
    connection = session._transport._connection
    connection.pause_writing()
    client.send(ApiKey.METADATA, 2, b"later")
    seen = len(harness.handlers.seen)
    await asyncio.sleep(0.2)
    assert len(harness.handlers.seen) == seen
    connection.resume_writing()
    await harness.handlers.until_seen(seen + 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_client_sending_after_goodbye_is_closed(harness, version):
    context = harness.trust(minimum_version=version, maximum_version=version)
    reader, writer = await asyncio.open_connection(HOST, harness.server.port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with asyncio.timeout(30):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(struct.pack(">ihhih", 15, ApiKey.METADATA, 1, 1, -1) + b"hello")
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        writer.write(outgoing.read() + b"and more")
        incoming.write(await reader.read())
        writer.close()
    assert tls.read(18)[4:8] == b"\x00\x00\x00\x01"
    await until(lambda: not harness.server.connections)


async def test_plaintext_client_is_counted_and_closed(harness):
    made = raw(harness, struct.pack(">ihhi", 10, 18, 0, 1) + b"\x00\x00")
    made.settimeout(10)
    assert await asyncio.to_thread(made.recv, 1) in (b"", None)
    assert harness.server.stats.closed_for[handshakes.NOT_TLS] == 1
    made.close()


async def test_garbage_instead_of_handshake_is_counted(harness):
    hello = client_hello(harness)
    dice = random.Random(11)
    count = 200
    for number in range(count):
        wrong = bytearray(hello)
        for _ in range(1 + number % 7):
            wrong[dice.randrange(len(wrong))] = dice.randrange(256)
        made = raw(harness, bytes(wrong[: dice.randrange(1, len(wrong) + 1)]))
        made.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0)
        made.close()
    stats = harness.server.stats
    ended = (handshakes.FAILED, handshakes.NOT_TLS, handshakes.TOO_SLOW)
    await until(lambda: sum(stats.closed_for[reason] for reason in ended) >= count)
    assert harness.server.handshakes.half_open == 0
    assert harness.server.connections == 0
    assert await answered(await harness.connect()) == (1, b"at once hello")


async def test_full_tls_listener_evicts_like_plain_one(tmp_path):
    async with tls_serving(tmp_path, limits=ListenerLimits(connections_max=2)) as harness:
        first = await harness.connect()
        assert await answered(first) == (1, b"at once hello")
        for _ in range(2):
            assert await answered(await harness.connect()) == (1, b"at once hello")
        assert harness.server.connections == 2
        assert harness.server.stats.closed_for["made-room"] == 1


async def test_stop_abandons_handshakes_and_closes_connections(tmp_path):
    async with tls_serving(tmp_path) as harness:
        held = raw(harness, client_hello(harness)[:20])
        client = await harness.connect()
        assert await answered(client) == (1, b"at once hello")
        await until(lambda: harness.server.handshakes.half_open == 1)
        await harness.server.stop()
        assert await client.closed() == b""
        held.settimeout(10)
        with pytest.raises((ConnectionError, AssertionError)):
            assert await asyncio.to_thread(held.recv, 1)
        held.close()


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_ipv6_neighbours_count_as_one_address(host, counted):
    assert network_of(host) == counted
