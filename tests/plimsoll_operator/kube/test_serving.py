"""The API server in memory behind its socket: what `kubectl` is told that other clients are not."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from plimsoll_operator.api_server import tables
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.serving import OPENAPI_V2, OwnerAccess, ServedApi

TOPICS = "/apis/plimsoll.dev/v1alpha1/namespaces/default/topics"
MERGE = "application/merge-patch+json"
TOKEN = "the-owners"


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
    served = ServedApi(server, token=TOKEN)
    await served.start()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(served.url, headers=headers) as session:
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
async def test_misspelt_field_is_refused_when_strict(
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


async def test_known_fields_cause_no_warning(
    client: aiohttp.ClientSession,
) -> None:
    assert (await sent(client, "POST", a_topic(), "Strict"))[:2] == (201, [])
    patch = {"metadata": {"annotations": {"a/b": "c"}}, "spec": {"config": None}}
    assert (await sent(client, "PATCH", patch, "Strict", "/t"))[:2] == (200, [])


async def test_many_misspelt_fields_are_named_in_part(
    client: aiohttp.ClientSession,
) -> None:
    many = {f"x{n:03d}" + "\n" * 1_000: 1 for n in range(100)}
    status, warnings, _ = await sent(client, "POST", a_topic(**many), "Warn")
    assert status == 201
    assert len(warnings) == 20
    assert max(map(len, warnings)) < 1_000


async def test_missing_kind_is_absent_from_openapi(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get(OPENAPI_V2) as reply:
        assert (reply.status, await reply.read()) == (200, b"")


async def test_json_patch_is_refused_with_what_to_use(client: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/json-patch+json"}
    async with client.patch(f"{TOPICS}/t", json=[], headers=headers) as reply:
        assert reply.status == 415
        assert "--type merge" in (await reply.json())["message"]


# --- tables ---------------------------------------------------------------------------------------

AS_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def shown(table: dict[str, Any]) -> dict[str, Any]:
    """The first row by column."""
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, table["rows"][0]["cells"], strict=True))


async def test_table_has_the_columns_of_definition(
    client: aiohttp.ClientSession,
) -> None:
    await sent(client, "POST", a_topic(partitions=3), None)
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": "It serves."}
    ready["lastTransitionTime"] = "2026-11-22T00:00:00Z"
    patch = {"status": {"partitions": 3, "conditions": [ready]}}
    assert (await sent(client, "PATCH", patch, None, "/t/status"))[0] == 200
    for path in (TOPICS, f"{TOPICS}/t"):
        async with client.get(path, headers=AS_TABLE) as reply:
            table = await reply.json()
        assert table["kind"] == "Table"
        row = shown(table)
        assert (row["Name"], row["Cluster"], row["Partitions"]) == ("t", "main", 3)
        assert (row["Ready"], row["Age"]) == ("True", "0s")
        assert row["RF"] is None
        assert table["rows"][0]["object"]["metadata"]["name"] == "t"
    async with client.get(f"{TOPICS}/none", headers=AS_TABLE) as reply:
        assert (await reply.json())["kind"] == "Status"


async def test_watch_as_table_reports_changes_as_rows(client: aiohttp.ClientSession) -> None:
    await sent(client, "POST", a_topic(), None)
    params = {"watch": "true", "timeoutSeconds": "5"}
    async with client.get(TOPICS, params=params, headers=AS_TABLE) as reply:
        change = json.loads(await reply.content.readline())
    assert change["type"] == "ADDED"
    assert shown(change["object"])["Name"] == "t"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (600, "10m"), (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600, "8h"), (48 * 3600, "2d"),
    ],
)  # fmt: skip
def test_age_is_shown_as_kubectl_does(seconds: int, text: str) -> None:
    assert tables.age("2026-11-22T00:00:00Z", 1_795_305_600_000 + 1000 * seconds) == text


def test_column_path_is_followed_as_far_as_possible() -> None:
    row = {
        "metadata": {"labels": {"a.b/c": "x"}},
        "conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}],
    }
    assert tables.at(row, ".conditions[?(@.type=='B')].status") == "2"
    assert tables.at(row, ".conditions[?(@.type=='C')].status") is None
    assert tables.at(row, ".conditions[1].type") == "B"
    assert tables.at(row, r".metadata.labels['a\.b/c']") == "x"
    assert tables.at(row, ".metadata.none.deeper") is None
    assert tables.at(row, ".conditions[1]['status','type']") == "2"
    assert tables.at(row, ".conditions[1]['reason','type']") == "B"
    assert tables.at(row, ".conditions[1]['reason','message']") is None


# --- who is answered ------------------------------------------------------------------------------

CONFIG_MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
CODE = {"metadata": {"name": "code"}, "data": {"sitecustomize.py": "print('ran')"}}


async def test_request_without_the_token_is_unauthorized(client: aiohttp.ClientSession) -> None:
    for given in (None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        headers = {} if given is None else {"Authorization": given}
        async with aiohttp.ClientSession(client._base_url) as nobody:
            for path in (TOPICS, "/api", "/version", "/openapi/v2", "/nothing"):
                async with nobody.get(path, headers=headers) as reply:
                    assert reply.status == 401
                    assert (await reply.json())["reason"] == "Unauthorized"


def test_token_of_other_bytes_than_utf8_is_unauthorized() -> None:
    """It was an error of the server's, with a traceback in its log for each request."""
    access = OwnerAccess("token", frozenset({"localhost:1"}))
    headers = {"Host": "localhost:1", "Authorization": "Bearer \udcff"}
    refused = access.refusal(headers)
    assert refused is not None
    assert refused.status == 401


async def test_web_page_posts_create_no_object(client: aiohttp.ClientSession) -> None:
    """As a browser sends them without asking first: text/plain, another site's Origin."""
    body = json.dumps(CODE)
    page = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    async with aiohttp.ClientSession(client._base_url) as browser:
        for path in (CONFIG_MAPS, PODS):
            async with browser.post(path, data=body, headers=page) as reply:
                assert reply.status == 403
    # Even with the token, which no page has, neither of the two is taken.
    async with client.post(CONFIG_MAPS, data=body, headers=page) as reply:
        assert reply.status == 403
    for media in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", ""):
        headers = {"Content-Type": media}
        async with client.post(CONFIG_MAPS, data=body.encode(), headers=headers) as reply:
            assert (reply.status, (await reply.json())["reason"]) == (415, "UnsupportedMediaType")
    async with client.get(CONFIG_MAPS) as reply:
        assert (await reply.json())["items"] == []


async def test_foreign_host_is_refused_whatever_it_brings(client: aiohttp.ClientSession) -> None:
    """A name that was made to lead to this machine; or the right name with another port."""
    own = f"{client._base_url.host}:{client._base_url.port}"  # type: ignore[union-attr]
    for host in ("evil.example", f"evil.example:{own.rpartition(':')[2]}", "127.0.0.1:1", ""):
        async with client.get("/api/v1/namespaces/default/secrets", headers={"Host": host}) as got:
            assert got.status == 403
    for host in (own, f"LOCALHOST:{own.rpartition(':')[2]}"):
        async with client.get("/api", headers={"Host": host}) as got:
            assert got.status == 200


@pytest.mark.parametrize("key", ["../../../../NAME", "a/b", ".", "..", "..data", "", "x" * 254])
@pytest.mark.parametrize("kind", ["configmaps", "secrets"])
async def test_key_that_is_no_files_name_is_invalid(
    client: aiohttp.ClientSession, kind: str, key: str
) -> None:
    path = f"/api/v1/namespaces/default/{kind}"
    body = {"metadata": {"name": "c"}, "data": {key: "eA=="}}
    async with client.post(path, json=body) as reply:
        assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")
    async with client.post(path, json={"metadata": {"name": "c"}}) as reply:
        assert reply.status == 201
    headers = {"Content-Type": MERGE}
    async with client.patch(f"{path}/c", json={"data": {key: "eA=="}}, headers=headers) as reply:
        assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CONFIG_MAPS, {"metadata": {"name": "../x"}}),
        (CONFIG_MAPS, {"metadata": {"name": "c", "labels": {"../x": "v"}}}),
        (CONFIG_MAPS, {"metadata": {"name": "c", "annotations": {"a/b/c": "v"}}}),
        ("/api/v1/namespaces", {"metadata": {"name": "a.b"}}),
        (PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}}),
        (PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "../c"}]}}),
        (
            PODS,
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "../../v"}]},
            },
        ),
    ],
    ids=["name", "label", "annotation", "namespace", "no container", "container", "volume"],
)
async def test_misspelt_name_is_invalid(
    client: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    async with client.post(path, json=body) as reply:
        assert (reply.status, (await reply.json())["reason"]) == (422, "Invalid")
