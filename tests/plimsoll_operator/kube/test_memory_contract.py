"""The API server in memory is held to the contract that the real one passes in `tests/e2e`, without
a socket and through one.
"""

import itertools
from collections.abc import AsyncIterator

import pytest
from tests.plimsoll_operator.kube.contract import *  # noqa: F403
from tests.plimsoll_operator.kube.contract import ContractServer
from tests.plimsoll_operator.transports import transport_to

from plimsoll_operator.api_server import garbage_collection
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.serving import ServedApi
from plimsoll_operator.kube.kube_api import Transport


@pytest.fixture(params=["direct", "served"])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ContractServer]:
    uids = itertools.count(1)
    server = MemoryApiServer(
        lambda: 1_800_000_000_123,
        lambda: f"00000000-0000-0000-0000-{next(uids):012x}",
        definitions=shipped(),
        namespaces=("kafka",),
    )
    served = ServedApi(server, token="t")
    transport: Transport = MemoryTransport(server)
    if request.param == "served":
        await served.start()
        transport = transport_to(served.url, token="t")
    yield ContractServer(
        transport=transport, namespace="kafka", control=lambda: garbage_collection.collect(server)
    )
    await transport.close()
    if request.param == "served":
        await served.stop()
