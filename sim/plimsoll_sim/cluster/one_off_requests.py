"""Single requests from processes that end after them: a client's DeleteRecords, a stranger's Fetch.

Used by random faults, and by the verbs of a scenario.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.errors import Code
from plimsoll_sim.cluster.world import World
from plimsoll_sim.engine.process import Process
from plimsoll_sim.hosts.client_calls import (
    ANSWER_S,
    Caller,
    ClientConnection,
    Lost,
    delete_records_values,
)
from plimsoll_sim.hosts.intruder import posed_fetch, refusal_of
from plimsoll_sim.oracle.partition_ghost import Deletion, PartitionGhost
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.replication import FetchSender, MalformedReply

NOT_DONE = frozenset({Code.OFFSET_OUT_OF_RANGE, Code.NOT_LEADER_OR_FOLLOWER})
"""Error codes after which the log start is certainly unchanged."""


class Claim(NamedTuple):
    """Claims of a stranger in its Fetch: to be this broker in this broker epoch, to have everything
    below `offset`, and to know the controller epoch `heard` (0: none)."""

    broker_id: int
    broker_epoch: int
    offset: int
    heard: int = 0


def by_somebody(world: World, work: Coroutine[Any, Any, Any]) -> None:
    """Run the coroutine in a client process of its own, which ends with it."""
    name = f"somebody-{len(world.client_processes)}"
    process = Process(world.loop, name, name)
    process.start(work)
    world.client_processes.append(process)


async def delete_records(
    caller: Caller, connection: ClientConnection, ghost: PartitionGhost, offset: int
) -> tuple[int, int]:
    """Ask a partition's leader to delete the records below `offset`. Return the error code and the
    new log start in the answer. Until the request is refused, the deletion counts as requested by a
    client."""
    asked = Deletion(offset)
    ghost.deletions.append(asked)
    values = delete_records_values(ghost.name, offset)
    reply = await caller.ask(connection, ApiKey.DELETE_RECORDS, 2, values)
    one = reply.topics[0].partitions[0]
    code = int(one.error_code)
    if code in NOT_DONE:
        ghost.deletions.remove(asked)
    # A deletion of a topic that had the name before says nothing of this one.
    if code == Code.NONE and asked in ghost.deletions and not ghost.made_again:
        ghost.answered = max(ghost.answered, min(asked.offset, int(one.low_watermark)))
    return code, int(one.low_watermark)


async def delete_once(host: str, ghost: PartitionGhost, offset: int) -> None:
    """Delete records as a client that ignores the outcome."""
    caller = Caller("somebody")
    try:
        connection = await caller.connect(host)
        await delete_records(caller, connection, ghost, offset)
    except Lost:
        return
    connection.close()


async def pretend(host: str, port: int, p: Partition, claim: Claim) -> list[str]:
    """Fetch from the partition's leader as one of its replicas. Return the outcome as lines for
    people."""
    sender = FetchSender(claim.broker_id, claim.broker_epoch, claim.heard)
    frame = posed_fetch(p, sender, claim.offset)
    try:
        async with asyncio.timeout(ANSWER_S):
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(ClientConnection, host, port)
            future = connection.send(frame)
            assert future is not None, "a Fetch is answered"
            refused = refusal_of(await future)
    except (OSError, TimeoutError, Lost, MalformedReply) as error:
        return [f"no answer: {error}"]
    connection.close()
    return [f"refused, {Code(refused).name}" if refused else "answered"]
