"""Three data paths replicate over real sockets."""

import asyncio
from collections.abc import Callable

from tests.broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_core.replica.values import Code

Three = tuple[Broker, Broker, Broker]


async def until(condition: Callable[[], bool]) -> None:
    """Let everybody else run until it is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_acks_all_is_answered_once_every_in_sync_replica_has_it(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(3)) == (Code.NONE, 0)
    assert await client.produce("t", a_batch(2)) == (Code.NONE, 3)
    leader = three[0].hosted("t")
    assert leader.replica.high_watermark == 5
    for follower in three[1:]:
        assert follower.hosted("t").log.log_end_offset == 5
        assert follower.bytes_of("t") == three[0].bytes_of("t")
