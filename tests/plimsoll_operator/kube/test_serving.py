"""The API server in memory behind its socket: what `kubectl` is told that other clients are not."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from plimsoll_operator.kube.memory.definitions import shipped
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.memory.serving import OPENAPI_V2, ServedApi

TOPICS = "/apis/plimsoll.dev/v1alpha1/namespaces/default/topics"
MERGE = "application/merge-patch+json"


def a_topic(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "t", "labels": {"any": "label"}, "ownerReferences": []},
        "spec": {"clusterRef": {"name": "main"}, "config": {"any.key": 1}, **spec},
    }


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    uids = itertools.count(1)
    server = MemoryApiServer(
        lambda: 1_800_000_000_123,
        lambda: f"00000000-0000-0000-0000-{next(uids):012x}",
        definitions=shipped(),
    )
    served = ServedApi(server)
    await served.start()
    async with aiohttp.ClientSession(served.url) as session:
        yield session
    await served.stop()


async def sent(
    client: aiohttp.ClientSession, method: str, body: Any, validation: str | None, name: str = ""
) -> tuple[int, list[str], dict[str, Any]]:
    """(status, warnings, body)."""
    params = {} if validation is None else {"fieldValidation": validation}
    headers = {"Content-Type": MERGE} if method == "PATCH" else {}
    path = TOPICS + name
    async with client.request(method, path, json=body, params=params, headers=headers) as reply:
        return reply.status, reply.headers.getall("Warning", []), await reply.json()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"partitons": 3}, "spec.partitons"),
        ({"placement": {"strategi": "Blocked"}}, "spec.placement.strategi"),
        (
            {"placement": {"assignment": [{"partition": 0, "replicas": [0], "ids": []}]}},
            "spec.placement.assignment[0].ids",
        ),
    ],
    ids=["of the spec", "within it", "of an item"],
)
async def test_misspelt_field_is_refused_when_strict_and_warned_of_otherwise(
    client: aiohttp.ClientSession, more: dict[str, Any], path: str
) -> None:
    text = f'unknown field "{path}"'
    status, _, body = await sent(client, "POST", a_topic(**more), "Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].endswith(f"strict decoding error: {text}")
    escaped = text.replace('"', '\\"')
    for validation in ("Warn", None):
        status, warnings, _ = await sent(client, "POST", a_topic(**more), validation)
        assert warnings == [f'299 - "{escaped}"']
        assert status == 201
        async with client.delete(f"{TOPICS}/t"):
            pass
    assert (await sent(client, "POST", a_topic(**more), "Ignore"))[:2] == (201, [])
    status, _, body = await sent(client, "PATCH", {"spec": more}, "Strict", "/t")
    assert (status, body["reason"]) == (422, "Invalid")
    assert text in body["message"]


async def test_known_fields_labels_and_configs_are_neither_refused_nor_warned_of(
    client: aiohttp.ClientSession,
) -> None:
    assert (await sent(client, "POST", a_topic(), "Strict"))[:2] == (201, [])
    patch = {"metadata": {"annotations": {"a/b": "c"}}, "spec": {"config": None}}
    assert (await sent(client, "PATCH", patch, "Strict", "/t"))[:2] == (200, [])


async def test_many_and_long_misspelt_fields_are_named_in_part(
    client: aiohttp.ClientSession,
) -> None:
    many = {f"x{n:03d}" + "\n" * 1_000: 1 for n in range(100)}
    status, warnings, _ = await sent(client, "POST", a_topic(**many), "Warn")
    assert status == 201
    assert len(warnings) == 20
    assert max(map(len, warnings)) < 1_000


async def test_kind_that_is_not_there_is_not_in_an_empty_openapi_either(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get(OPENAPI_V2) as reply:
        assert (reply.status, await reply.read()) == (200, b"")


async def test_json_patch_is_refused_with_what_to_use(client: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/json-patch+json"}
    async with client.patch(f"{TOPICS}/t", json=[], headers=headers) as reply:
        assert reply.status == 415
        assert "--type merge" in (await reply.json())["message"]
