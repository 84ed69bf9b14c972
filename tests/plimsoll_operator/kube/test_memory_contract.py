"""The API server in memory is held to the contract that the real one passes in `tests/e2e`."""

import itertools

import pytest
from tests.plimsoll_operator.kube.contract import *  # noqa: F403
from tests.plimsoll_operator.kube.contract import ContractServer

from plimsoll_operator.kube.memory import garbage
from plimsoll_operator.kube.memory.definitions import shipped
from plimsoll_operator.kube.memory.server import MemoryApiServer
from plimsoll_operator.kube.memory.transport import MemoryTransport


@pytest.fixture
def api() -> ContractServer:
    uids = itertools.count(1)
    server = MemoryApiServer(
        lambda: 1_800_000_000_123, lambda: f"00000000-0000-0000-0000-{next(uids):012x}",
        definitions=shipped(), namespaces=("kafka",),
    )  # fmt: skip
    return ContractServer(
        transport=MemoryTransport(server),
        namespace="kafka",
        control=lambda: garbage.collect(server),
    )
