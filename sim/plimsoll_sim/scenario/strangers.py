"""The verb for who is no broker and says it is one."""

from __future__ import annotations

import asyncio

from plimsoll_core.replica.values import Code
from plimsoll_sim.brokers import KAFKA_PORT, REPLICATION_PORT
from plimsoll_sim.calls import ANSWER_S, Connection, Lost
from plimsoll_sim.scenario.script import BadScript, Words, microseconds, whole
from plimsoll_sim.scenario.setting import Verb
from plimsoll_sim.scenario.stage import CLIENT, Stage
from plimsoll_wire.replication import (
    NEW_SESSION,
    FetchLimits,
    MalformedReply,
    PartitionFetch,
    Sender,
    decode_fetch,
    encode_fetch,
)

PORTS = {"clients": KAFKA_PORT, "replication": REPLICATION_PORT}
LIMITS = FetchLimits(0, 2**20, 2**20)
PATIENCE = "1s"


async def _asked(host: str, port: int, frame: bytes) -> list[str]:
    try:
        async with asyncio.timeout(ANSWER_S):
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, host, port)
            future = connection.send(frame)
            assert future is not None, "a Fetch is answered"
            reply = decode_fetch(memoryview(await future), 1)
    except (OSError, TimeoutError, Lost, MalformedReply) as error:
        return [f"no answer: {error}"]
    connection.close()
    codes = [reply.code, *(one.code for one in reply.partitions)]
    refused = [Code(code).name for code in codes if code]
    return [f"refused, {refused[0]}" if refused else "answered"]


def pretend(stage: Stage, words: Words) -> list[str]:
    """pretend 2 offset=5 ahead=1 port=replication: a stranger fetches as broker 2 from whoever
    leads orders-0 (or `of=`), as if it had everything below the offset, in broker 2's registered
    epoch or so many ahead of it, on the replication port or on the clients' one; it says that it
    knows of `controller=9`."""
    at = stage.at(words.option("of", ""))
    broker_id = whole(words.take("a broker's number"))
    offset, ahead = words.number("offset", 0), words.number("ahead", 0)
    heard, name = words.number("controller", 0), words.option("port", "replication")
    words.end()
    broker = next((b for b in stage.image.brokers.values() if b.id == broker_id), None)
    if name not in PORTS or broker is None:
        raise BadScript("a registered broker, and port=clients or port=replication")
    partition = stage.partition(at)
    epoch = partition.leader_epoch
    asked = PartitionFetch(at[1], epoch, offset, epoch, 0)
    frame = encode_fetch(
        1,
        Sender(broker_id, broker.broker_epoch + ahead, heard),
        LIMITS,
        [(partition.topic_id.bytes, [asked])],
        NEW_SESSION,
    )
    work = _asked(stage.leader(at), PORTS[name], frame)
    return stage.ask(stage.actor(CLIENT), work, microseconds(PATIENCE))


VERBS: dict[str, Verb] = {"pretend": pretend}
