"""onControllerLoss: StopServing, over real sockets: what a leader that hears no controller still
answers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.clocks import monotonic_ms
from plimsoll_core.errors import Code
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.replica.leader_lease import LeaderLease

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]
REFUSED = Code.NOT_LEADER_OR_FOLLOWER
LATER_MS = 20_000
KEPT = {"retention.ms": "-1"}


def give_lease(broker: Broker) -> LeaderLease:
    """As the heartbeats do: the controller has answered just now."""
    manager = broker.manager
    manager.settings = replace(manager.settings, stops_serving=True)
    hear_controller(broker)
    return manager.serving.lease


def hear_controller(broker: Broker) -> None:
    end = MetadataOffset(broker.controller.image.next_offset)
    broker.manager.serving.lease.answered(broker.manager.now_ms(), 6_000, end)


def pass_time(broker: Broker) -> None:
    """Longer than any lease lasts, and not yet so long that who is silent counts as lagging."""
    before = broker.manager.now_ms() - monotonic_ms()
    broker.manager.now_ms = lambda: monotonic_ms() + before + LATER_MS


async def answers(client: Client, offset: int) -> tuple[int, int, int]:
    """What a producer with acks=1, a consumer, and one that asks for the end are told."""
    written, _ = await client.produce("t", a_batch(1), acks=1)
    return written, (await client.fetch("t", offset)).code, (await client.latest("t"))[0]


async def client_of_leader(controller: Controller, three: Three) -> Client:
    """Broker 0 leads `t` under a lease, and all three have its first record."""
    controller.create("t", (0, 1, 2), **KEPT)
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    give_lease(three[0])
    return client


async def test_leader_without_a_controller_serves_while_everybody_follows(
    controller: Controller, three: Three
) -> None:
    client = await client_of_leader(controller, three)
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)
    pass_time(three[0])
    hosted = three[0].hosted("t")
    await until(lambda: three[0].manager.may_serve(hosted))
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)


async def test_leader_without_controller_and_follower_stops(
    controller: Controller, three: Three
) -> None:
    """That follower may lead by now.  acks=all is asked for as ever: it gathers no quorum."""
    client = await client_of_leader(controller, three)
    await three[2].path.fetchers.close()
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)
    end = three[0].hosted("t").log.log_end_offset
    pass_time(three[0])
    assert await answers(client, 0) == (REFUSED, REFUSED, REFUSED)
    assert three[0].hosted("t").log.log_end_offset == end, "refused before it was written"
    assert (await client.produce("t", a_batch(1), timeout_ms=0))[0] == Code.REQUEST_TIMED_OUT
    await until(lambda: three[1].hosted("t").log.log_end_offset == end + 1)
    hear_controller(three[0])
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)


async def test_answer_counts_once_its_metadata_is_applied(
    controller: Controller, three: Three
) -> None:
    """A metadata stream that is stuck: heartbeats are answered, the election was not heard of."""
    client = await client_of_leader(controller, three)
    await three[2].path.fetchers.close()
    three[0].deaf = True
    controller.create("u", (0,))
    pass_time(three[0])
    hear_controller(three[0])
    assert await answers(client, 0) == (REFUSED, REFUSED, REFUSED)
    three[0].hear()
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)


async def test_waiting_poll_hears_of_expired_lease(controller: Controller, three: Three) -> None:
    """It is checked when the reply is made."""
    controller.create("t", (0, 1, 2), **KEPT)
    client, other = await three[0].client(), await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    give_lease(three[0])
    waiting = asyncio.create_task(other.fetch("t", 1, wait_ms=30_000))
    parked = three[0].hosted("t").replica.parked
    await until(lambda: bool(parked._for_commit))
    await three[2].path.fetchers.close()
    pass_time(three[0])
    assert not waiting.done()
    (poll,) = parked._for_commit
    poll._expired()
    assert (await waiting).code == REFUSED


async def test_partition_with_one_replica_serves_for_ever(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **KEPT)
    client = await one.client()
    give_lease(one)
    pass_time(one)
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)


async def test_leader_by_default_serves_without_controller(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2), **KEPT)
    client = await three[0].client()
    assert await client.produce("t", a_batch(1)) == (Code.NONE, 0)
    await three[2].path.fetchers.close()
    pass_time(three[0])
    assert await answers(client, 0) == (Code.NONE, Code.NONE, Code.NONE)
