"""Leaders push to followers whose fetches wait: what counts, and what is asked for instead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller, a_batch

from plimsoll_broker.handlers.fetch_session import FetchSession
from plimsoll_broker.replication import fetcher
from plimsoll_broker.replication.fetcher import Fetcher
from plimsoll_broker.replication.follower_session import Followed
from plimsoll_core.cluster.record_versions import PUSHES_SINCE
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_wire.replication import (
    NEW_SESSION,
    FetchLimits,
    FetchReply,
    FetchSender,
    FetchSessionKey,
    PartitionFetch,
    decode_fetch,
    encode_fetch,
)
from plimsoll_wire.tail_stream import (
    Acknowledgement,
    Push,
    decode_acknowledgement,
    decode_push,
    encode_acknowledgement,
    is_push,
)

Make = Callable[[int], Broker]
Three = tuple[Broker, Broker, Broker]


@pytest.fixture
async def controller() -> Controller:
    return Controller(metadata_version=PUSHES_SINCE)


class Seen:
    """The pushes that followers have taken, with their answers, and the records in replies."""

    def __init__(self) -> None:
        self.pushes: list[tuple[int, bytes] | None] = []
        self.replied = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()
    pushed, reply = Fetcher._pushed, FetchSession._reply

    def watched(self: Fetcher, frame: memoryview) -> tuple[int, bytes] | None:
        answer = pushed(self, frame)
        found.pushes.append(answer)
        return answer

    def watched_reply(self: FetchSession, look) -> object:
        found.replied += look.size
        return reply(self, look)

    monkeypatch.setattr(Fetcher, "_pushed", watched)
    monkeypatch.setattr(FetchSession, "_reply", watched_reply)
    return found


async def settled(controller: Controller, brokers: Three) -> Client:
    """A client of the leader, whose followers have one record and wait for more."""
    client = await brokers[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await until(lambda: controller.partition("t").isr == (0, 1, 2))
    return client


async def test_records_are_pushed_while_fetches_wait(
    controller: Controller, three: Three, seen: Seen
) -> None:
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    for number in range(1, 50):
        assert await client.produce("t", a_batch(1)) == (Code.NONE, number)
    assert len(seen.pushes) > 50, "of 98; the others came between two fetches"
    assert None not in seen.pushes
    assert same_logs("t", *three)


async def test_older_metadata_version_has_no_pushes(
    controller: Controller, three: Three, seen: Seen
) -> None:
    controller.image = msgspec.structs.replace(controller.image, metadata_version=PUSHES_SINCE - 1)
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    for number in range(1, 10):
        assert await client.produce("t", a_batch(1)) == (Code.NONE, number)
    assert not seen.pushes


async def test_flushed_records_are_fetched(
    controller: Controller, three: Three, seen: Seen
) -> None:
    controller.create("t", (0, 1, 2), **{"flush.messages": "1"})
    client = await settled(controller, three)
    for number in range(1, 5):
        assert await client.produce("t", a_batch(1)) == (Code.NONE, number)
    assert not seen.pushes


async def test_partition_with_pushes_survives_its_leader(
    controller: Controller, three: Three, seen: Seen
) -> None:
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    assert await client.produce("t", a_batch(3)) == (Code.NONE, 1)
    await kill(three[0])
    await until(lambda: three[1].hosted("t").replica.leader is not None)
    client = await three[1].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 4)
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 5)
    assert same_logs("t", three[1], three[2])


async def test_damaged_push_is_fetched_instead(
    controller: Controller, three: Three, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    take = Fetcher._took

    def damaged(self: Fetcher, followed: Followed, push: Push) -> bool:
        push.reply.records[-1] ^= 1
        return take(self, followed, push)

    monkeypatch.setattr(Fetcher, "_took", damaged)
    for number in range(1, 4):
        assert await client.produce("t", a_batch(1)) == (Code.NONE, number)
    assert seen.replied
    assert same_logs("t", *three)


async def test_follower_that_must_flush_asks_for_reply(
    controller: Controller, three: Three, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower flushes each record, by a default of its own; its leader does not. A reply's
    records are flushed before the next fetch, which follows at once."""
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    log = three[1].hosted("t").log
    await three[1].manager.flusher.sync(three[1].hosted("t"))
    monkeypatch.setattr(log, "config", replace(log.config, flush_messages=1))
    seen.pushes.clear()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 1)
    assert log.countable_end == 2, "it was flushed before it counted"
    said = [decode_acknowledgement(each[1][4:]) for each in seen.pushes if each is not None]
    assert len(said) == len(seen.pushes)
    assert any(each.asks for each in said)


async def test_first_fetch_of_session_takes_no_pushes(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push names the session, which the follower knows by the reply."""
    asked: list[tuple[FetchSessionKey, bool]] = []

    def encode(*of: Any) -> bytes:
        asked.append((of[4], of[2].takes_pushes))
        return encode_fetch(*of)

    monkeypatch.setattr(fetcher, "encode_fetch", encode)
    controller.create("t", (0, 1, 2))
    await settled(controller, three)
    assert {takes for session, takes in asked if session == NEW_SESSION} == {False}
    await until(lambda: any(takes for _, takes in asked))


# --- a follower by hand ---------------------------------------------------------------------------


class Hand:
    """Broker 1 as a follower by hand, of one partition that broker 0 leads."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, follower: Broker
    ) -> None:
        self._reader, self._writer = reader, writer
        self._me = FetchSender(follower.id, follower.epoch, 0)
        self._number = 0
        self.session = NEW_SESSION

    def send(self, *said: Acknowledgement) -> None:
        self._writer.write(b"".join(map(encode_acknowledgement, said)))

    def fetch(self, topic_id: UUID, *positions: int, wait_ms: int = WAIT_S * 1_000) -> None:
        self._number += 1
        asked = [PartitionFetch(0, 0, at, 0 if at else None, 0) for at in positions]
        frame = encode_fetch(
            *(self._number, self._me, FetchLimits(wait_ms, 2**20, 2**20, takes_pushes=True)),
            *([(topic_id.bytes, asked)] if asked else [], self.session),
        )
        self._writer.write(frame)
        if self.session != NEW_SESSION:
            self.session = self.session._replace(epoch=self.session.epoch + 1)

    async def heard(self) -> Push | FetchReply:
        async with asyncio.timeout(WAIT_S):
            head = await self._reader.readexactly(4)
            frame = await self._reader.readexactly(int.from_bytes(head, "big"))
        if is_push(frame):
            return decode_push(memoryview(head + frame))
        reply = decode_fetch(memoryview(frame), int.from_bytes(frame[:4], "big"))
        if self.session == NEW_SESSION:
            self.session = FetchSessionKey(reply.session_id, 1)
        return reply

    async def pushed(self) -> Push:
        heard = await self.heard()
        assert isinstance(heard, Push)
        return heard

    async def replied(self) -> FetchReply:
        heard = await self.heard()
        assert isinstance(heard, FetchReply)
        return heard

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def position(push: Push, offset: int, **fields: int | bool) -> Acknowledgement:
    said = Acknowledgement(push.session_id, push.slot, False, 0, offset, 0, 0)
    return said._replace(**fields)


@pytest.fixture
async def pair(controller: Controller, broker: Make) -> tuple[Broker, Broker]:
    return await broker(0).start(), await broker(1).start()


@pytest.fixture
async def hand(
    controller: Controller, pair: tuple[Broker, Broker]
) -> AsyncIterator[tuple[Hand, Broker, Client]]:
    """It has one record and waits for the next; the client has written none since."""
    leader, follower = pair
    topic_id = controller.create("t", (0, 1))
    client = await leader.client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await follower.path.fetchers.close()
    port = leader.replication.port
    one = Hand(*await asyncio.open_connection("127.0.0.1", port), follower)
    one.fetch(topic_id, 1, wait_ms=0)
    await one.replied()
    one.fetch(topic_id)
    yield one, leader, client
    await one.close()


def progress(leader: Broker) -> int | None:
    return leader.hosted("t").replica.leader.followers[1].log_end


async def written(client: Client) -> asyncio.Future:
    """A produce that waits for its commit."""
    return asyncio.ensure_future(client.produce("t", a_batch(1)))


async def test_acknowledgement_commits(hand: tuple[Hand, Broker, Client]) -> None:
    one, leader, client = hand
    waiting = await written(client)
    push = await one.pushed()
    assert (push.leader_epoch, push.base_offset) == (0, 1)
    assert not waiting.done()
    assert progress(leader) == 1
    one.send(position(push, 2))
    assert await waiting == (Code.NONE, 1)
    assert progress(leader) == 2


@pytest.mark.parametrize(
    "fields",
    [{"session_id": 99}, {"slot": 99}],
)
async def test_acknowledgement_of_another_session_counts_for_nothing(
    hand: tuple[Hand, Broker, Client], fields: dict[str, int]
) -> None:
    one, leader, client = hand
    waiting = await written(client)
    push = await one.pushed()
    one.send(position(push, 2, **fields))
    one.send(position(push, 1))  # the next one, as a fence
    one.send(position(push, 1, asks=True))
    await one.replied()
    assert progress(leader) == 1
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("offset", [0, 3])
async def test_acknowledgement_of_what_was_not_pushed_closes(
    hand: tuple[Hand, Broker, Client], offset: int
) -> None:
    one, leader, client = hand
    waiting = await written(client)
    push = await one.pushed()
    one.send(position(push, offset))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await one.heard()
    assert progress(leader) == 1
    waiting.cancel()


@pytest.mark.parametrize(
    ("epoch", "code"), [(1, Code.UNKNOWN_LEADER_EPOCH), (-1, Code.FENCED_LEADER_EPOCH)]
)
async def test_acknowledgement_in_another_epoch_is_refused(
    hand: tuple[Hand, Broker, Client], epoch: int, code: Code
) -> None:
    one, leader, client = hand
    waiting = await written(client)
    push = await one.pushed()
    one.send(position(push, 2, leader_epoch=epoch))
    reply = await one.replied()
    assert [each.code for each in reply.partitions] == [code]
    assert progress(leader) == 1
    assert not waiting.done()
    waiting.cancel()


async def test_acknowledgement_of_earlier_process_is_refused(
    hand: tuple[Hand, Broker, Client],
) -> None:
    one, leader, client = hand
    waiting = await written(client)
    push = await one.pushed()
    around = leader.manager.around
    newer = around.brokers[BrokerId(1)]
    later = msgspec.structs.replace(newer, broker_epoch=BrokerEpoch(newer.broker_epoch + 1))
    around.brokers = around.brokers.set(BrokerId(1), later)
    one.send(position(push, 2))
    reply = await one.replied()
    assert [each.code for each in reply.partitions] == [Code.NOT_LEADER_OR_FOLLOWER]
    assert progress(leader) == 1
    waiting.cancel()


async def test_acknowledgements_behind_a_refused_one_are_ignored(
    controller: Controller, hand: tuple[Hand, Broker, Client]
) -> None:
    """They were on their way. The connection carries all other partitions, too."""
    one, leader, client = hand
    pushes = []
    for _ in range(2):
        await client.produce("t", a_batch(1), acks=1)
        pushes.append(await one.pushed())
    around = leader.manager.around
    mine = around.brokers[BrokerId(1)]
    later = msgspec.structs.replace(mine, broker_epoch=BrokerEpoch(mine.broker_epoch + 1))
    around.brokers = around.brokers.set(BrokerId(1), later)
    one.send(position(pushes[0], 2), position(pushes[1], 3))
    reply = await one.replied()
    assert [each.code for each in reply.partitions] == [Code.NOT_LEADER_OR_FOLLOWER]
    around.brokers = around.brokers.set(BrokerId(1), mine)
    one.fetch(controller.image.topic_ids["t"], 3)
    await until(lambda: progress(leader) == 3)


async def test_rest_is_replied_once_pushes_are_acknowledged(
    hand: tuple[Hand, Broker, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second record is no longer in memory; the fetch could wait for long."""
    one, leader, client = hand
    await client.produce("t", a_batch(1), acks=1)
    push = await one.pushed()
    forgotten = SimpleNamespace(read=lambda *_: None)
    monkeypatch.setattr(leader.hosted("t").log, "recent", forgotten)
    await client.produce("t", a_batch(1), acks=1)
    one.send(position(push, 2))
    reply = await one.replied()
    assert [len(each.records) for each in reply.partitions] == [len(push.reply.records)]


async def test_copies_do_not_wait_behind_unacknowledged_pushes(
    controller: Controller, pair: tuple[Broker, Broker], hand: tuple[Hand, Broker, Client]
) -> None:
    one, leader, client = hand
    pair[1].deaf = True
    other = controller.create("u", (0, 1))
    await until(lambda: leader.manager.by_name("u", 0) is not None)
    one.fetch(other, 0)
    await one.replied()
    for _ in range(5):
        assert (await client.produce("t", a_batch(1, filler=250_000), acks=1))[0] == Code.NONE
        await one.pushed()
    (session,) = [each for each in sessions(leader) if len(each)]
    assert session._window.room <= 0
    await client.produce("u", a_batch(1), acks=1)
    reply = await one.replied()
    assert [each.topic_id for each in reply.partitions if each.records] == [other.bytes]


async def test_leader_with_slowed_links_pushes_nothing(
    hand: tuple[Hand, Broker, Client],
) -> None:
    one, leader, client = hand
    leader.manager.peers.delay_s = 0.01
    await client.produce("t", a_batch(1), acks=1)
    reply = await one.replied()
    assert [bool(each.records) for each in reply.partitions] == [True]


async def test_follower_that_asks_gets_the_records(hand: tuple[Hand, Broker, Client]) -> None:
    one, _, client = hand
    waiting = await written(client)
    push = await one.pushed()
    one.send(position(push, 1, asks=True))
    reply = await one.replied()
    assert [bytes(each.records) for each in reply.partitions] == [bytes(push.reply.records)]
    waiting.cancel()


async def test_fetch_voids_unacknowledged_pushes(
    controller: Controller, hand: tuple[Hand, Broker, Client]
) -> None:
    one, leader, client = hand
    waiting = await written(client)
    first = await one.pushed()
    one.fetch(controller.image.topic_ids["t"])
    assert (await one.replied()).partitions == [], "the follower may have the records already"
    again = await one.pushed()
    assert again == first
    assert progress(leader) == 1
    one.send(position(again, 2))
    assert await waiting == (Code.NONE, 1)


async def test_window_bounds_what_is_unacknowledged(
    controller: Controller, hand: tuple[Hand, Broker, Client]
) -> None:
    one, leader, client = hand
    for _ in range(6):
        assert (await client.produce("t", a_batch(1, filler=250_000), acks=1))[0] == Code.NONE
    pushes = [await one.pushed() for _ in range(5)]
    (session,) = [each for each in sessions(leader) if len(each)]
    assert session._window.room <= 0
    one.send(position(pushes[-1], 6))
    one.send(position(await one.pushed(), 7))
    await until(lambda: session._window.unacknowledged == 0)


def sessions(leader: Broker) -> list[FetchSession]:
    found = leader.hosted("t").replica.parked._for_end
    return [each for each in found if isinstance(each, FetchSession)]
