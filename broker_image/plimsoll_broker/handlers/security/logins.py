"""SaslHandshake and SaslAuthenticate: a connection's login, which `security.sasl` decides.

A failed login is answered after a delay, and then the connection is closed. The client is not told
what was wrong with a password or a token. The reason that a token was refused, and the user name
that the client claimed, appear in the audit log only. Source: KIP-43, KIP-152, KIP-255, KIP-368.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from functools import partial

from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.security.audit_log import CLAIMED_MAX, AuditEvent
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.security.token_signatures import verified
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.security.sasl import LoginAnswer, SaslSession
from plimsoll_core.security.scram import NONCE_BYTES
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

FAILED_AFTER_S = 0.1
"""The delay in seconds before the answer to a failed login: the default of Kafka's
connection.failed.authentication.delay.ms."""

NOT_HERE = LoginAnswer(Code.ILLEGAL_SASL_STATE)
"""The answer to a login request on a listener that requires no login."""


def login_handlers(authority: Authority, aside: Aside) -> dict[ApiKey, Handler]:
    """Return the handlers of the login APIs, for listeners that require a login."""
    return {
        ApiKey.SASL_HANDSHAKE: Handshake(authority),
        ApiKey.SASL_AUTHENTICATE: Authenticate(authority, aside),
    }


class Handshake:
    """The handler of SaslHandshake; `__call__` serves a request."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        session = context.connection.sasl
        told = NOT_HERE
        request = decode_request(ApiKey.SASL_HANDSHAKE, context.api_version, context.body)
        if session is not None:
            told = session.handshake(context.api_version, request.mechanism)
        values = {"error_code": told.code, "mechanisms": told.mechanisms}
        reply = encode_response(ApiKey.SASL_HANDSHAKE, context.api_version, values)
        return _answered(self._authority, context, told, reply)


class Authenticate:
    """The handler of SaslAuthenticate; `__call__` serves a request. Tokens are verified in a
    thread, when it is the turn of the client's address; each connection has one token at a time in
    verification."""

    def __init__(self, authority: Authority, aside: Aside) -> None:
        self._authority = authority
        self._aside = aside

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        session, authority = context.connection.sasl, self._authority
        request = decode_request(ApiKey.SASL_AUTHENTICATE, context.api_version, context.body)
        if session is None:
            return self._tell(context, NOT_HERE)
        session.session_max_ms = context.connection.listener.connections_max_reauth_ms
        told = session.authenticate(
            bytes(request.auth_bytes),
            authority.credential,
            base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode(),
            authority.disguise,
            _wall_ms(),
        )
        if told.token is not None:
            return asyncio.ensure_future(self._verify(context, session, told))
        return self._tell(context, told)

    async def _verify(
        self, context: RequestContext, session: SaslSession, asked: LoginAnswer
    ) -> Reply | None:
        assert asked.token is not None, "there is one to verify"
        issuers = self._authority.issuers_of(context.connection.listener.authentication)
        proof = await self._aside.do(partial(verified, asked.token, issuers, _wall_ms()))
        # Changes committed meanwhile count.
        proof = self._authority.still_good(proof)
        told = self._tell(context, session.judged(proof, _wall_ms()))
        return await told if isinstance(told, asyncio.Future) else told

    def _tell(
        self, context: RequestContext, told: LoginAnswer
    ) -> Reply | asyncio.Future[Reply | None]:
        authority = self._authority
        if told.logged_in is not None:
            authority.logged_in(context.connection, told.logged_in)
            _note(authority, context, "LoggedIn", told.logged_in.mechanism)
        if told.refused is not None:
            authority.stats.tokens_refused[told.refused] += 1
            _note(authority, context, "TokenRefused", told.refused.value)
        values = {
            "error_code": told.code,
            "error_message": told.message,
            "auth_bytes": told.payload,
            "session_lifetime": told.lifetime_ms,
        }
        reply = encode_response(ApiKey.SASL_AUTHENTICATE, context.api_version, values)
        return _answered(authority, context, told, reply)


def _answered(
    authority: Authority, context: RequestContext, told: LoginAnswer, reply: bytes
) -> Reply | asyncio.Future[Reply | None]:
    if not told.closes:
        return reply
    authority.stats.failed_logins += 1
    _note(authority, context, "LoginFailed")
    context.connection.ends(told.closes)
    loop = asyncio.get_running_loop()
    later: asyncio.Future[Reply | None] = loop.create_future()
    timer = loop.call_later(FAILED_AFTER_S, _tell, later, reply)
    later.add_done_callback(lambda _: timer.cancel())
    return later


def _tell(later: asyncio.Future[Reply | None], reply: bytes) -> None:
    if not later.done():
        later.set_result(reply)


def _note(authority: Authority, context: RequestContext, what: str, reason: str = "") -> None:
    connection, session = context.connection, context.connection.sasl
    proven = what == "LoggedIn"
    event = AuditEvent(
        decision=what,
        principal=connection.principal if proven else "",
        host=connection.host,
        listener=connection.listener_name,
        reason=reason,
        claimed="" if proven or session is None else session.claimed[:CLAIMED_MAX],
    )
    authority.audit.note(event)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
