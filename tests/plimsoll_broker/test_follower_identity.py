"""Only the registered lifetime of a replica's broker counts as a follower."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller, a_batch

from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.fetch import TOPIC_ID_VERSION
from plimsoll_wire.replication import (
    LATEST,
    NEW_SESSION,
    SESSIONLESS,
    FetchLimits,
    FetchReply,
    FetchSender,
    PartitionFetch,
    decode_fetch,
    decode_list_offsets,
    encode_fetch,
    encode_list_offsets,
)

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]
LIMITS = FetchLimits(0, 2**20, 2**20)
assert TOPIC_ID_VERSION <= 15, "the version that the frames below have"


async def fetch_as(
    leader: Broker,
    sender: FetchSender,
    session: tuple[int, int],
    offset: int,
    *,
    index: int = 0,
    port: int | None = None,
) -> FetchReply:
    """One Fetch of a partition of "t", as a follower sends it; by default where followers do."""
    hosted = leader.hosted("t", index)
    epoch = hosted.replica.partition.leader_epoch
    one = PartitionFetch(index, epoch, offset, epoch, 0)
    frame = encode_fetch(1, sender, LIMITS, [(hosted.topic_id_bytes, [one])], session)
    connection = await PeerConnection.open("127.0.0.1", port or leader.replication.port, WAIT_S)
    try:
        reply = decode_fetch(bytes(await connection.request(frame, WAIT_S)), 1)
    finally:
        connection.close()
    return reply


@pytest.mark.parametrize("session", [SESSIONLESS, NEW_SESSION])
@pytest.mark.parametrize("epoch", [2**40, "next"])
async def test_fetch_above_registered_epoch_acknowledges_nothing(
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
            FetchSender(follower.id, follower.epoch + 1 if epoch == "next" else epoch, 0),
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


async def test_fetch_of_unregistered_broker_is_not_counted(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    leader = three[0]
    await until(lambda: len(leader.manager) == 1)
    await three[2].path.fetchers.close()
    leader.manager.around.brokers = leader.manager.around.brokers.delete(three[2].id)
    reply = await fetch_as(leader, FetchSender(2, three[2].epoch, 0), SESSIONLESS, 0)
    assert [one.code for one in reply.partitions] == [Code.UNKNOWN_LEADER_EPOCH]


async def test_follower_unknown_to_leader_is_served_later(
    controller: Controller, three: Three, broker: Make
) -> None:
    """A leader whose metadata is behind makes it retry; no broker has to restart for that."""
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


# --- which port ----------------------------------------------------------------------------------


async def test_follower_fetch_on_client_port_is_refused(
    controller: Controller, three: Three
) -> None:
    """Even one that knows the registered epoch."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await until(lambda: all(len(one.manager) == 1 for one in three))
    for follower in three[1:]:
        await follower.path.fetchers.close()
    pending = asyncio.create_task(client.produce("t", a_batch(1)))
    leader = three[0].hosted("t")
    await until(lambda: leader.log.log_end_offset == 1)
    for follower in three[1:]:
        sender = FetchSender(follower.id, follower.epoch, controller_epoch=9)
        reply = await fetch_as(three[0], sender, NEW_SESSION, 1, port=three[0].server.port)
        assert reply.code == Code.CLUSTER_AUTHORIZATION_FAILED
        assert [one.code for one in reply.partitions] == [Code.CLUSTER_AUTHORIZATION_FAILED]
        assert not reply.session_id
    assert leader.replica.high_watermark == 0
    assert not pending.done()
    assert three[0].link.told == [], "nor is its controller looked for"
    pending.cancel()


async def test_follower_list_offsets_on_client_port_is_limited(
    controller: Controller, three: Three
) -> None:
    """A client whose replica_id is 0 by mistake reads on, and no end beyond the high watermark is
    told where clients are."""
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await until(lambda: all(len(one.manager) == 1 for one in three))
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    for follower in three[1:]:
        await follower.path.fetchers.close()
    pending = asyncio.create_task(client.produce("t", a_batch(1)))
    leader = three[0].hosted("t")
    await until(lambda: leader.log.log_end_offset == 2)
    frame = encode_list_offsets(1, three[1].id, "t", 0, 0, LATEST)
    answers = []
    for port in (three[0].server.port, three[0].replication.port):
        connection = await PeerConnection.open("127.0.0.1", port, WAIT_S)
        answers.append(decode_list_offsets(await connection.request(frame, WAIT_S), 1))
        connection.close()
    assert answers == [(Code.NONE, leader.replica.high_watermark), (Code.NONE, 2)]
    assert leader.replica.high_watermark == 1
    pending.cancel()


@pytest.mark.parametrize(
    "key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE, ApiKey.METADATA]
)
async def test_client_request_on_replication_port_is_refused(
    controller: Controller, three: Three, key: ApiKey
) -> None:
    controller.create("t", (0, 1, 2))
    await until(lambda: len(three[0].manager) == 1)
    port = three[0].replication.port
    client = Client(await PeerConnection.open("127.0.0.1", port, WAIT_S))
    if key is ApiKey.LIST_OFFSETS:
        assert (await client.latest("t"))[0] == Code.CLUSTER_AUTHORIZATION_FAILED
        return
    if key is ApiKey.FETCH:
        asked: Awaitable[object] = client.fetch("t", 0)
    elif key is ApiKey.PRODUCE:
        asked = client.produce("t", a_batch(1))
    else:
        asked = client.ask(key, 1, {"topics": None})
    with pytest.raises(PeerLost):
        await asked


async def test_client_gets_the_leaders_client_port(controller: Controller, broker: Make) -> None:
    leader, follower = broker(0), await broker(1).start()
    leader.replication_first = True
    await leader.start()
    controller.create("t", (0, 1))
    await until(lambda: len(follower.manager) == 1)
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": a_batch(1)}]}],
    }
    reply = await (await follower.client()).ask(ApiKey.PRODUCE, 10, values)
    assert reply.responses[0].partition_responses[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert [(one.node_id, one.port) for one in reply.node_endpoints] == [(0, leader.server.port)]
