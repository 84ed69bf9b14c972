"""How long a request of the metadata log may take, and when its outcome is unknown."""

import asyncio
import time

import pytest
from tests.plimsoll_operator.metalog.shells import HttpShell
from tests.plimsoll_operator.transports import transport_to

from plimsoll_operator.metalog.kube_api import TransportApi, Unanswered


async def test_a_write_that_hangs_is_unanswered_when_its_time_is_up(http: HttpShell) -> None:
    api = TransportApi(transport_to(http.url), 100)
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
    api = TransportApi(transport_to(f"http://127.0.0.1:{port}"), 100)
    with pytest.raises(Unanswered):
        await api.request("GET", "/")
    await api.close()
