"""Three data paths replicate over real sockets; the controller is real, its network is not."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.plimsoll_broker.no_fetchers import NoFetchers
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.replication import fetcher as fetcher_module
from plimsoll_broker.replication.fetcher import NEW_AT_ONCE
from plimsoll_broker.replication.peer_connection import PeerConnection, open_to
from plimsoll_broker.server.requests_and_replies import RequestReceiver
from plimsoll_broker.storage.checkpoint_formats import Partition
from plimsoll_broker.storage.log_store import LogStore
from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.requests import AlterPartition, Answer, BrokerProvenDead, Request
from plimsoll_wire.replication import FetchLimits, FetchSender, decode_fetch, encode_fetch

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]


async def until(condition: Callable[[], bool]) -> None:
    """Let all other tasks run until it is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def kill(broker: Broker) -> None:
    """No clean stop, and the controller knows at once."""
    await broker.stop()
    broker.controller.request(
        BrokerProvenDead(broker_id=broker.id, broker_epoch=broker.epoch, evidence="killed")
    )


async def others_lag(leader: Broker, name: str, log_end: int, *in_time: Broker) -> None:
    """Who has not fetched up to `log_end` has lagged for too long, as soon as `in_time` have: on a
    busy machine, too, nobody else leaves."""
    hosted, around = leader.hosted(name), leader.manager.around
    progress = hosted.replica.leader.followers
    await until(lambda: hosted.log.log_end_offset == log_end)
    await until(lambda: all(progress[one.id].log_end == log_end for one in in_time))
    limit_ms, around.lag_time_max_ms = around.lag_time_max_ms, -1
    leader.manager.check_lag(hosted)
    around.lag_time_max_ms = limit_ms


def same_logs(name: str, *brokers: Broker) -> bool:
    return len({broker.bytes_of(name) for broker in brokers}) == 1


async def test_acks_all_completes_once_isr_has_batch(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(3)) == (Code.NONE, 0)
    assert await client.produce("t", a_batch(2)) == (Code.NONE, 3)
    leader = three[0].hosted("t")
    assert leader.replica.high_watermark == 5
    for follower in three[1:]:
        assert follower.hosted("t").log.log_end_offset == 5
        assert follower.bytes_of("t") == three[0].bytes_of("t")


async def test_batch_awaiting_commit_is_not_kept_in_memory(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    large: list[bytearray] = []

    def free(self: RequestReceiver, slot: object, frame: bytearray) -> None:
        if len(frame) > 200_000:
            large.append(frame)
            frame.clear()  # raises BufferError while anybody has a view of it

    monkeypatch.setattr(RequestReceiver, "free", free)
    three[0].store.recent.limit = 0  # but for what the log keeps for its readers, which is bounded
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    assert await client.produce("t", a_batch(1, filler=200_000)) == (Code.NONE, 1)
    assert large == [bytearray()]


async def test_followers_learn_the_high_watermark(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    await until(lambda: all(b.hosted("t").replica.high_watermark == 3 for b in three))


async def test_partition_goes_on_when_its_leader_is_killed(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(3)) == (Code.NONE, 0)
    await kill(three[0])
    assert controller.partition("t").leader == 1
    await until(lambda: three[1].hosted("t").replica.leader is not None)
    client = await three[1].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 3)
    assert same_logs("t", three[1], three[2])


async def test_killed_leader_returns_truncates_and_rejoins(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    assert await client.produce("t", a_batch(3)) == (Code.NONE, 0)
    for follower in three[1:]:
        await follower.path.fetchers.close()
    assert await client.produce("t", a_batch(4), acks=1) == (Code.NONE, 3)
    await kill(three[0])
    await until(lambda: three[1].hosted("t").replica.leader is not None)
    three[2].manager.fetchers = NoFetchers()
    client = await three[1].client()
    assert await client.produce("t", a_batch(1), acks=1) == (Code.NONE, 3)

    back = await broker(0).start()
    await until(lambda: same_logs("t", back, three[1]))
    assert back.hosted("t").log.log_end_offset == 4, "its 4 records were never acknowledged"
    await until(lambda: 0 in controller.partition("t").isr)


async def test_absent_follower_catches_up_and_rejoins(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(1))
    await kill(three[2])
    assert controller.partition("t").isr == (0, 1)
    for _ in range(20):
        code, _ = await client.produce("t", a_batch(5, filler=1000))
        assert code == Code.NONE
    back = await broker(2).start()
    await until(lambda: set(controller.partition("t").isr) == {0, 1, 2})
    assert same_logs("t", back, three[0])


async def test_acks_all_below_min_isr_is_refused(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(1))
    for follower in three[1:]:
        await follower.path.fetchers.close()
    waiting = asyncio.create_task(client.produce("t", a_batch(1)))
    await until(lambda: three[0].hosted("t").log.log_end_offset == 2)
    for follower in three[1:]:
        await kill(follower)
    assert (await waiting)[0] == Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert (await client.produce("t", a_batch(1)))[0] == Code.NOT_ENOUGH_REPLICAS
    assert three[0].hosted("t").log.log_end_offset == 2, "refused before it was written"
    assert three[0].hosted("t").replica.high_watermark == 1


async def test_lagging_follower_is_dropped_and_rest_continues(
    controller: Controller, three: Three
) -> None:
    a, b, c = three
    controller.create("t", (0, 1, 2))
    client = await a.client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await c.path.fetchers.close()
    writing = asyncio.create_task(client.produce("t", a_batch(1)))
    await others_lag(a, "t", 2, b)
    assert await writing == (Code.NONE, 1)
    assert set(controller.partition("t").isr) == {0, 1}
    lagged = Left(broker_id=BrokerId(2), cause=ShrinkCause.LAG)
    assert a.manager.shrinks.counts == {lagged: 1}
    assert same_logs("t", a, b)


async def test_s30_proposal_with_lost_answer_settles_by_metadata(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await kill(three[2])
    answered = controller.command
    lost: list[Request] = []

    async def lose_one(request: Request, timeout_ms: int = 0) -> Answer:
        three[0].deaf = three[0].deaf or isinstance(request, AlterPartition)
        answer = await answered(request, timeout_ms)
        if isinstance(request, AlterPartition):
            lost.append(request)
        if len(lost) == 1:
            raise NoController("the answer was lost")
        return answer

    controller.command = lose_one  # type: ignore[method-assign]
    await broker(2).start()
    await until(lambda: len(lost) == 2)  # sent again, and refused: its epoch is over
    assert set(controller.partition("t").isr) == {0, 1, 2}, "it was committed"
    three[0].hear()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await until(lambda: len(three[0].hosted("t").replica.partition.isr) == 3)


async def test_new_leader_hides_latest_offset_until_known(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(3))
    for one in three[1:]:  # a fetch under way would tell of the latest offset again
        await one.path.fetchers.close()
        one.manager.fetchers = NoFetchers()
    three[1].hosted("t").replica.high_watermark = 0  # it had not heard
    await kill(three[0])
    await until(lambda: three[1].hosted("t").replica.leader is not None)
    client = await three[1].client()
    assert await client.latest("t") == (Code.OFFSET_NOT_AVAILABLE, -1)
    assert await client.latest("t", timestamp=-2) == (Code.NONE, 0)
    await kill(three[2])
    assert (await client.latest("t"))[0] == Code.OFFSET_NOT_AVAILABLE, "frozen: one of two is left"


async def test_fetcher_shared_by_many_partitions_advances_all(
    controller: Controller, three: Three
) -> None:
    controller.create("t", *[(i % 3, (i + 1) % 3, (i + 2) % 3) for i in range(30)])
    clients = [await broker.client() for broker in three]
    for index in range(30):
        code, _ = await clients[index % 3].produce("t", a_batch(2, filler=5000), index=index)
        assert code == Code.NONE
    for broker in three:
        assert sum(h.log.log_end_offset for h in broker.manager) == 60


async def test_more_than_fits_one_reply_is_replicated_fairly(
    controller: Controller, three: Three, broker: Make
) -> None:
    controller.create("t", *[(0, 1, 2)] * 8)
    await kill(three[2])
    client = await three[0].client()
    for index in range(8):
        for _ in range(2):
            assert (await client.produce("t", a_batch(1, filler=900_000), index=index))[0] == 0
    back = await broker(2).start()
    await until(lambda: all(h.log.log_end_offset == 2 for h in back.manager))
    await until(lambda: all(len(controller.partition("t", i).isr) == 3 for i in range(8)))


async def test_fetches_are_answered_while_topics_are_made(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(1))
    opened: list[BrokerId] = []

    async def counted(leader: BrokerId, *rest: Any) -> PeerConnection:
        opened.append(leader)
        return await open_to(leader, *rest)

    monkeypatch.setattr(fetcher_module, "open_to", counted)
    followers = three[1:]
    for broker in followers:
        # All of it happens within a moment, however long it takes.
        monkeypatch.setattr(broker.manager, "now_ms", lambda: 1_000_000_000)
    for number in range(30):
        controller.create(f"made{number}", (0, 1, 2))
        await until(lambda: all(len(b.manager) == number + 2 for b in followers))  # noqa: B023
        assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    assert len(opened) <= len(followers), "one interrupted request each"


async def test_record_waits_for_few_new_logs(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = three[1]
    flusher, go = follower.manager.flusher, asyncio.Event()
    make_durable = flusher.make_durable
    synced: list[list[Partition]] = []

    async def told(store: LogStore, partitions: Iterable[Partition]) -> None:
        synced.append(store.new_logs.among(list(partitions)))
        if synced[-1]:
            await go.wait()
        await make_durable(store, synced[-1])

    monkeypatch.setattr(flusher, "make_durable", told)
    monkeypatch.setattr(follower.store, "begin_new", lambda: None)  # no chore does it meanwhile
    controller.create("t", *[(0, 1, 2)] * 30)
    await until(lambda: len(synced) > 3)
    assert not any(synced), "a reply without records syncs nothing"
    client = await three[0].client()
    for index in range(30):
        await client.produce("t", a_batch(1), index=index, acks=1)
    go.set()
    await until(lambda: all(h.log.log_end_offset == 1 for h in follower.manager))
    assert 0 < max(map(len, synced)) <= NEW_AT_ONCE


async def test_isr_change_does_not_disturb_fetchers(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(1))
    followed: list[object] = []
    pool = three[1].path.fetchers
    follow = pool.follow
    pool.follow = lambda *asked: (followed.append(asked), follow(*asked))
    epoch = controller.partition("t").partition_epoch
    await kill(three[2])
    await until(lambda: three[1].hosted("t").replica.partition.partition_epoch > epoch)
    assert followed == []
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 1)


async def test_follower_with_failing_disk_is_left_alone(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2), (0, 1, 2))
    client = await three[0].client()
    await client.produce("t", a_batch(1))
    three[1].hosted("t", 0).replica.fail()
    assert await client.produce("t", a_batch(1), index=1) == (Code.NONE, 0)
    three[1].hosted("t", 1).replica.fail()
    (fetcher,) = three[1].path.fetchers._fetchers.values()
    await until(lambda: not fetcher._idle_poll)
    assert await client.produce("t", a_batch(1), index=1, acks=1) == (Code.NONE, 1)


# --- the controller's epoch, both ways ------------------------------------------------------------


async def test_leader_learns_newer_controller_from_followers(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    await until(lambda: len(three[0].manager) == 1)
    three[1].link.highest_epoch = ControllerEpoch(7)
    await until(lambda: 7 in three[0].link.told)
    assert three[0].manager.controller_epoch == 1, "it is not believed before a controller says so"


async def test_followers_learn_newer_controller_from_leader(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    await until(lambda: len(three[0].manager) == 1)
    three[0].link.highest_epoch = ControllerEpoch(7)
    await until(lambda: all(7 in b.link.told for b in three[1:]))


async def test_controller_epoch_requires_registered_broker_epoch(
    controller: Controller, three: Three
) -> None:
    """Any peer may send a fetch: a forged epoch would make the broker look for no controller."""
    controller.create("t", (0, 1, 2))
    await until(lambda: len(three[0].manager) == 1)
    connection = await PeerConnection.open("127.0.0.1", three[0].replication.port, WAIT_S)
    limits = FetchLimits(0, 1, 1)
    for number, broker in enumerate(((1, three[1].epoch - 1), (1, 10**6), (9, 10**6)), 1):
        sender = FetchSender(*broker, controller_epoch=2**40)
        reply = await connection.request(encode_fetch(number, sender, limits, []), WAIT_S)
        assert decode_fetch(reply, number).controller_epoch in (None, 1)
    assert three[0].link.told == []
    sender = FetchSender(1, three[1].epoch, controller_epoch=2)
    reply = await connection.request(encode_fetch(4, sender, limits, []), WAIT_S)
    assert decode_fetch(reply, 4).controller_epoch == 1, "hearsay is not told on"
    assert three[0].link.told == [2]
    connection.close()
