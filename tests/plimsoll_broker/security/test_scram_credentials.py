"""What clients hear of SCRAM credentials that cannot be told or made: Kafka's codes and words."""

from typing import Any

import pytest
from tests.plimsoll_broker.security.secured import OPEN, Secured, connected

from plimsoll_core.errors import Code
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey

DESCRIBE = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
ALTER = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
MADE = {"salt": b"0123", "iterations": 4096, "salted_password": bytes(32)}


async def results(key: ApiKey, values: dict[str, Any]) -> list[tuple[int, str | None]]:
    """Nothing is asked of the controller."""
    async with Secured(Mode.OFF).served(OPEN) as server, connected(server) as client:
        reply = await client.ask(key, 0, values)
    return [(int(one.error_code), one.error_message) for one in reply.results]


async def test_description_names_missing_and_repeated_users() -> None:
    asked = {"users": [{"name": name} for name in ("alice", "nobody", "bob", "bob")]}
    alice, nobody, bob = await results(DESCRIBE, asked)
    assert alice == (Code.NONE, None)
    assert nobody == (
        Code.RESOURCE_NOT_FOUND,
        "Attempt to describe a user credential that does not exist: nobody",
    )
    assert bob == (
        Code.DUPLICATE_RESOURCE,
        "Cannot describe SCRAM credentials for the same user twice in a single request: bob",
    )


@pytest.mark.parametrize(
    ("name", "mechanism", "code", "message"),
    [
        ("", 1, Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ("carol", 0, Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ("carol", 3, Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
async def test_impossible_credential_is_neither_made_nor_deleted(
    name: str, mechanism: int, code: Code, message: str
) -> None:
    one = {"name": name, "mechanism": mechanism}
    made = {"deletions": [], "upsertions": [{**one, **MADE}]}
    for values in ({"deletions": [one], "upsertions": []}, made):
        assert await results(ALTER, values) == [(code, message)]
