"""Copies keep to their limit and delay no other request, with real logs and real sockets."""

import asyncio
import time
from typing import Any

import pytest
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.test_replication import Make, Three, kill, until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.replication import fetcher
from plimsoll_broker.replication.fetcher import Source
from plimsoll_broker.storage.segment import Segment
from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.cluster.move_owners import CLUSTER
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import (
    LimitMovement,
    ReassignmentState,
    RunReassignment,
    TopicMove,
)
from plimsoll_core.messages.requests import Answer, CreateTopics, NewTopic
from plimsoll_core.replica.throttle import PIECE_BYTES_MIN

KIB = 2**10
BATCH = 8 * KIB
AMPLE = 2**30


def limit(controller: Controller, bytes_per_second: int) -> None:
    controller.request(LimitMovement(bytes_per_second=bytes_per_second))


def move(controller: Controller, index: int, *replicas: int, **fields: Any) -> Answer:
    """By an object of its own; the same again changes what may change."""
    name = f"move-{index}-to-{'-'.join(map(str, replicas))}"
    answer = controller.request(
        RunReassignment(
            object=ReassignmentObject(namespace="test", name=name, uid=name),
            moves=(
                TopicMove(topic="t", partitions=(index,), replicas=tuple(map(BrokerId, replicas))),
            ),
            **fields,
        )
    )
    assert isinstance(answer, ReassignmentState)
    return answer


async def filled(controller: Controller, leader: Broker, *sizes: int) -> Client:
    """Partitions of t on 0, 1 and 2, with so many bytes each."""
    # A client's topic: one that an object declares is not for others to move.
    rows = tuple(tuple(map(BrokerId, (0, 1, 2))) for _ in sizes)
    configs = {"min.insync.replicas": "2"}
    controller.request(CreateTopics(topics=(NewTopic(name="t", assignment=rows, configs=configs),)))
    client = await leader.client()
    batch = a_batch(1, filler=BATCH)
    for index, size in enumerate(sizes):
        for _ in range(size // BATCH):
            assert (await client.produce("t", batch, index=index))[0] == Code.NONE
    return client


def copied(broker: Broker, index: int = 0) -> int:
    hosted = broker.manager.by_name("t", index)
    return 0 if hosted is None else hosted.log.size


def limits_followed(broker: Broker) -> list[str | None]:
    return [source.limit for source in broker.path.fetchers._fetchers]


def at_rest(controller: Controller, index: int = 0) -> bool:
    return not controller.partition("t", index).moving


async def test_copy_takes_as_long_as_its_limit_says(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    await filled(controller, three[0], 480 * KIB)
    limit(controller, 400 * KIB)
    began = time.monotonic()
    move(controller, 0, 0, 1, 3)
    await until(lambda: at_rest(controller))
    took = time.monotonic() - began
    size = three[0].hosted("t").log.size
    assert took >= (size - PIECE_BYTES_MIN - BATCH) / (400 * KIB)
    assert new.bytes_of("t") == three[0].bytes_of("t")
    assert new.manager.traffic.moved_in == size


async def test_write_back_begins_early_for_moved_bytes_alone(
    controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Segment] = []
    monkeypatch.setattr(Segment, "begin_write_back", lambda segment: written.append(segment))
    new = await broker(3).start()
    await filled(controller, three[0], 10 * BATCH)
    await until(lambda: three[1].bytes_of("t") == three[0].bytes_of("t"))
    assert written == []
    move(controller, 0, 0, 1, 3)
    await until(lambda: at_rest(controller))
    assert set(written) == {new.hosted("t").log.segments[-1]}


async def test_reassigned_replica_is_not_throttled_after_joining_isr(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    client = await filled(controller, three[0], 10 * BATCH)
    move(controller, 0, 0, 1, 3)
    await until(lambda: at_rest(controller) and limits_followed(new) == [None])
    limit(controller, 1)
    moved = new.manager.traffic.moved_in
    for _ in range(20):
        assert (await client.produce("t", a_batch(1, filler=BATCH)))[0] == Code.NONE
    await until(lambda: new.bytes_of("t") == three[0].bytes_of("t"))
    assert new.manager.traffic.moved_in == moved


async def test_replica_that_fell_behind_is_not_limited(
    controller: Controller, three: Three
) -> None:
    client = await filled(controller, three[0], BATCH)
    limit(controller, 1)
    await kill(three[2])
    for _ in range(50):
        assert (await client.produce("t", a_batch(1, filler=BATCH)))[0] == Code.NONE
    back = await Broker(controller, 2, three[2].directory).start()
    await until(lambda: 2 in controller.partition("t").isr)
    assert back.bytes_of("t") == three[0].bytes_of("t")
    assert back.manager.traffic.moved_in == 0
    await back.stop()


async def test_other_partitions_do_not_wait_for_copy(controller: Controller, three: Three) -> None:
    """acks=all needs broker 2's fetches, which copies from the same leader meanwhile."""
    client = await filled(controller, three[0], BATCH, 400 * KIB)
    move(controller, 1, 0, 1)
    await until(lambda: at_rest(controller, 1) and copied(three[2], 1) == 0)
    limit(controller, 1)  # a batch, and the next one hours later
    move(controller, 1, 0, 1)  # it is done
    move(controller, 1, 0, 1, 2)
    await until(lambda: copied(three[2], 1) > 0)
    for _ in range(20):
        assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    assert not at_rest(controller, 1)
    assert 2 in controller.partition("t", 0).isr


async def test_changed_limit_counts_while_copying(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    await filled(controller, three[0], 200 * KIB)
    limit(controller, 1)
    move(controller, 0, 0, 1, 3)
    await until(lambda: copied(new) == copied(three[0]) // 25)  # a batch, and hours owed for it
    limit(controller, AMPLE)
    await until(lambda: at_rest(controller))
    assert new.bytes_of("t") == three[0].bytes_of("t")


async def test_paused_move_stops_and_goes_on(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    await filled(controller, three[0], 200 * KIB)
    move(controller, 0, 0, 1, 3, bytes_per_second=1)  # a batch, and the next one hours later
    await until(lambda: copied(new) > 0)
    move(controller, 0, 0, 1, 3, paused=True, bytes_per_second=1)
    await until(lambda: limits_followed(new) == [])
    held = copied(new)
    assert held < copied(three[0])
    move(controller, 0, 0, 1, 3, paused=True, bytes_per_second=AMPLE)
    await asyncio.sleep(0.5)  # a time in which all would have come
    assert copied(new) == held
    assert not at_rest(controller)
    move(controller, 0, 0, 1, 3)
    await until(lambda: at_rest(controller))
    assert new.bytes_of("t") == three[0].bytes_of("t")


async def test_objects_with_own_limits_do_not_interfere(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    await filled(controller, three[0], 100 * KIB, 100 * KIB, 100 * KIB)
    limit(controller, 1)
    move(controller, 0, 0, 1, 3, bytes_per_second=1)
    move(controller, 1, 0, 1, 3, bytes_per_second=1)
    move(controller, 2, 0, 1, 3)
    slow = "Reassignment test/move-0-to-0-1-3"
    names = {slow, "Reassignment test/move-1-to-0-1-3", CLUSTER}
    await until(lambda: set(limits_followed(new)) == names)
    move(controller, 1, 0, 1, 3, bytes_per_second=AMPLE)
    limit(controller, AMPLE)
    await until(lambda: at_rest(controller, 1) and at_rest(controller, 2))
    assert not at_rest(controller, 0)
    await until(lambda: set(limits_followed(new)) == {slow, None})
    key = new.hosted("t", 0).key
    assert new.path.fetchers._following[key] == Source(
        BrokerId(0), 0, "Reassignment test/move-0-to-0-1-3"
    )


async def test_copies_are_made_a_few_at_a_time(
    controller: Controller, three: Three, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader looks at every partition of a request."""
    monkeypatch.setattr(fetcher, "COPIES_AT_ONCE", 2)
    new = await broker(3).start()
    client = await filled(controller, three[0], *[2 * BATCH] * 9)
    limit(controller, 1)
    for index in range(9):
        move(controller, index, 0, 1, 3)
    await until(lambda: sum(copied(new, index) > 0 for index in range(9)) > 0)
    (mover,) = (f for s, f in new.path.fetchers._fetchers.items() if s.limit == CLUSTER)
    assert len(mover) == 9
    assert len(mover._following.asked) == 2
    limit(controller, AMPLE)
    await until(lambda: all(at_rest(controller, index) for index in range(9)))
    assert all(new.bytes_of("t", i) == three[0].bytes_of("t", i) for i in range(9))
    assert (await client.produce("t", a_batch(1), index=8))[0] == Code.NONE


async def test_metrics_tell_the_limits_and_what_was_moved(
    controller: Controller, three: Three, broker: Make
) -> None:
    new = await broker(3).start()
    await filled(controller, three[0], 10 * BATCH)
    limit(controller, 77)

    def told_now() -> dict[str, float]:
        return told(new.manager)

    limits = "movement_limit_bytes_per_second"
    await until(lambda: told_now()[limits + CLUSTER] == 77)
    assert told_now()["moving_partitions"] == 0
    move(controller, 0, 0, 1, 3, paused=False, bytes_per_second=5)
    name = f"{limits}Reassignment test/move-0-to-0-1-3"
    await until(lambda: told_now().get(name) == 5)
    assert told_now()["moving_partitions"] == 1
    move(controller, 0, 0, 1, 3, bytes_per_second=AMPLE)
    await until(lambda: at_rest(controller) and told_now()["moving_partitions"] == 0)
    assert told_now()["moved_bytes_total"] == three[0].hosted("t").log.size
    move(controller, 0, 0, 1, 3)
    await until(lambda: name not in told_now())
