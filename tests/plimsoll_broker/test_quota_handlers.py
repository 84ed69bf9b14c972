"""DescribeClientQuotas and AlterClientQuotas: what they find, pass on, and refuse."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.security.secured import OPEN, Secured, connected
from tests.plimsoll_broker.test_client_quotas import limiting

from plimsoll_core.errors import Code
from plimsoll_core.messages.security import AlterQuotas, QuotaChanged, QuotasAltered
from plimsoll_core.quotas.state import (
    DEFAULT,
    QuotaEntity,
    quotas_of,
)
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_request


def an_entry(entity: dict[str, str | None], **values: float | None) -> dict[str, Any]:
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in values.items()
    ]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": parts, "ops": ops}


async def altered(secured: Secured, *entries: dict[str, Any]) -> list[tuple[int, str | None]]:
    async with secured.served(OPEN) as server, connected(server) as client:
        request = {"entries": list(entries), "validate_only": False}
        told = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
        return [(int(one.error_code), one.error_message) for one in told.entries]


async def test_quota_changes_are_forwarded_and_answered_in_order() -> None:
    secured = Secured(Mode.OFF)
    alice = QuotaEntity(user="alice", client_id=DEFAULT)
    secured.answer = QuotasAltered(
        entities=(QuotaChanged(entity=alice, code=Code.POLICY_VIOLATION, message="an object's"),),
    )
    told = await altered(
        secured,
        an_entry({}, producer_byte_rate=1.0),
        an_entry({"user": "alice", "client-id": None}, producer_byte_rate=5.0),
        an_entry({"group": "g"}, producer_byte_rate=1.0),
        an_entry({"user": "bob"}, no_such_rate=1.0),
        an_entry({"user": "bob"}, producer_byte_rate=0.25),
        an_entry({"user": ""}, producer_byte_rate=1.0),
        an_entry({"ip": "10.0.0.1", "user": "bob"}, producer_byte_rate=1.0),
        an_entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
    )
    wrong = Code.INVALID_REQUEST
    assert [code for code, _ in told] == [wrong, Code.POLICY_VIOLATION, *[wrong] * 6]
    assert told[1][1] == "an object's"
    (command,) = secured.commands
    assert isinstance(command, AlterQuotas)
    assert [change.entity for change in command.changes] == [alice]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ["alice", "alice+app", "default", "address"]),
        ([("user", 0, "alice")], False, ["alice", "alice+app"]),
        ([("user", 0, "alice")], True, ["alice"]),
        ([("user", 1, None)], True, ["default"]),
        ([("user", 2, None)], False, ["alice", "alice+app", "default"]),
        ([("client-id", 2, None)], False, ["alice+app"]),
        ([("user", 0, "alice"), ("client-id", 0, "app")], True, ["alice+app"]),
        ([("ip", 2, None)], True, ["address"]),
        ([("ip", 0, "10.0.0.2")], True, []),
    ],
)
async def test_filter_finds_what_kafkas_would(
    components: list[tuple[str, int, str | None]], strict: bool, found: list[str]
) -> None:
    secured = Secured(Mode.OFF)
    rows = {
        "alice": limiting(QuotaEntity(user="alice"), producer_byte_rate=1.0),
        "alice+app": limiting(QuotaEntity(user="alice", client_id="app"), request_percentage=2.0),
        "default": limiting(consumer_byte_rate=3.0),
        "address": limiting(QuotaEntity(ip="10.0.0.1"), connection_creation_rate=4.0),
    }
    quotas = quotas_of(rows.values())
    image = replace(secured.watch.image, quotas=quotas)
    secured.watch.update(secured.watch.image, image)
    asked = [
        {"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components
    ]
    async with secured.served(OPEN) as server, connected(server) as client:
        told = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": strict}
        )
    shown = {tuple((p.entity_type, p.entity_name) for p in one.entity) for one in told.entries}
    assert shown == {tuple(sorted(rows[name].entity.parts.items())) for name in found}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", 2)], Code.UNSUPPORTED_VERSION),
        ([("user", 2), ("user", 1)], Code.INVALID_REQUEST),
        ([("user", 2), ("ip", 2)], Code.INVALID_REQUEST),
        ([("user", 7)], Code.INVALID_REQUEST),
        ([("user", 0)], Code.INVALID_REQUEST),
    ],
)
async def test_filter_that_says_nothing_is_refused(
    components: list[tuple[str, int]], code: Code
) -> None:
    asked = [{"entity_type": kind, "match_type": how, "match": None} for kind, how in components]
    async with Secured(Mode.OFF).served(OPEN) as server, connected(server) as client:
        told = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": False}
        )
    assert int(told.error_code) == code


async def test_hostile_quota_requests_are_answered_or_closed() -> None:
    secured = Secured(Mode.OFF)
    long = "x" * 30_000
    told = await altered(
        secured,
        an_entry({"user": long}, producer_byte_rate=1.0),
        an_entry({"ip": long}, connection_creation_rate=1.0),
        an_entry({long: "a"}, producer_byte_rate=1.0),
        an_entry({"user": "a"}, **{long: 1.0}),
    )
    assert {code for code, _ in told} == {Code.INVALID_REQUEST}
    assert max(len(text or "") for _, text in told) < 500
    many = [an_entry({"user": f"u{number}"}) for number in range(30_000)]
    body = encode_request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": many, "validate_only": False})
    async with secured.served(OPEN) as server:
        async with connected(server) as client:
            client.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, body)
            await client.closed()
        assert server.stats.closed_for["malformed"] == 1
    assert not secured.commands


async def test_parts_and_values_are_told_in_kafkas_order() -> None:
    """@platformatic/kafka's own tests compare the lists."""
    secured = Secured(Mode.OFF)
    rates = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0}
    row = limiting(QuotaEntity(user="alice", client_id="app"), **rates)
    image = replace(secured.watch.image, quotas=quotas_of([row]))
    secured.watch.update(secured.watch.image, image)
    secured.answer = QuotasAltered(entities=(QuotaChanged(entity=row.entity),))
    change = {"entries": [an_entry({"user": "alice", "client-id": "app"}, **rates)]}
    async with secured.served(OPEN) as server, connected(server) as client:
        told = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}
        )
        altered = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {**change, "validate_only": True})
    (entry,) = told.entries
    assert [one.key for one in entry.values] == [
        "consumer_byte_rate",
        "request_percentage",
        "producer_byte_rate",
    ]
    for one in (entry, altered.entries[0]):
        assert [part.entity_type for part in one.entity] == ["client-id", "user"]
