"""How long a request of the metadata log may take, and when its outcome is unknown."""

import asyncio
import time

import pytest
from tests.plimsoll_operator.metalog.shells import HttpShell
from tests.plimsoll_operator.scripted_server import CLOSES, Reply, scripted
from tests.plimsoll_operator.transports import transport_to

from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_operator.metalog.kube_objects import LARGE_BYTES, TransportApi, Unanswered

PATIENCE_MS = 30_000
"""For what is answered at once, however busy the machine."""


async def test_hanging_write_is_unanswered_at_timeout(http: HttpShell) -> None:
    api = TransportApi(transport_to(http.url), 100)
    http.faults.add("PUT", http.faults.hang)
    began = time.monotonic()
    with pytest.raises(Unanswered):
        await api.request("PUT", "/apis/g/v1/namespaces/n/metadatabatches/b", body=b"{}")
    assert time.monotonic() - began < 5
    await api.close()


async def test_missing_server_leaves_request_unanswered() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    api = TransportApi(transport_to(f"http://127.0.0.1:{port}"), 100)
    with pytest.raises(Unanswered):
        await api.request("GET", "/")
    await api.close()


async def test_metadata_log_request_is_sent_once() -> None:
    body = b'{"z": 1.0, "a": "\\u00e9"}'
    async with scripted(Reply(status=409, body=b'{"message": "it changed"}')) as server:
        api = TransportApi(transport_to(server.url), PATIENCE_MS)
        answer = await api.request("PUT", "/b", body=body)
        await api.close()
    assert (answer.status, answer.sentence) == (409, "409: it changed")
    assert [(sent.method, sent.body) for sent in server.received] == [("PUT", body)]


@pytest.mark.parametrize("answer", [CLOSES, *(Reply(status) for status in (408, 500, 502, 504))])
async def test_request_that_may_have_happened_is_unanswered(answer: Reply) -> None:
    async with scripted(answer) as server:
        api = TransportApi(transport_to(server.url), PATIENCE_MS)
        with pytest.raises(Unanswered):
            await api.request("PUT", "/b", body=b"{}")
        await api.close()
    assert len(server.received) == 1


async def test_metadata_log_waits_longer_for_what_is_large() -> None:
    asked: list[HttpRequest] = []

    class Kept:
        async def send(self, request: HttpRequest) -> HttpResponse:
            asked.append(request)
            return HttpResponse(status=200, body=b"{}")

    api = TransportApi(Kept(), 2000)  # type: ignore[arg-type]
    await api.request("PUT", "/b", body=b"{}" * LARGE_BYTES)
    await api.request("GET", "/b")
    assert [request.timeout_s for request in asked] == [6.0, 10.0]
