"""Rules, credentials and quotas, of which there may be thousands, are gone through in a thread: so
many that are there, and so many that a request names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.security.guard_cases import ACL_FILTER, CREATION
from tests.plimsoll_broker.security.secured import Secured, a_rule
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_broker.handlers.security import acls, client_quotas, scram_credentials
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.cluster import records as r
from plimsoll_core.messages.requests import Refused
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import decode_response, encode_request

MANY = 1_000
NAMES = [f"name-{number:04}" for number in range(MANY)]


async def asked(secured: Secured, key: ApiKey, values: dict[str, Any]) -> Any:
    version = SUPPORTED[key].last
    body = memoryview(bytearray(encode_request(key, version, values)))
    reply = secured.handlers[key](RequestContext(key, version, 1, body, ConnectionState()))
    whole: Any = await reply if isinstance(reply, Awaitable) else reply
    return decode_response(key, version, whole)


class Watch:
    """How often functions were called on the event loop, and elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> None:
        self.seen: Counter[str] = Counter()
        loop = threading.get_ident()
        for owner, name in functions:
            real = getattr(owner, name)

            def noted(*arguments: Any, _real: Any = real, **more: Any) -> Any:
                self.seen["loop" if threading.get_ident() == loop else "thread"] += 1
                return _real(*arguments, **more)

            monkeypatch.setattr(owner, name, noted)


async def test_thousands_of_rules_are_described_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Filters, which most rules do not match, are what takes long."""
    secured = Secured(Mode.ENFORCE, *(a_rule(AclOperation.READ, name) for name in NAMES))
    watch = Watch(monkeypatch, (acls.AclFilter, "matches"), (acls, "encode_response"))
    wanted = {**ACL_FILTER, "resource_type_filter": 2, "resource_name_filter": NAMES[7]}
    wanted["pattern_type_filter"] = 3
    answer = await asked(secured, ApiKey.DESCRIBE_ACLS, wanted)
    assert [one.resource_name for one in answer.resources] == [NAMES[7]]
    assert watch.seen == {"thread": MANY + 1}


async def test_thousands_of_credentials_are_described_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secured = Secured()
    one = a_credential("name")
    for name in NAMES:
        credential = replace(one, user=name)
        secured.change(r.ScramCredentialSet(cause="t", credential=credential))
    watch = Watch(
        monkeypatch, (scram_credentials, "_described"), (scram_credentials, "encode_response")
    )
    answer = await asked(secured, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    assert len(answer.results) >= MANY
    assert watch.seen["loop"] == 0
    assert watch.seen["thread"] > MANY


QUOTA = {"key": "producer_byte_rate", "value": 1024.0, "remove": False}
CHANGES: dict[ApiKey, tuple[dict[str, Any], Any, str]] = {
    ApiKey.CREATE_ACLS: (
        {"creations": [{**CREATION, "resource_name": name} for name in NAMES]},
        acls,
        "_acl",
    ),
    ApiKey.DELETE_ACLS: (
        {"filters": [{**ACL_FILTER, "resource_name_filter": name} for name in NAMES]},
        acls,
        "_filter",
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": name}], "ops": [QUOTA]}
                for name in NAMES
            ],
            "validate_only": False,
        },
        client_quotas,
        "_change",
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        {
            "deletions": [],
            "upsertions": [
                {
                    "name": name,
                    "mechanism": 1,
                    "iterations": 4096,
                    "salt": b"salt",
                    "salted_password": bytes(32),
                }
                for name in NAMES
            ],
        },
        scram_credentials,
        "_kept",
    ),
}


@pytest.mark.parametrize("key", CHANGES, ids=[key.name for key in CHANGES])
async def test_change_of_thousands_is_handled_in_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, module, name = CHANGES[key]
    secured = Secured()
    secured.answer = Refused(reason="NotNow", code=7, message="not now")
    watch = Watch(monkeypatch, (module, name), (module, "encode_response"))
    await asked(secured, key, values)
    assert watch.seen == {"thread": MANY + 1}
