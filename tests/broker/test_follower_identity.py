"""Who may count as a follower: nobody but the registered lifetime of a replica's broker."""

import asyncio
from collections.abc import Callable

import pytest
from tests.broker.test_replication import until
from tests.broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker.peer import PeerConnection
from plimsoll_core.replica.values import Code
from plimsoll_wire.fetch import TOPIC_ID_VERSION
from plimsoll_wire.replication import (
    NEW_SESSION,
    SESSIONLESS,
    FetchLimits,
    FetchReply,
    PartitionFetch,
    Sender,
    decode_fetch,
    encode_fetch,
)

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]
LIMITS = FetchLimits(0, 2**20, 2**20)
assert TOPIC_ID_VERSION <= 15, "the version that the frames below have"


async def fetch_as(
    leader: Broker, sender: Sender, session: tuple[int, int], offset: int
) -> FetchReply:
    """One Fetch of partition 0 of "t", as a follower sends it."""
    hosted = leader.hosted("t")
    epoch = hosted.replica.partition.leader_epoch
    one = PartitionFetch(0, epoch, offset, epoch, 0)
    frame = encode_fetch(1, sender, LIMITS, [(hosted.topic_id_bytes, [one])], session)
    connection = await PeerConnection.open("127.0.0.1", leader.server.port, WAIT_S)
    try:
        reply = decode_fetch(bytes(await connection.request(frame, WAIT_S)), 1)
    finally:
        connection.close()
    return reply


@pytest.mark.parametrize("session", [SESSIONLESS, NEW_SESSION])
@pytest.mark.parametrize("epoch", [2**40, "next"])
async def test_fetch_with_an_epoch_above_the_registered_one_acknowledges_nothing(
    controller: Controller, three: Three, session: tuple[int, int], epoch: int | str
) -> None:
    """Both followers are silent; a stranger names each of them at the log's end."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    for follower in three[1:]:
        await follower.path.fetchers.close()
    pending = asyncio.create_task(client.produce("t", a_batch(1)))
    replica = three[0].hosted("t").replica
    await until(lambda: three[0].hosted("t").log.log_end_offset == 2)
    known = {one: progress.log_end for one, progress in replica.leader.followers.items()}
    replies = [
        await fetch_as(
            three[0],
            Sender(follower.id, follower.epoch + 1 if epoch == "next" else epoch, 0),
            session,
            offset=2,
        )
        for follower in three[1:]
    ]
    assert not pending.done(), "no replica but the leader has it"
    assert replica.high_watermark == 1
    assert {one: progress.log_end for one, progress in replica.leader.followers.items()} == known
    for reply in replies:
        assert [one.code for one in reply.partitions] == [Code.UNKNOWN_LEADER_EPOCH]
        assert reply.session_id == 0
    pending.cancel()


async def test_fetch_of_a_broker_that_is_not_registered_is_not_counted(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    leader = three[0]
    await until(lambda: len(leader.manager) == 1)
    await three[2].path.fetchers.close()
    leader.manager.around.brokers = leader.manager.around.brokers.delete(three[2].id)
    reply = await fetch_as(leader, Sender(2, three[2].epoch, 0), SESSIONLESS, 0)
    assert [one.code for one in reply.partitions] == [Code.UNKNOWN_LEADER_EPOCH]


async def test_follower_that_the_leader_does_not_know_yet_is_served_once_it_does(
    controller: Controller, three: Three, broker: Make
) -> None:
    """A leader whose metadata is behind asks it to come again; nobody has to restart for that."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await three[2].stop()
    three[0].deaf = True
    back = await broker(2).start()
    await client.produce("t", a_batch(1), acks=1)
    await until(lambda: any(f._following._resting for f in back.path.fetchers._fetchers.values()))
    assert three[0].hosted("t").replica.leader.followers[2].broker_epoch == three[2].epoch
    three[0].hear()
    await until(lambda: back.hosted("t").log.log_end_offset == 2)
    await until(lambda: set(controller.partition("t").isr) == {0, 1, 2})
    assert three[0].hosted("t").replica.leader.followers[2].broker_epoch == back.epoch
