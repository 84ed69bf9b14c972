"""Produces of many partitions take turns: connections do not add up in one turn of the loop."""

import asyncio
import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.server.connection_state import SERVING, ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.server.turn_budget import SliceTurns
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey

CONNECTIONS, PARTITIONS = 20, 800


def produce_of_many_partitions() -> memoryview:
    """Of one topic, without records."""
    partitions = b"".join(struct.pack(">ii", index, -1) for index in range(PARTITIONS))
    topics = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", PARTITIONS) + partitions
    return memoryview(bytearray(struct.pack(">hhi", -1, 1, 1000) + topics))


class Manager(SimpleNamespace):
    """Hosts nothing, and counts the partitions that are looked up."""

    def __init__(self) -> None:
        async def durable(*_: Any) -> None:
            return

        super().__init__(
            wall_clock=None,
            store=SimpleNamespace(new_logs=None),
            traffic=SimpleNamespace(errors=Counter()),
            missing=lambda topic_id, index: Code.UNKNOWN_TOPIC_OR_PARTITION,
            topic_id=lambda name: None,
            flusher=SimpleNamespace(make_durable=durable),
            image=None,
            now_ms=lambda: 0,
        )
        self.looked_up = 0

    def by_name(self, name: str, index: int) -> None:
        self.looked_up += 1


async def test_long_produces_share_the_loops_turns() -> None:
    manager = Manager()
    handler = ProduceHandler(manager, Aside())  # type: ignore[arg-type]
    slices, serving = SliceTurns(), []
    for _ in range(CONNECTIONS):
        connection = ConnectionState()
        connection.slices, connection.holder = slices, "User:mallory"
        SERVING.set(connection)
        body = produce_of_many_partitions()
        answer = handler(RequestContext(ApiKey.PRODUCE, 7, 1, body, connection))
        assert isinstance(answer, asyncio.Future)
        serving.append(answer)
    most = 0
    while not all(answer.done() for answer in serving):
        before = manager.looked_up
        await asyncio.sleep(0)
        most = max(most, manager.looked_up - before)
    assert manager.looked_up >= CONNECTIONS * PARTITIONS
    # A slice looks up at most AT_ONCE partitions, each once or twice; a request may begin with one.
    assert most <= 6 * AT_ONCE
