"""Leaders push to followers whose fetches wait: what counts, and what is asked for instead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Client, Controller, a_batch

from plimsoll_broker.handlers.fetch_session import FetchSession
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


async def test_flush_that_is_due_here_is_not_acknowledged(
    controller: Controller, three: Three, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower flushes each record, by a default of its own; its leader does not."""
    controller.create("t", (0, 1, 2))
    client = await settled(controller, three)
    log = three[1].hosted("t").log
    monkeypatch.setattr(log, "config", replace(log.config, flush_messages=1))
    seen.pushes.clear()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 1)
    assert None in seen.pushes
    assert log.countable_end == 2, "it was flushed before it counted"


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
