"""How long a request may take, and whose credentials it carries."""

import asyncio
import time

import pytest
from kubernetes.aio import client
from tests.plimsoll_operator.metalog.shells import HttpShell

from plimsoll_operator.metalog.kube_api import HttpApi, Unanswered


async def test_a_write_that_hangs_is_unanswered_when_its_time_is_up(http: HttpShell) -> None:
    configuration = client.Configuration(host=http.url)
    async with client.ApiClient(configuration) as api_client:
        api = HttpApi(api_client, 100)
        http.faults.add("PUT", http.faults.hang)
        began = time.monotonic()
        with pytest.raises(Unanswered):
            await api.request("PUT", "/apis/g/v1/namespaces/n/metadatabatches/b", body=b"{}")
        assert time.monotonic() - began < 5
        await api.close()


async def test_a_server_that_is_not_there_leaves_a_request_unanswered() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    configuration = client.Configuration(host=f"http://127.0.0.1:{port}")
    async with client.ApiClient(configuration) as api_client:
        api = HttpApi(api_client, 100)
        with pytest.raises(Unanswered):
            await api.request("GET", "/")
        await api.close()


async def test_every_request_asks_for_the_current_token(http: HttpShell) -> None:
    tokens = iter(["first", "second"])

    def refresh(configuration: client.Configuration) -> None:
        configuration.api_key["authorization"] = f"Bearer {next(tokens)}"

    configuration = client.Configuration(host=http.url)
    configuration.refresh_api_key_hook = refresh
    async with client.ApiClient(configuration) as api_client:
        api = HttpApi(api_client, 1000)
        for _ in range(2):
            await api.request("GET", "/apis/g/v1/namespaces/n/metadatabatches/b")
        await api.close()
    assert http.tokens == ["Bearer first", "Bearer second"]
