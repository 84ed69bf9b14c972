"""SaslHandshake and SaslAuthenticate: a connection's login, which `security.sasl` decides.

A login that fails is answered late, and then the connection is closed.  What was wrong is told to
nobody but the audit log's reader, and there only that it failed.  Source: KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time

from plimsoll_broker.security.audit_log import AuditEvent
from plimsoll_broker.security.authority import Authority
from plimsoll_broker.server.dispatch import (
    Handler,
    Reply,
    RequestContext,
)
from plimsoll_core.errors import Code
from plimsoll_core.security.sasl import LoginAnswer
from plimsoll_core.security.scram import NONCE_BYTES
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

FAILED_AFTER_S = 0.1
"""Kafka's connection.failed.authentication.delay.ms."""

NOT_HERE = LoginAnswer(Code.ILLEGAL_SASL_STATE)
"""On a listener that asks nobody for a name."""


def login_handlers(authority: Authority) -> dict[ApiKey, Handler]:
    """Of listeners that ask for a login."""
    return {
        ApiKey.SASL_HANDSHAKE: Handshake(authority),
        ApiKey.SASL_AUTHENTICATE: Authenticate(authority),
    }


class Handshake:
    """`__call__` is the route's handler."""

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
    """`__call__` is the route's handler."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    def __call__(self, context: RequestContext) -> Reply | asyncio.Future[Reply | None]:
        session, authority = context.connection.sasl, self._authority
        told = NOT_HERE
        request = decode_request(ApiKey.SASL_AUTHENTICATE, context.api_version, context.body)
        if session is not None:
            told = session.authenticate(
                bytes(request.auth_bytes),
                authority.credential,
                base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode(),
                authority.disguise,
                time.time_ns() // 1_000_000,
            )
        if told.logged_in is not None:
            authority.logged_in(context.connection, told.logged_in)
            _note(authority, context, "LoggedIn", told.logged_in.mechanism)
        values = {
            "error_code": told.code,
            "error_message": told.message,
            "auth_bytes": told.payload,
            "session_lifetime": 0,
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
    context.connection.ending = told.closes
    loop = asyncio.get_running_loop()
    later: asyncio.Future[Reply | None] = loop.create_future()
    timer = loop.call_later(FAILED_AFTER_S, _tell, later, reply)
    later.add_done_callback(lambda _: timer.cancel())
    return later


def _tell(later: asyncio.Future[Reply | None], reply: bytes) -> None:
    if not later.done():
        later.set_result(reply)


def _note(authority: Authority, context: RequestContext, what: str, mechanism: str = "") -> None:
    connection = context.connection
    event = AuditEvent(
        decision=what,
        principal=connection.principal if what == "LoggedIn" else "",
        host=connection.host,
        listener=connection.listener_name,
        reason=mechanism,
    )
    authority.audit.note(event)
