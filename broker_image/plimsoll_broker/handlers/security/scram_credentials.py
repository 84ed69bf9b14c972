"""DescribeUserScramCredentials and AlterUserScramCredentials: SCRAM users of the cluster.

A client sends its salted password. The broker derives the stored keys, so the controller and the
metadata log never see the salted password. Source: KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import forward_security
from plimsoll_broker.handlers.long_work import things
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import AlterScramCredentials, ScramAltered, ScramDeletion
from plimsoll_core.security.scram import (
    MECHANISM_NUMBERS,
    ScramCredential,
    ScramMechanism,
    key_bytes,
    keys_of,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

_BY_NUMBER: dict[int, ScramMechanism] = {n: name for name, n in MECHANISM_NUMBERS.items()}


def describe_scram(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        credentials = view.image.security.credentials
        answer = partial(_all_described, request, context.api_version, credentials)
        return await view.aside.some(many + len(credentials), answer)

    return handle


def _all_described(request: Any, version: int, credentials: Mapping[Any, ScramCredential]) -> bytes:
    """Encode the response with the mechanisms and iterations of all users. `credentials`: the
    committed credentials, by user and mechanism."""
    known: dict[str, list[ScramCredential]] = {}
    for (user, _), credential in sorted(credentials.items()):
        known.setdefault(user, []).append(credential)
    asked = list(known) if not request.users else [one.name for one in request.users]
    times = Counter(asked)
    results = [_described(user, known.get(user), times[user]) for user in times]
    values = {"error_code": Code.NONE, "error_message": None, "results": results}
    return encode_response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version, values)


def _described(user: str, known: list[ScramCredential] | None, times: int) -> dict[str, Any]:
    code, message = Code.NONE, None
    if times > 1:
        code = Code.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif known is None:
        code = Code.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    infos = [
        {"mechanism": MECHANISM_NUMBERS[one.mechanism], "iterations": one.iterations}
        for one in (known or () if not code else ())
    ]
    return {
        "user": user,
        "error_code": code,
        "error_message": message,
        "credential_infos": infos,
    }


def alter_scram(view: ClusterView) -> Handler:
    async def handle(context: RequestContext) -> bytes:
        many = things(context)
        request = await view.aside.decoded(context)
        users, told, command = await view.aside.some(many, partial(_changes, request))
        if command.deletions or command.upsertions:
            answer = await forward_security(view, context, command)
            if isinstance(answer, Refused):
                refused = (answer.code, answer.message)
                told |= {user: refused for user in users if user not in told}
            else:
                assert isinstance(answer, ScramAltered), f"the controller answered {answer}"
                told |= {one.user: (one.code, one.message) for one in answer.users}
        return await view.aside.some(many, partial(_altered, context.api_version, users, told))

    return handle


_Told = dict[str, tuple[int, str]]
"""The error code and message of each user's change."""


def _changes(request: Any) -> tuple[list[str], _Told, AlterScramCredentials]:
    """Return the users that the request names, each once, in order; the errors of the users with a
    malformed change; and the command to the controller with the changes of all other users."""
    users = list(dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions)))
    told: _Told = {}
    for one in (*request.deletions, *request.upsertions):
        if not one.name:
            told[one.name] = (Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        elif one.mechanism not in _BY_NUMBER:
            told[one.name] = (Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    for one in request.upsertions:
        if one.name not in told and (why := _unacceptable(one)):
            told[one.name] = (Code.UNACCEPTABLE_CREDENTIAL, why)
    command = AlterScramCredentials(
        deletions=tuple(
            ScramDeletion(user=one.name, mechanism=_BY_NUMBER[one.mechanism])
            for one in request.deletions
            if one.name not in told
        ),
        upsertions=tuple(_kept(one) for one in request.upsertions if one.name not in told),
    )
    return users, told, command


def _altered(version: int, users: list[str], told: _Told) -> bytes:
    results = [
        {"user": user, "error_code": told[user][0], "error_message": told[user][1] or None}
        for user in users
    ]
    return encode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, {"results": results})


def _unacceptable(one: Any) -> str | None:
    length = key_bytes(_BY_NUMBER[one.mechanism])
    if len(one.salted_password) != length:
        return (
            f"The salted password of a {_BY_NUMBER[one.mechanism]} credential must have {length} "
            "bytes."
        )
    return None


def _kept(one: Any) -> ScramCredential:
    mechanism = _BY_NUMBER[one.mechanism]
    stored_key, server_key = keys_of(mechanism, bytes(one.salted_password))
    return ScramCredential(
        user=one.name,
        mechanism=mechanism,
        salt=bytes(one.salt),
        iterations=one.iterations,
        stored_key=stored_key,
        server_key=server_key,
    )
