"""Tokens at a broker's listener: who gets in with one, and how sessions end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_broker.security.secured import (
    SECURED,
    Closed,
    Connection,
    Secured,
    connected,
)
from tests.plimsoll_core.security.token_issuer import AnIssuer, bearer

from plimsoll_broker.security import authority as authorities
from plimsoll_broker.security.token_signatures import verified
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.errors import Code
from plimsoll_core.security.state import DeclaredUser, Mode, UserObject
from plimsoll_core.security.tokens import (
    INVALID_TOKEN,
    TokenIssuer,
    TokenRefusal,
)
from plimsoll_wire.api_versions import ApiKey

ISSUER = AnIssuer()
BAD = TokenRefusal.BAD_SIGNATURE
RSA = AnIssuer("https://id.example.test", "kafka-main", rsa=True, key_id="rsa-1")
TOKENS = Listener(name="pods", port=0, authentication=("ScramSha512", "ServiceAccount"))
ACCOUNT = "system:serviceaccount:shop:orders"
TOPICS = {"orders": 0, "payments": 0}
DISABLED = DeclaredUser(
    object=UserObject(namespace="shop", name="orders", uid="u"), user_name=ACCOUNT, disabled=True
)


# --- logins --------------------------------------------------------------------------------------


class TokenConnection(Connection):
    """A client that logs in by tokens."""

    async def show(self, token: str, version: int = 2) -> Any:
        found = await self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        assert found.error_code == 0, found
        return await self.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": bearer(token)})


@asynccontextmanager
async def a_client(server: Any):
    async with connected(server) as plain:
        yield TokenConnection(plain.reader, plain.writer)


def with_tokens(mode: Mode = Mode.OFF, issuer: TokenIssuer | None = None) -> Secured:
    secured = Secured(mode)
    believe(secured, issuer or ISSUER.committed())
    return secured


def believe(secured: Secured, *issuers: TokenIssuer) -> None:
    secured.change(r.TokenIssuersConfigured(cause="t", issuers=issuers))


def seconds_from_now(seconds: float) -> float:
    return time.time() + seconds


async def test_token_lets_in_and_says_for_how_long() -> None:
    async with with_tokens().served(TOKENS) as server, a_client(server) as client:
        told = await client.show(ISSUER.account_token())
        assert told.error_code == 0
        assert 590_000 < _ms(told.session_lifetime) <= 600_000
        assert await client.topics() == TOPICS


def _ms(lifetime: Any) -> float:
    return lifetime.total_seconds() * 1000 if hasattr(lifetime, "total_seconds") else lifetime


async def test_hostile_token_is_counted_answered_late_and_closed() -> None:
    secured = with_tokens()
    async with secured.served(TOKENS) as server, a_client(server) as client:
        told = await client.show(AnIssuer().account_token())
        assert (told.error_code, bytes(told.auth_bytes)) == (0, INVALID_TOKEN)
        began = asyncio.get_running_loop().time()
        told = await client.sasl(b"\x01")
        assert asyncio.get_running_loop().time() - began >= 0.1
        assert told.error_code == Code.SASL_AUTHENTICATION_FAILED
        await client.closed()
        assert server.stats.closed_for["login-failed"] == 1
    stats = secured.authority.stats
    assert (stats.failed_logins, stats.tokens_refused[BAD]) == (1, 1)


async def test_token_is_not_taken_where_only_passwords_are() -> None:
    async with with_tokens().served(SECURED) as server, a_client(server) as client:
        told = await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        assert told.error_code == Code.UNSUPPORTED_SASL_MECHANISM


async def test_other_issuers_token_is_refused_for_service_accounts() -> None:
    secured = with_tokens()
    believe(secured, ISSUER.committed(), RSA.committed("OAuth"))
    async with secured.served(TOKENS) as server:
        async with a_client(server) as client:
            told = await client.show(RSA.token("alice"))
            assert bytes(told.auth_bytes) == INVALID_TOKEN
        async with a_client(server) as client:
            assert (await client.show(ISSUER.account_token())).error_code == 0


async def test_requests_during_token_verification_close_the_connection() -> None:
    async with with_tokens().served(TOKENS) as server, a_client(server) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        body = bearer(ISSUER.account_token())
        client.send(ApiKey.SASL_AUTHENTICATE, 0, len(body).to_bytes(4, "big") + body)
        client.send(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")
        await client.closed()
        assert server.stats.closed_for["not-logged-in"] == 1


async def test_tokens_are_verified_off_loop_one_at_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return verified(*given)

    monkeypatch.setattr("plimsoll_broker.handlers.security.logins.verified", noted)
    async with (
        with_tokens().served(TOKENS) as server,
        a_client(server) as one,
        a_client(server) as other,
    ):
        both = [one.show(ISSUER.account_token()), other.show(ISSUER.account_token())]
        assert [told.error_code for told in await asyncio.gather(*both)] == [0, 0]
    assert len(threads) == 2
    assert threading.get_ident() not in threads


# --- how sessions end ----------------------------------------------------------------------------


def end_session(secured: Secured, connection: ConnectionState, within_s: float) -> None:
    """Now, not when its time is over: a busy machine would take part of that."""
    end = secured.authority._ends[connection]
    assert 0 < end.when() - asyncio.get_running_loop().time() <= within_s
    end._run()
    end.cancel()


async def test_session_ends_with_its_token() -> None:
    secured = with_tokens()
    async with secured.served(TOKENS) as server, a_client(server) as client:
        token = ISSUER.account_token(exp=seconds_from_now(500))
        assert _ms((await client.show(token)).session_lifetime) <= 500_000
        (connection,) = secured.authority._ends
        end_session(secured, connection, 500)
        assert expired(server)
        with pytest.raises(Closed):
            await client.topics()
        assert server.stats.closed_for["session-expired"] == 1


async def test_renewed_session_continues_and_silent_one_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorities, "EXPIRED_GRACE_MS", 200)
    secured = with_tokens()
    async with (
        secured.served(TOKENS) as server,
        a_client(server) as renewed,
        a_client(server) as silent,
    ):
        await silent.show(ISSUER.account_token())
        (quiet,) = secured.authority._ends
        await renewed.show(ISSUER.account_token())
        (_, first), (_, replaced) = secured.authority._ends.items()
        assert (await renewed.show(ISSUER.account_token())).error_code == 0
        assert [first.cancelled(), replaced.cancelled()] == [False, True]
        end_session(secured, quiet, 600)
        await silent.closed()
        assert server.stats.closed_for["session-expired"] == 1
        assert await renewed.topics() == TOPICS
        assert secured.authority.stats.cut_off == 1
    await until(lambda: not secured.authority._ends)


async def test_listener_with_session_limit_reauthenticates_passwords() -> None:
    listener, secured = replace(TOKENS, connections_max_reauth_ms=300_000), with_tokens()
    async with secured.served(listener) as server, a_client(server) as client:
        told = await client.log_in()
        assert 0 < _ms(told.session_lifetime) <= 300_000
        (connection,) = secured.authority._ends
        end_session(secured, connection, 300)
        assert expired(server)
        assert (await client.log_in()).error_code == 0
        assert await client.topics() == TOPICS
        end_session(secured, connection, 300)
        assert expired(server)
        with pytest.raises(Closed):
            await client.topics()


async def test_withdrawn_key_disconnects_only_its_users() -> None:
    secured = with_tokens()
    second = AnIssuer(key_id="key-2")
    both = (*ISSUER.committed().keys, *second.committed().keys)
    async with secured.served(TOKENS) as server, a_client(server) as old, a_client(server) as new:
        await old.show(ISSUER.account_token())
        believe(secured, replace(ISSUER.committed(), keys=both))
        assert (await new.show(second.account_token())).error_code == 0
        assert await old.topics() == TOPICS
        believe(secured, second.committed())
        assert server.stats.closed_for["revoked"] == 1  # in the same turn
        await old.closed()
        assert await new.topics() == TOPICS


async def test_disabled_account_is_disconnected_and_stays_out() -> None:
    secured = with_tokens()
    async with secured.served(TOKENS) as server, a_client(server) as client:
        await client.show(ISSUER.account_token())
        secured.change(r.UserDeclared(cause="t", user=DISABLED))
        await client.closed()
        async with a_client(server) as again:
            told = await again.show(ISSUER.account_token())
            assert bytes(told.auth_bytes) == INVALID_TOKEN
    assert secured.authority.stats.tokens_refused[TokenRefusal.DISABLED] == 1


async def test_key_withdrawn_during_verification_admits_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secured, loop = with_tokens(), asyncio.get_running_loop()

    def meanwhile(*given: Any) -> Any:
        asyncio.run_coroutine_threadsafe(withdrawn(), loop).result(30)
        return verified(*given)

    async def withdrawn() -> None:
        believe(secured)

    monkeypatch.setattr("plimsoll_broker.handlers.security.logins.verified", meanwhile)
    async with secured.served(TOKENS) as server, a_client(server) as client:
        told = await client.show(ISSUER.account_token())
        assert bytes(told.auth_bytes) == INVALID_TOKEN
    assert secured.authority.stats.tokens_refused[TokenRefusal.UNKNOWN_KEY] == 1


async def test_forwarded_requests_name_the_tokens_key() -> None:
    secured = with_tokens(Mode.ENFORCE)
    async with secured.served(TOKENS) as server, a_client(server) as client:
        await client.show(ISSUER.account_token())
        (session,) = list(server._open)
        rights = secured.authority.rights_of(session._connection)
        assert rights is not None
        behalf = rights.behalf
        assert behalf.login
        assert secured.authority.security.login_is_good(ACCOUNT, behalf.login)
        believe(secured)
        assert rights.behalf == behalf
        assert not secured.authority.security.login_is_good(ACCOUNT, behalf.login)


async def test_client_logging_in_again_is_no_stranger() -> None:
    async with with_tokens().served(TOKENS) as server, a_client(server) as client:
        await client.show(ISSUER.account_token())
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        (session,) = list(server._open)
        assert session.conduct(asyncio.get_running_loop().time()).silent < 5
        assert session._connection.let_in


@given(st.lists(st.binary(max_size=120) | st.just(b"\x01"), min_size=1, max_size=3))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_token_bytes_are_answered_or_closed(messages: list[bytes]) -> None:
    asyncio.run(_sent(messages))


async def _sent(messages: list[bytes]) -> None:
    secured = with_tokens()
    async with secured.served(TOKENS) as server, a_client(server) as client:
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        try:
            for message in messages:
                told = await client.sasl(message)
                assert told.error_code or bytes(told.auth_bytes) == INVALID_TOKEN
        except Closed:
            pass
        assert secured.authority.connections_of(ACCOUNT) == 0
        assert sum(secured.authority.stats.tokens_refused.values()) <= len(messages)


def expired(server: Any) -> bool:
    return all(session._connection.sasl.expired for session in server._open)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 a timer's turn, which nobody announces
            await asyncio.sleep(0.01)
