"""What the official client is made to keep to: one request for one call, and an end to each."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.plimsoll_operator.scripted_server import (
    CLOSES,
    SILENT,
    Reply,
    ScriptedServer,
    reply,
    scripted,
)
from tests.plimsoll_operator.transports import transport_to

from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected, Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, KubeApi
from plimsoll_operator.kube.official_transport import OfficialTransport
from plimsoll_operator.kube.resources import CONFIG_MAPS, LEASES, PODS

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PATIENCE_S = 20
"""More than any call here may take; a call that never ends fails its test by it."""
MANIFEST = {"metadata": {"name": "a", "namespace": "n"}}

Call = Callable[[KubeApi], Awaitable[object]]
CALLS: dict[str, Call] = {
    "get": lambda kube: kube.get(PODS, "n", "a"),
    "list": lambda kube: kube.list(PODS, "n"),
    "first": lambda kube: kube.first(PODS, "n", label_selector="x"),
    "create": lambda kube: kube.create(CONFIG_MAPS, MANIFEST),
    "replace": lambda kube: kube.replace(CONFIG_MAPS, MANIFEST),
    "apply": lambda kube: kube.apply(CONFIG_MAPS, MANIFEST),
    "merge": lambda kube: kube.merge(CONFIG_MAPS, "n", "a", {}),
    "apply_status": lambda kube: kube.apply_status(PODS, "n", "a", {}),
    "delete": lambda kube: kube.delete(PODS, "n", "a", uid="u"),
}


@asynccontextmanager
async def served(*replies: Reply) -> AsyncIterator[tuple[ScriptedServer, OfficialTransport]]:
    async with scripted(*replies) as server:
        transport = transport_to(server.url)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield server, transport
        finally:
            await transport.close()


# --- one attempt ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
async def test_transport_sends_once_when_kept_connection_closes(method: str) -> None:
    async with served(Reply(), CLOSES) as (server, transport):
        assert (await transport.send(HttpRequest(method="GET", path="/first"))).status == 200
        with pytest.raises(Unavailable) as failed:
            await transport.send(HttpRequest(method=method, path="/second", body=b"{}"))
        assert failed.value.status == 0
        assert [request.path for request in server.received] == ["/first", "/second"]
        assert server.connections == 1, "the second went over a connection that had been kept"


@pytest.mark.parametrize("method", METHODS)
async def test_transport_sends_once_when_new_connection_closes(method: str) -> None:
    async with served(CLOSES) as (server, transport):
        with pytest.raises(Unavailable):
            await transport.send(HttpRequest(method=method, path="/a", body=b"{}"))
        assert len(server.received) == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("verb", CALLS)
async def test_kube_asks_once_whatever_the_api_server_answers(verb: str, status: int) -> None:
    refused = reply({"message": "later"}, status, **{"Retry-After": "0"})
    async with served(refused) as (server, transport):
        with pytest.raises(ApiError) as failed:
            await CALLS[verb](KubeApi(transport))
        assert failed.value.status == status
        assert failed.value.reply == "later"
        assert len(server.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_official_transport_follows_no_redirect(status: int) -> None:
    async with scripted() as elsewhere, served() as (server, transport):
        server.replies.append(Reply(status=status, headers={"Location": f"{elsewhere.url}/b"}))
        with pytest.raises(Unavailable, match="redirect"):
            await transport.send(HttpRequest(method="PUT", path="/a", body=b"{}"))
        assert (len(server.received), elsewhere.received) == (1, [])


async def test_official_transport_asks_no_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted() as proxy, served() as (server, transport):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await transport.send(HttpRequest(method="GET", path="/a"))
        assert (len(server.received), proxy.received) == (1, [])


# --- an end to each call --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [SILENT, Reply(body=b"", stalls=True), Reply(body=b'{"kind": ', stalls=True)],
    ids=["no answer", "no body", "half a body"],
)
@pytest.mark.parametrize("method", METHODS)
async def test_transport_gives_up_at_its_timeout(method: str, begun: Reply) -> None:
    async with served(begun) as (server, transport):
        began_s = time.monotonic()
        with pytest.raises(Unavailable) as failed:
            await transport.send(HttpRequest(method=method, path="/a", timeout_s=0.1))
        assert failed.value.status == 0
        assert time.monotonic() - began_s < PATIENCE_S / 2
        # On a busy machine the time may be up before the request went out; it never goes twice.
        assert len(server.received) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda kube: kube.get(LEASES, "n", "a", timeout_s=0.1),
        lambda kube: kube.create(LEASES, MANIFEST, timeout_s=0.1),
        lambda kube: kube.replace(LEASES, MANIFEST, timeout_s=0.1),
    ],
    ids=["get", "create", "replace"],
)
async def test_lease_call_respects_its_timeout(call: Call) -> None:
    async with served(Reply(stalls=True)) as (_, transport):
        with pytest.raises(Unavailable):
            await call(KubeApi(transport))


@pytest.mark.parametrize("verb", CALLS)
async def test_default_timeout_is_ten_seconds(verb: str) -> None:
    asked: list[HttpRequest] = []

    class Kept:
        async def send(self, request: HttpRequest) -> Any:
            asked.append(request)
            raise Unavailable(0, "not sent")

    with pytest.raises(Unavailable):
        await CALLS[verb](KubeApi(Kept()))  # type: ignore[arg-type]
    assert [request.timeout_s for request in asked] == [10.0]


async def test_transport_abandons_watch_that_does_not_begin() -> None:
    async with served(SILENT) as (_, transport):
        with pytest.raises(Unavailable):
            await anext(transport.watch(HttpRequest(method="GET", path="/a", timeout_s=0.1)))


async def test_transport_ends_a_silent_watch() -> None:
    line = b'{"type": "ADDED"}\n'
    async with served(Reply(body=line, stalls=True)) as (_, transport):
        watch = transport.watch(HttpRequest(method="GET", path="/a", timeout_s=1))
        told: list[bytes] = []

        async def read() -> None:
            async for found in watch:
                told.append(found)  # noqa: PERF401 - what came is kept when it fails

        with pytest.raises(Unavailable):
            await read()
        # On a busy machine the time may be up before the line was read.
        assert told in ([line], [])


# --- what goes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["application/json", "application/apply-patch+yaml"])
async def test_official_transport_sends_the_very_bytes(content_type: str) -> None:
    body = b'{ "b":1.0,\n"a" : "\\u00e9" }'
    async with served() as (server, transport):
        request = HttpRequest(method="PUT", path="/a", body=body, content_type=content_type)
        await transport.send(request)
    (sent,) = server.received
    assert sent.body == body
    assert sent.headers["content-type"] == content_type
    assert [name for name in sent.headers if name.startswith("x-")] == []
    assert "authorization" not in sent.headers


async def test_official_transport_encodes_the_query_once() -> None:
    params = {"labelSelector": "a/b=c d,e in (f,g)", "continue": "x+y%2F=", "limit": "1"}
    async with served() as (server, transport):
        await transport.send(HttpRequest(method="GET", path="/a", params=params))
    assert server.received[0].params == params


async def test_official_transport_tells_the_api_servers_time() -> None:
    date = {"Date": "Sun, 22 Nov 2026 14:00:01 GMT"}
    async with served(reply({}, **date), Reply()) as (_, transport):
        told = await transport.send(HttpRequest(method="GET", path="/a"))
        untold = await transport.send(HttpRequest(method="GET", path="/a"))
    assert (told.server_ms, untold.server_ms) == (1_795_356_001_000, None)


# --- reads are evidence ---------------------------------------------------------------------------


async def test_list_follows_every_page_uncached() -> None:
    pages = [
        reply({"metadata": {"resourceVersion": "7", "continue": "p2"}, "items": [{"n": 1}]}),
        reply({"metadata": {"resourceVersion": "7", "continue": "p3"}, "items": None}),
        reply({"metadata": {"resourceVersion": "7"}, "items": [{"n": 2}]}),
    ]
    async with served(*pages) as (server, transport):
        listed = await KubeApi(transport).list(
            PODS, "n", label_selector="a=b", field_selector="spec.nodeName=c"
        )
    assert listed.items == ({"n": 1}, {"n": 2})
    assert listed.resource_version == "7"
    same = {"limit": "500", "labelSelector": "a=b", "fieldSelector": "spec.nodeName=c"}
    assert [request.params for request in server.received] == [
        same,
        {**same, "continue": "p2"},
        {**same, "continue": "p3"},
    ]


@pytest.mark.parametrize("verb", ["get", "list", "first"])
async def test_kube_reads_without_a_resource_version(verb: str) -> None:
    page = reply({"metadata": {}, "items": []})
    async with served(page) as (server, transport):
        await CALLS[verb](KubeApi(transport))
    (asked,) = server.received
    assert "resourceVersion" not in asked.target


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Rejected),
        (401, Rejected),
        (403, Rejected),
        (404, NotFound),
        (409, Conflict),
        (422, Rejected),
        (429, Unavailable),
        (500, Unavailable),
    ],
)
async def test_kube_says_what_an_answer_proves(status: int, expected: type[ApiError]) -> None:
    async with served(reply({"message": "no"}, status)) as (_, transport):
        with pytest.raises(expected) as failed:
            await KubeApi(transport).get(PODS, "n", "a")
    assert type(failed.value) is expected


async def test_non_json_answer_counts_as_none() -> None:
    async with served(Reply(body=b"<html>")) as (_, transport):
        with pytest.raises(Unavailable, match="not a JSON object"):
            await KubeApi(transport).get(PODS, "n", "a")


async def test_watch_events_are_delivered_until_the_end() -> None:
    events = [{"type": "ADDED", "object": {"n": n}} for n in range(3)]
    body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    async with served(Reply(body=body)) as (server, transport):
        changes = KubeApi(transport).changes(PODS, "n", "a", "7", metadata_only=True)
        assert [change async for change in changes] == events
    asked = server.received[0]
    assert asked.params == {
        "watch": "1",
        "resourceVersion": "7",
        "timeoutSeconds": "30",
        "labelSelector": "a",
    }
    assert "PartialObjectMetadata" in asked.headers["accept"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply({"message": "too old"}, 410), Rejected),
        (reply({"message": "later"}, 503), Unavailable),
        (CLOSES, Unavailable),
    ],
    ids=["410", "503", "closed"],
)
async def test_transport_states_why_watch_failed(answer: Reply, expected: type[ApiError]) -> None:
    async with served(answer) as (server, transport):
        with pytest.raises(expected):
            await anext(transport.watch(HttpRequest(method="GET", path="/a")))
        assert len(server.received) == 1
