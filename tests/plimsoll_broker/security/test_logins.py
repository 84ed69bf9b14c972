"""Logins at a broker's listener: what is answered before one, whom it lets in, and how it ends."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.security.secured import OPEN, Closed, Secured, connected
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_core.cluster import records as r
from plimsoll_core.errors import Code
from plimsoll_core.security.sasl import FAILED
from plimsoll_core.security.scram import PreviousKeys
from plimsoll_core.security.state import DeclaredUser, Mode, UserObject
from plimsoll_wire.api_versions import SUPPORTED, ApiKey

BEFORE_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("key", sorted(set(SUPPORTED) - BEFORE_LOGIN), ids=lambda key: key.name)
async def test_request_before_login_closes_without_an_answer(
    key: ApiKey,
) -> None:
    secured = Secured(Mode.OFF)
    async with secured.served() as server, connected(server) as client:
        client.send(key, SUPPORTED[key].last, b"\0" * 64)
        with pytest.raises(Closed):
            await client.answer(key, SUPPORTED[key].last)
        assert server.stats.closed_for["not-logged-in"] == 1


async def test_login_succeeds_with_api_versions_before_and_after() -> None:
    async with Secured(Mode.OFF).served() as server, connected(server) as client:
        before = await client.ask(ApiKey.API_VERSIONS, 0, {})
        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= {
            one.api_key for one in before.api_keys
        }
        assert (await client.log_in()).error_code == 0
        assert (await client.ask(ApiKey.API_VERSIONS, 0, {})).error_code == 0
        assert await client.topics() == {"orders": 0, "payments": 0}


@pytest.mark.parametrize(("user", "password"), [("alice", "guess"), ("mallory", "secret")])
async def test_failed_login_is_answered_late_then_closed(user: str, password: str) -> None:
    secured = Secured()
    async with secured.served() as server, connected(server) as client:
        began = asyncio.get_running_loop().time()
        told = await client.log_in(user, password)
        assert asyncio.get_running_loop().time() - began >= 0.1
        assert (told.error_code, told.error_message) == (Code.SASL_AUTHENTICATION_FAILED, FAILED)
        await client.closed()
        assert server.stats.closed_for["login-failed"] == 1
        assert server.connections == 0
    assert secured.authority.stats.failed_logins == 1


async def test_requests_behind_failing_login_are_not_answered() -> None:
    secured = Secured(Mode.OFF)
    async with secured.served() as server, connected(server) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        client.send(ApiKey.SASL_AUTHENTICATE, 0, b"\0\0\0\4nope")
        client.send(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")
        told = await client.answer(ApiKey.SASL_AUTHENTICATE, 0)
        assert told.error_code == Code.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Closed):
            await client.answer(ApiKey.METADATA, 1)


async def test_handshake_with_unknown_mechanism_lists_known_ones() -> None:
    async with Secured().served() as server, connected(server) as client:
        told = await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert told.error_code == Code.UNSUPPORTED_SASL_MECHANISM
        assert set(told.mechanisms) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        await client.closed()


async def test_listener_without_login_refuses_a_handshake() -> None:
    async with Secured(Mode.OFF).served(OPEN) as server, connected(server) as client:
        assert await client.topics() == {"orders": 0, "payments": 0}
        told = await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})
        assert told.error_code == Code.ILLEGAL_SASL_STATE


async def test_stranger_may_send_no_large_frame() -> None:
    async with Secured().served() as server, connected(server) as client:
        client.writer.write((1024 * 1024).to_bytes(4, "big") + b"\0\x12\0\0" + b"\0" * 1000)
        await client.closed()
        assert server.stats.closed_for["frame-too-large"] == 1


async def test_client_late_to_log_in_is_disconnected() -> None:
    secured = Secured()
    async with secured.served() as server, connected(server) as client:
        await client.ask(ApiKey.API_VERSIONS, 0, {})
        (session,) = list(server._open)
        now = asyncio.get_running_loop().time()
        assert session.conduct(now + 40).silent >= 40
        assert not session.conduct(now).spoken
        await client.log_in()
        assert session.conduct(now + 40).spoken


# --- revocation ----------------------------------------------------------------------------------


async def test_removed_credential_disconnects_its_sessions_only() -> None:
    secured = Secured(Mode.OFF)
    async with (
        secured.served() as server,
        connected(server) as alice,
        connected(server) as bob,
    ):
        await alice.log_in()
        await bob.log_in("bob")
        secured.change(r.ScramCredentialRemoved(cause="t", user="alice", mechanism="SCRAM-SHA-512"))
        assert server.stats.closed_for["revoked"] == 1  # in the same turn
        await alice.closed()
        assert await bob.topics() == {"orders": 0, "payments": 0}


async def test_changed_password_disconnects_old_sessions() -> None:
    secured = Secured(Mode.OFF)
    async with secured.served() as server, connected(server) as alice:
        await alice.log_in()
        changed = a_credential(password="another")
        secured.change(r.ScramCredentialSet(cause="t", credential=changed))
        await alice.closed()
        async with connected(server) as again:
            assert (await again.log_in()).error_code == Code.SASL_AUTHENTICATION_FAILED
        async with connected(server) as again:
            assert (await again.log_in(password="another")).error_code == 0


async def test_previous_password_session_ends_with_its_time() -> None:
    secured = Secured(Mode.OFF)
    async with secured.served() as server, connected(server) as alice:
        await alice.log_in()
        old, new = a_credential(), a_credential(password="another")

        def rotate(until_ms: int) -> None:
            previous = PreviousKeys(
                stored_key=old.stored_key, server_key=old.server_key, until_ms=until_ms
            )
            credential = replace(new, previous=previous)
            secured.change(r.ScramCredentialSet(cause="t", credential=credential))

        rotate(wall_ms() + 3_600_000)
        assert await alice.topics() == {"orders": 0, "payments": 0}
        async with connected(server) as late, connected(server) as fresh:
            assert (await late.log_in()).error_code == 0
            assert (await fresh.log_in(password="another")).error_code == 0
            # Its end comes nearer when all are logged in, however long that took.
            until_ms = wall_ms() + 100
            rotate(until_ms)
            await alice.closed()
            await late.closed()
            assert wall_ms() >= until_ms
            assert await fresh.topics() == {"orders": 0, "payments": 0}


async def test_disabled_user_stays_out_until_enabled() -> None:
    secured = Secured(Mode.OFF)
    holder = UserObject(namespace="default", name="alice", uid="1")
    user = DeclaredUser(object=holder, user_name="alice", disabled=True)
    async with secured.served() as server, connected(server) as alice:
        await alice.log_in()
        secured.change(r.UserDeclared(cause="t", user=user))
        await alice.closed()
        async with connected(server) as again:
            assert (await again.log_in()).error_code == Code.SASL_AUTHENTICATION_FAILED
        enabled = DeclaredUser(object=holder, user_name="alice")
        secured.change(r.UserDeclared(cause="t", user=enabled))
        async with connected(server) as again:
            assert (await again.log_in()).error_code == 0


async def test_lost_connections_are_forgotten() -> None:
    secured = Secured(Mode.OFF)
    async with secured.served() as server:
        async with connected(server) as alice:
            await alice.log_in()
            assert secured.authority.connections_of("alice") == 1
        await server.stop()
        await asyncio.sleep(0)  # the transport says so in the next turn
        assert secured.authority.connections_of("alice") == 0
