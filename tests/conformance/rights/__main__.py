"""Records Apache Kafka's answers to the matrix: `python -m tests.conformance.rights --write`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.rights.answers import RECORDED, Peer, Told, every_answer, written


def asked_of_kafka(directory: Path) -> Told:
    """Half a minute."""
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with ApacheKafka(directory, authorizes=True, configs=few) as kafka:
        return asyncio.run(_asked(kafka.ports[0], kafka.secured_port))


async def _asked(open_port: int, secured_port: int) -> Told:
    async with Peer(open_port, secured_port) as peer:
        await peer.prepare()
        return await every_answer(peer)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text = written(asked_of_kafka(Path(place) / "kafka"))
    if "--write" in sys.argv:
        RECORDED.write_text(text)
    else:
        print(text)
