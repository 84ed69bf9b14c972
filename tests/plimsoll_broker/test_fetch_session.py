"""Fetch sessions between brokers: what is said once is not said again, and still counts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker.handlers import fetch_session
from plimsoll_broker.handlers.fetch_session import FetchSession
from plimsoll_broker.replication import follower_session
from plimsoll_broker.replication.peer_connection import PeerConnection
from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone
from plimsoll_wire.fetch import FetchRequest
from plimsoll_wire.replication import (
    NEW_SESSION,
    SESSIONLESS,
    FetchLimits,
    FetchReply,
    FetchSender,
    PartitionFetch,
    decode_fetch,
    encode_fetch,
)

pytestmark = pytest.mark.usefixtures("small_segments")

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]
MANY = 30
LAG_MS = 2_000


class Watched:
    """Every fetch of a session: which partitions it names and forgets, and what its reply says."""

    def __init__(self) -> None:
        self.sessions: list[FetchSession] = []
        self.named: list[list[int]] = []
        self.forgotten: list[int] = []
        self.told: list[list[int]] = []

    def clear(self) -> None:
        self.named.clear()
        self.told.clear()

    def of(self, leader: Broker) -> list[FetchSession]:
        live = [one for one in self.sessions if one._followed]
        return [one for one in live if one._manager is leader.manager]

    def settled(self, leader: Broker) -> bool:
        """Two followers of all that it leads, and none of them has anything to say."""
        led = sum(hosted.replica.leader is not None for hosted in leader.manager)
        sessions = self.of(leader)
        return len(sessions) == 2 and all(
            len(one._followed) == led and not one._open for one in sessions
        )


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    fetch, reply = FetchSession.fetch, FetchSession._reply

    def watched_fetch(self: FetchSession, request: FetchRequest) -> object:
        if self not in seen.sessions:
            seen.sessions.append(self)
        seen.named.append([p.partition for topic in request.topics for p in topic.partitions])
        seen.forgotten += [index for _, indexes in request.forgotten for index in indexes]
        return fetch(self, request)

    def watched_reply(self: FetchSession, look: fetch_session._Look) -> object:
        seen.told.append([followed.key.index for followed, _ in look.found])
        return reply(self, look)

    monkeypatch.setattr(FetchSession, "fetch", watched_fetch)
    monkeypatch.setattr(FetchSession, "_reply", watched_reply)
    return seen


async def rounds(watched: Watched, number: int) -> None:
    """So many fetches more."""
    wanted = len(watched.named) + number
    await until(lambda: len(watched.named) >= wanted)


async def pass_time(leader: Broker, index: int, *followers: int) -> None:
    """More than the lag limit, of the leader's clock, which waits for those who follow: a busy
    machine makes nobody lag.  Until then the limit is the usual one."""
    leader.manager.around.lag_time_max_ms = LAG_MS
    progress = leader.hosted("t", index).replica.leader.followers
    began_ms, step_ms = leader.manager.now_ms(), LAG_MS // 4
    for now_ms in range(began_ms, began_ms + LAG_MS + 2 * step_ms, step_ms):
        leader.manager.now_ms = lambda ms=now_ms: ms
        for follower in followers:
            await until(lambda one=follower, ms=now_ms: progress[one].caught_up_ms == ms)


def led_by_0(controller: Controller, partitions: int = MANY, **configs: str) -> None:
    controller.create("t", *[(0, 1, 2)] * partitions, **configs)


async def test_idle_partitions_are_named_once_and_answered_once(
    controller: Controller, three: Three, watched: Watched
) -> None:
    led_by_0(controller)
    await until(lambda: watched.settled(three[0]))
    watched.clear()
    await rounds(watched, 4)
    assert not any(watched.named)
    assert not any(watched.told)


async def test_fetch_session_names_only_the_busy_partition(
    controller: Controller, three: Three, watched: Watched
) -> None:
    led_by_0(controller)
    client = await three[0].client()
    await until(lambda: watched.settled(three[0]))
    watched.clear()
    for offset in range(5):
        assert await client.produce("t", a_batch(1), index=7) == (Code.NONE, offset)
    await until(lambda: all(b.hosted("t", 7).replica.high_watermark == 5 for b in three))
    assert {index for named in watched.named for index in named} == {7}
    assert {index for told in watched.told for index in told} == {7}
    assert same_logs("t", *three)


async def test_follower_silence_counts_for_unnamed_partitions(
    controller: Controller, three: Three, watched: Watched
) -> None:
    """Idle for longer than the lag limit, and then written to: no follower lags."""
    led_by_0(controller, 5)
    await until(lambda: watched.settled(three[0]))
    await pass_time(three[0], 3, 1, 2)
    client = await three[0].client()
    for index in range(5):
        assert await client.produce("t", a_batch(1), index=index) == (Code.NONE, 0)
        for hosted in three[0].manager:
            three[0].manager.check_lag(hosted)
    assert all(len(controller.partition("t", index).isr) == 3 for index in range(5))
    assert three[0].manager.shrinks.counts == {}


async def test_silent_follower_of_idle_partition_leaves_after_write(
    controller: Controller, three: Three, watched: Watched
) -> None:
    """Its session is still there, and says nothing."""
    led_by_0(controller, 3)
    await until(lambda: watched.settled(three[0]))
    await three[2].path.fetchers.close()
    client = await three[0].client()
    await pass_time(three[0], 1, 1)
    writing = asyncio.create_task(client.produce("t", a_batch(1), index=1))
    await until(lambda: three[0].hosted("t", 1).log.log_end_offset == 1)
    for hosted in three[0].manager:
        three[0].manager.check_lag(hosted)
    assert await writing == (Code.NONE, 0)
    assert controller.partition("t", 1).isr == (0, 1)
    assert controller.partition("t", 2).isr == (0, 1, 2), "nothing was written there"


async def test_moved_log_start_is_reported_when_idle(
    controller: Controller, three: Three, watched: Watched
) -> None:
    led_by_0(controller, 3, **{"segment.bytes": "2000", "retention.ms": "-1"})
    client = await three[0].client()
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900), index=1)
    await until(lambda: watched.settled(three[0]))
    hosted = three[0].hosted("t", 1)
    hosted.log.config = hosted.log.config.__class__(segment_bytes=2_000, retention_bytes=3_000)
    await PeriodicChores(three[0].manager)._retain()
    start = hosted.log.log_start_offset
    assert start > 0
    await until(lambda: all(b.hosted("t", 1).log.log_start_offset == start for b in three))
    await until(lambda: watched.settled(three[0]))


async def test_new_leader_is_followed_from_first_request(
    controller: Controller, three: Three, watched: Watched
) -> None:
    led_by_0(controller, 4)
    client = await three[0].client()
    assert await client.produce("t", a_batch(3), index=2) == (Code.NONE, 0)
    await until(lambda: watched.settled(three[0]))
    await kill(three[0])
    await until(lambda: three[1].hosted("t", 2).replica.leader is not None)
    client = await three[1].client()
    assert await client.produce("t", a_batch(1), index=2) == (Code.NONE, 3)
    assert watched.of(three[0]) == [], "a session ends with its connection"


async def test_deleted_topic_leaves_the_session(
    controller: Controller, three: Three, watched: Watched
) -> None:
    led_by_0(controller, 2)
    controller.create("u", (0, 1, 2))
    await until(lambda: watched.settled(three[0]))
    controller.request(
        TopicObjectGone(
            object=TopicObject(namespace="test", name="t", uid="t"),
            grace_ms=0,
            server_now_ms=1,
            removals_per_hour_max=100,
        )
    )
    controller.now_ms += 10**9
    await until(lambda: all(len(one) == 1 for one in watched.of(three[0])))
    client = await three[0].client()
    assert await client.produce("u", a_batch(1)) == (Code.NONE, 0)


async def test_partition_whose_disk_fails_leaves_the_session(
    controller: Controller, three: Three, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetcher is not notified: it checks everything from time to time."""
    monkeypatch.setattr(follower_session, "SWEEP_MS", 100)
    led_by_0(controller, 3)
    await until(lambda: watched.settled(three[0]))
    three[1].hosted("t", 1).replica.fail()
    await until(lambda: watched.forgotten == [1])
    client = await three[0].client()
    assert await client.produce("t", a_batch(1), index=2) == (Code.NONE, 0)


async def test_leader_and_follower_do_without_sessions(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader of an older version declines; so does ours when there is too much to remember."""
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 2)
    brokers = [await broker(b).start() for b in range(3)]
    led_by_0(controller, 4)
    client = await brokers[0].client()
    for index in range(4):
        assert await client.produce("t", a_batch(2), index=index) == (Code.NONE, 0)
    for index in range(4):
        await until(
            lambda i=index: all(b.hosted("t", i).replica.high_watermark == 2 for b in brokers)
        )


async def test_fetchers_of_one_leader_have_separate_sessions(
    controller: Controller, broker: Make, watched: Watched
) -> None:
    brokers = [await broker(b).start(**{"num.replica.fetchers": "3"}) for b in range(3)]
    led_by_0(controller, 9)
    client = await brokers[0].client()
    await until(lambda: len(brokers[0].manager) == 9)
    for index in range(9):
        assert await client.produce("t", a_batch(2), index=index) == (Code.NONE, 0)
    assert sorted(len(one) for one in watched.of(brokers[0])) == [3] * 6
    assert same_logs("t", *brokers)
    await kill(brokers[0])
    led = [brokers[1].hosted("t", index).replica for index in range(9)]
    await until(lambda: all(replica.leader is not None for replica in led))
    client = await brokers[1].client()
    for index in range(9):
        assert await client.produce("t", a_batch(1), index=index) == (Code.NONE, 2)


# --- a follower that says what it should not ------------------------------------------------------


class Peer:
    """A follower by hand: broker 1, which follows with nothing else."""

    def __init__(self, connection: PeerConnection, broker: Broker, topic_id: UUID) -> None:
        self.connection = connection
        self.sender = FetchSender(broker.id, broker.epoch, 0)
        self.topic_id = topic_id
        self._number = 0

    async def fetch(
        self, session: tuple[int, int], *named: int, forgotten: tuple[int, ...] = (), wait_ms=0
    ) -> FetchReply:
        self._number += 1
        asked = [PartitionFetch(index, 0, 0, None, 0) for index in named]
        topics = [(self.topic_id.bytes, asked)] if named else []
        dropped = [(self.topic_id.bytes, forgotten)] if forgotten else []
        limits = FetchLimits(wait_ms, 2**20, 2**20)
        frame = encode_fetch(self._number, self.sender, limits, topics, session, dropped)
        return decode_fetch(await self.connection.request(frame, WAIT_S), self._number)


@pytest.fixture
async def peer(controller: Controller, broker: Make) -> AsyncIterator[Peer]:
    brokers = [await broker(b).start() for b in range(2)]
    topic_id = controller.create("t", *[(0, 1)] * 3)
    await until(lambda: len(brokers[0].manager) == 3)
    await brokers[1].path.fetchers.close()
    connection = await PeerConnection.open("127.0.0.1", brokers[0].replication.port, WAIT_S)
    yield Peer(connection, brokers[1], topic_id)
    connection.close()


async def test_session_goes_on_request_by_request(peer: Peer) -> None:
    first = await peer.fetch(NEW_SESSION, 0, 1, 2)
    assert first.session_id > 0
    assert [one.partition for one in first.partitions] == [0, 1, 2]
    second = await peer.fetch((first.session_id, 1))
    assert (second.code, second.session_id, second.partitions) == (0, first.session_id, [])
    third = await peer.fetch((first.session_id, 2), 1)
    assert [one.partition for one in third.partitions] == [1], "what is named is answered"


@pytest.mark.parametrize(("epoch", "code"), [(0, 71), (2, 71), (7, 71)])
async def test_lost_or_repeated_request_ends_the_session(peer: Peer, epoch: int, code: int) -> None:
    first = await peer.fetch(NEW_SESSION, 0)
    assert (await peer.fetch((first.session_id, epoch))).code == code
    assert (await peer.fetch((first.session_id, 1))).code == 70, "it is gone"
    assert (await peer.fetch(NEW_SESSION, 0)).session_id != first.session_id


async def test_unknown_session_is_refused(peer: Peer) -> None:
    assert (await peer.fetch((99, 1))).code == 70


async def test_final_fetch_ends_session_with_full_answer(peer: Peer) -> None:
    first = await peer.fetch(NEW_SESSION, 0, 1)
    last = await peer.fetch((first.session_id, -1), 2)
    assert (last.code, last.session_id) == (0, 0)
    assert [one.partition for one in last.partitions] == [2]
    assert (await peer.fetch((first.session_id, 1))).code == 70


async def test_forgotten_partition_gets_no_error(
    peer: Peer,
) -> None:
    first = await peer.fetch(NEW_SESSION, 0, 9)
    assert [one.code for one in first.partitions] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    again = await peer.fetch((first.session_id, 1), wait_ms=5_000)
    assert [one.partition for one in again.partitions] == [9], "an error does not wait"
    last = await peer.fetch((first.session_id, 2), forgotten=(9, 17))
    assert (last.code, last.partitions) == (0, [])


async def test_session_is_bound_to_broker_epoch(peer: Peer) -> None:
    """Positions that an earlier process left must not count for its successor (KIP-903)."""
    first = await peer.fetch(NEW_SESSION, 0)
    for other in (peer.sender._replace(broker_epoch=10**6), peer.sender._replace(broker_id=0)):
        peer.sender, mine = other, peer.sender
        assert (await peer.fetch((first.session_id, 1))).code == 70
        peer.sender = mine
        first = await peer.fetch(NEW_SESSION, 0)


async def test_outlived_process_loses_its_session(
    controller: Controller, peer: Peer, broker: Make
) -> None:
    first = await peer.fetch(NEW_SESSION, 0)
    leader = controller.brokers[0]
    progress = leader.hosted("t", 0).replica.leader.followers[1]
    old = controller.brokers[1]
    await old.stop()
    await (await broker(1).start()).path.fetchers.close()
    await until(lambda: leader.manager.image.brokers[1].broker_epoch > old.epoch)
    before = progress.caught_up_ms
    assert (await peer.fetch((first.session_id, 1))).code == 70
    assert progress.caught_up_ms == before, "it counts for nothing"
    full = await peer.fetch(NEW_SESSION, 0)
    assert full.session_id == 0
    assert [one.code for one in full.partitions] == [Code.NOT_LEADER_OR_FOLLOWER]
    assert (await peer.fetch(SESSIONLESS, 0)).session_id == 0


async def test_session_is_bounded(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session, "PARTITIONS_MAX", 2)
    assert (await peer.fetch(NEW_SESSION, 0, 1, 2)).session_id == 0
    first = await peer.fetch(NEW_SESSION, 0, 1)
    assert (await peer.fetch((first.session_id, 1), 2)).code == 71
