"""What is synced for a log's beginning, a cut and its end is synced in threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.plimsoll_broker.no_fetchers import NoFetchers
from tests.plimsoll_broker.test_periodic_chores import SMALL, no_sync_in_this_thread
from tests.plimsoll_broker.test_replication import kill, same_logs, until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.replication.periodic_chores import PeriodicChores
from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log_values import Settling
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicObjectGone

pytestmark = pytest.mark.usefixtures("small_segments")

Three = tuple[Broker, Broker, Broker]
Make = Callable[[int], Broker]


async def test_topic_life_syncs_nothing_on_loop(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await three[0].client()
    with no_sync_in_this_thread(monkeypatch):
        controller.create("t", (0, 1, 2))
        assert await client.produce("t", a_batch(3)) == (Code.NONE, 0)
        controller.request(
            TopicObjectGone(
                object=TopicObject(namespace="test", name="t", uid="t"),
                server_now_ms=1,
                grace_ms=0,
                removals_per_hour_max=1,
            )
        )
        await until(lambda: all(broker.manager.by_name("t", 0) is None for broker in three))
        await until(lambda: all(broker.store.begin_new() is None for broker in three))


async def test_truncation_syncs_in_thread_before_next_fetch(
    controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = await cut_when_it_is_back(controller, three, broker)
    with no_sync_in_this_thread(monkeypatch):
        await until(lambda: same_logs("t", back, three[1]))
    assert back.hosted("t").log.log_end_offset == 4
    assert back.hosted("t").log.cuts == 1


async def cut_when_it_is_back(controller: Controller, three: Three, broker: Make) -> Broker:
    """Broker 0 holds four records that no other broker has, and is about to follow broker 1."""
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
    return await broker(0).start()


async def test_truncation_that_cannot_sync_fails_replica(
    controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = await cut_when_it_is_back(controller, three, broker)

    def fails(settling: Settling) -> None:
        raise StorageError(StorageFault.IO, settling.names, "no")

    monkeypatch.setattr(Settling, "sync", fails)
    await until(lambda: back.hosted("t").replica.failed)
    assert back.hosted("t").log.log_end_offset == 3, "nothing is written behind it"


async def test_restarted_log_is_synced_in_thread(
    controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.create("t", (0, 1, 2), **SMALL)
    client = await three[0].client()
    await client.produce("t", a_batch(1, filler=900))
    await kill(three[2])
    for _ in range(10):
        await client.produce("t", a_batch(1, filler=900))
    await PeriodicChores(three[0].manager)._retain()
    back = await broker(2).start()
    with no_sync_in_this_thread(monkeypatch):
        await until(lambda: same_logs("t", three[0], back))
    assert back.hosted("t").log.log_start_offset == three[0].hosted("t").log.log_start_offset > 1
