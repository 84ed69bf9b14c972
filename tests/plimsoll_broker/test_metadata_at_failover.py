"""What clients are told of leaders and brokers in the moments after a broker's death."""

import asyncio
import threading

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.described import CLUSTER_ID, ORDERS, Harness, a_broker, an_image
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller
from tests.virtual_time import VirtualTimeLoop

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.handlers import cluster_view, long_work, metadata
from plimsoll_broker.replication import fetcher
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_core.cluster.awaited_fences import AWAITED_MS
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.recent_fences import LISTED_MS
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead
from plimsoll_wire.api_versions import ApiKey

Three = tuple[Broker, Broker, Broker]
EVERYTHING = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
NEWBORN = ClusterImage(cluster_id=CLUSTER_ID)
WITHOUT_0 = (a_broker(0, fenced=True), a_broker(1), a_broker(2, fenced=True))


@pytest.fixture(autouse=True)
def answers_are_held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine half a second is over before a test has looked."""
    monkeypatch.setattr(metadata, "AWAITED_MS", WAIT_S * 2_000)


def asked(harness):
    return harness.ask(ApiKey.METADATA, 12, EVERYTHING)


def asked_for(harness, *names):
    topics = [{"topic_id": None, "name": name} for name in names]
    return harness.ask(ApiKey.METADATA, 12, {**EVERYTHING, "topics": topics})


def leader(reply):
    """Of orders-0, which broker 0 leads at first; -1 when it is fenced."""
    return reply.topics[0].partitions[0].leader_id


def test_recently_fenced_broker_is_listed_not_leading(
    monkeypatch: pytest.MonkeyPatch,
):
    """librdkafka loses track of the partitions of a broker that is missing from the same answer
    that names their new leaders: records that wait for them wait a second or two more."""
    now_ms = [1_000]
    monkeypatch.setattr(cluster_view, "monotonic_ms", lambda: now_ms[0])
    harness = Harness()
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    reply = asked(harness)
    assert leader(reply) == -1
    assert [each.node_id for each in reply.brokers] == [0, 1], "2 was fenced in the first image"
    now_ms[0] += LISTED_MS
    assert [each.node_id for each in asked(harness).brokers] == [1], "no answer is remembered"


def test_stopped_broker_that_led_nothing_is_unlisted():
    harness = Harness()
    stops = replace(a_broker(2), shutting_down=True)
    image = an_image(a_broker(0), a_broker(1), stops)
    harness.watch.update(harness.watch.image, image)
    stopped = replace(stops, fenced=True)
    harness.watch.update(image, an_image(a_broker(0), a_broker(1), stopped))
    assert [each.node_id for each in asked(harness).brokers] == [0, 1], "as in Kafka"


def test_all_registered_brokers_are_listed_when_all_fenced():
    """All were killed and come back, or stop one after another.  librdkafka that is told of no
    broker ends its handles, those of its bootstrap servers too, and never asks anybody again."""
    gone = replace(a_broker(3, fenced=True), endpoints=())
    harness = Harness(an_image(a_broker(0, fenced=True), a_broker(1, fenced=True), gone))
    assert [each.node_id for each in asked(harness).brokers] == [0, 1], "3 has no such listener"
    back = an_image(a_broker(0, fenced=True), a_broker(1), gone)
    harness.watch.update(harness.watch.image, back)
    assert [each.node_id for each in asked(harness).brokers] == [1]


async def test_metadata_of_new_cluster_waits_for_broker():
    harness = Harness(NEWBORN)
    answering = asyncio.ensure_future(asked(harness))
    await asyncio.sleep(0)
    harness.watch.update(harness.watch.image, an_image(a_broker(1, fenced=True)))
    assert [each.node_id for each in (await answering).brokers] == [1]


def test_connection_closes_when_no_broker_appears():
    loop = VirtualTimeLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:

        async def ask():
            began_s = loop.time()
            with pytest.raises(CloseConnection, match="no-broker"):
                await asked(Harness(NEWBORN))
            return loop.time() - began_s

        assert runner.run(ask()) == metadata.OPENED_MS_MAX / 1000


def test_waiters_of_older_list_make_room(monkeypatch: pytest.MonkeyPatch):
    now_ms, made = [1_000], list[object]()
    monkeypatch.setattr(cluster_view, "monotonic_ms", lambda: now_ms[0])
    monkeypatch.setattr(metadata, "REMEMBERED_MAX", 1)
    encoded = metadata._Answering.encoded

    def counted(answering, request):
        made.append(request)
        return encoded(answering, request)

    monkeypatch.setattr(metadata._Answering, "encoded", counted)
    harness = Harness()
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    asked(harness)
    now_ms[0] += LISTED_MS
    made.clear()
    for _ in range(3):
        asked(harness)
    assert len(made) == 1


async def test_metadata_after_leader_loss_waits_for_fence():
    """A client that is told of the dead leader again asks the next time after up to a second."""
    harness = Harness()
    harness.lost_leaders = {BrokerId(0): 3}
    waiting = asyncio.ensure_future(asked(harness))
    await asyncio.sleep(0)
    harness.watch.update(harness.watch.image, harness.watch.image)
    await asyncio.sleep(0)
    assert not waiting.done(), "it leads as far as is known"
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    assert leader(await waiting) == -1
    assert leader(asked(harness)) == -1, "and nobody waits any more"


@pytest.mark.parametrize(
    ("later", "why"),
    [({}, "it is reached again"), ({BrokerId(0): AWAITED_MS}, "it was waited for long enough")],
)
async def test_metadata_naming_leader_is_answered_without_fence(later, why):
    harness = Harness()
    harness.lost_leaders = {BrokerId(0): AWAITED_MS - 1}
    waiting = asyncio.ensure_future(asked(harness))
    await asyncio.sleep(0)
    assert not waiting.done()
    harness.lost_leaders = later
    assert leader(await waiting) == 0, why
    assert leader(asked(harness)) == 0, "and nobody waits any more"


@pytest.mark.parametrize("names", [("payments",), ("missing",), (), ("payments",) * 2])
@pytest.mark.parametrize("at_once", [200, 0])
async def test_metadata_of_unaffected_topics_is_answered_at_once(
    names, at_once, monkeypatch: pytest.MonkeyPatch
):
    """What the same client sent behind them, to write to others, waited with them for 500 ms."""
    monkeypatch.setattr(long_work, "THINGS_AT_ONCE", at_once)
    harness = Harness()
    harness.lost_leaders = {BrokerId(1): 3}
    waiting = asyncio.ensure_future(asked_for(harness, *names))
    everything = asyncio.ensure_future(asked(harness))
    concerned = asyncio.ensure_future(asked_for(harness, "payments", "orders"))
    reply = await asyncio.wait_for(waiting, WAIT_S)
    assert not concerned.done(), "orders-1 is led by broker 1"
    assert not everything.done()
    assert [each.name for each in reply.topics] == list(dict.fromkeys(names))
    harness.lost_leaders = {}
    assert len((await concerned).topics) == 2
    assert len((await everything).topics) == 2


async def test_metadata_wait_ends_with_new_leader():
    harness = Harness()
    harness.lost_leaders = {BrokerId(1): 3}
    waiting = asyncio.ensure_future(asked_for(harness, "orders"))
    await asyncio.sleep(0)
    image = harness.watch.image
    key = PartitionKey(ORDERS, 1)
    moved = replace(image.partitions[key], leader=BrokerId(0))
    harness.watch.update(image, replace(image, partitions=image.partitions.set(key, moved)))
    assert [each.leader_id for each in (await waiting).topics[0].partitions] == [0, 0, 0]


async def test_metadata_waiters_notice_a_leader_elected_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
):
    """They were held until half a second was over, though nobody's fence concerned them."""
    monkeypatch.setattr(long_work, "THINGS_AT_ONCE", 0)
    looking, go_on = threading.Event(), threading.Event()
    find = metadata.led_topics

    def slowly(image, lost):
        looking.set()
        assert go_on.wait(WAIT_S)
        return find(image, lost)

    monkeypatch.setattr(metadata, "led_topics", slowly)
    harness = Harness()
    harness.lost_leaders = {BrokerId(1): 3}
    waiting = asyncio.ensure_future(asked_for(harness, "orders"))
    await until(looking.is_set)
    image = harness.watch.image
    key = PartitionKey(ORDERS, 1)
    moved = replace(image.partitions[key], leader=BrokerId(0))
    harness.watch.update(image, replace(image, partitions=image.partitions.set(key, moved)))
    go_on.set()
    reply = await asyncio.wait_for(waiting, WAIT_S)
    assert [each.leader_id for each in reply.topics[0].partitions] == [0, 0, 0]


def test_thousand_waiting_clients_are_answered_over_turns():
    """Each looked for itself, forty times a second: nobody was heard for a quarter of a second."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(thousand_wait_for_a_fence())


async def thousand_wait_for_a_fence():
    looks = [0]

    class Counted(Harness):
        @property
        def lost_leaders(self):
            looks[0] += 1
            return {BrokerId(0): self.for_ms}

        @lost_leaders.setter
        def lost_leaders(self, _):
            self.for_ms = 3

    harness = Counted()
    waiting = [asyncio.ensure_future(asked_for(harness, "orders")) for _ in range(1_000)]
    await until(lambda: looks[0] >= 2 * len(waiting))
    looks[0] = 0
    await asyncio.sleep(4 * metadata.LOOK_AGAIN_MS / 1000)
    assert looks[0] <= 20
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    answered = [0]
    while answered[-1] < len(waiting):
        await asyncio.sleep(0)
        answered.append(sum(one.done() for one in waiting))
        assert answered[-1] - answered[-2] <= AT_ONCE
    assert {leader(one.result()) for one in waiting} == {-1}


async def test_metadata_is_held_half_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(metadata, "AWAITED_MS", AWAITED_MS)
    harness = Harness()
    harness.lost_leaders = {BrokerId(0): 3}
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert leader(await asked_for(harness, "orders")) == 0
    assert loop.time() - began_s >= AWAITED_MS / 1000


async def test_client_leaving_held_metadata_leaves_others_waiting():
    harness = Harness()
    harness.lost_leaders = {BrokerId(0): 3}
    gone, stays = (asyncio.ensure_future(asked_for(harness, "orders")) for _ in range(2))
    await asyncio.sleep(0.01)
    gone.cancel()
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    assert leader(await stays) == -1


async def test_metadata_ignores_leader_lost_long_ago():
    harness = Harness()
    harness.lost_leaders = {BrokerId(0): 3, BrokerId(1): 60_000}
    waiting = asyncio.ensure_future(asked(harness))
    await asyncio.sleep(0)
    harness.watch.update(harness.watch.image, an_image(*WITHOUT_0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.done(), "it does not look again for it"
    assert leader(await waiting) == -1


async def test_follower_remembers_lost_leader_until_replaced(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    follower = three[1].manager.fetchers
    assert await client.latest("t")
    await until(lambda: len(controller.partition("t").isr) == 3)
    assert follower.lost_leaders() == {}
    await three[0].stop()
    await until(lambda: bool(follower.lost_leaders()))
    assert list(follower.lost_leaders()) == [three[0].id]
    controller.request(
        BrokerProvenDead(broker_id=three[0].id, broker_epoch=three[0].epoch, evidence="killed")
    )
    await until(lambda: follower.lost_leaders() == {})


async def test_first_fetch_after_loss_returns_without_records(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else answers of Metadata would be held for as long as an idle leader lets a fetch wait."""
    controller.create("t", (0, 1, 2))
    await until(lambda: len(controller.partition("t").isr) == 3)
    waits: list[int] = []
    encode = fetcher.encode_fetch

    def encoded(correlation_id, me, limits, *rest):
        if me.broker_id == three[1].id:
            waits.append(limits.wait_ms_max)
        return encode(correlation_id, me, limits, *rest)

    monkeypatch.setattr(fetcher, "encode_fetch", encoded)
    await until(lambda: waits[-1:] != [] and waits[-1] > 0)
    (follower,) = three[1].manager.fetchers._fetchers.values()
    waits.clear()
    follower._connection.connection_lost(None)
    await until(lambda: len(waits) > 1)
    assert waits[0] == 0
    assert waits[1] > 0
