"""A consumer without fetch sessions: each of its fetches names all partitions.

    python -m bench.peers.clients.sessionless_consumer BOOTSTRAP TOPIC PARTITIONS

It prints a line when it has fetched once, and reads until its input ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition

LIMIT_S = 240
WAIT_MS = 500


async def read(bootstrap: str, topic: str, partitions: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="latest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
    await consumer.getmany(timeout_ms=WAIT_MS)
    print(flush=True)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    while not ended.done():
        await consumer.getmany(timeout_ms=WAIT_MS)
    await consumer.stop()


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    asyncio.run(read(sys.argv[1], sys.argv[2], int(sys.argv[3])))
