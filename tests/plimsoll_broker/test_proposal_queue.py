"""Proposals wait to be pulled: the newest of each partition, the oldest partitions first."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from plimsoll_broker.replication.proposal_queue import ProposalQueue, SeenShrinks
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId


def hosted(index: int) -> Any:
    key = PartitionKey(UUID(int=7), index)
    partition = SimpleNamespace(isr=(1, 2), key=key, target=(1, 2, 3))
    return SimpleNamespace(key=key, replica=SimpleNamespace(partition=partition))


def proposal(*isr: int) -> Any:
    return SimpleNamespace(new_isr=tuple(SimpleNamespace(broker_id=b) for b in isr))


def a_queue() -> ProposalQueue:
    return ProposalQueue(Traffic(), SeenShrinks(BrokerId(1)))


def taken(queue: ProposalQueue, count_max: int = 10) -> list[tuple[int, tuple[int, ...]]]:
    return [
        (one.hosted.key.index, tuple(member.broker_id for member in one.proposal.new_isr))
        for one in queue.take(count_max)
    ]


def test_newer_proposal_replaces_the_older() -> None:
    queue = a_queue()
    queue.add(hosted(0), proposal(1))
    queue.add(hosted(1), proposal(1, 2, 3))
    queue.add(hosted(0), proposal(2))
    assert taken(queue) == [(0, (2,)), (1, (1, 2, 3))]
    assert taken(queue) == []


async def test_waiter_wakes_once_for_each_proposal() -> None:
    queue = a_queue()
    waiting = asyncio.ensure_future(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    for index in range(3):
        queue.add(hosted(index), proposal(1))
    await waiting
    assert len(taken(queue, 2)) == 2
    await queue.wait()  # one is left
    assert len(taken(queue, 2)) == 1
    again = asyncio.ensure_future(queue.wait())
    await asyncio.sleep(0)
    assert not again.done()
    queue.put_back(hosted(0), proposal(1))
    await again


def test_proposal_is_counted_once_despite_resends() -> None:
    traffic, shrinks = Traffic(), SeenShrinks(BrokerId(1))
    shrinks.update(ClusterImage(cluster_id=UUID(int=1)))
    queue = ProposalQueue(traffic, shrinks)
    queue.add(hosted(0), proposal(1))
    queue.add(hosted(1), proposal(1, 2, 3))
    queue.put_back(hosted(0), proposal(1))
    lagged = Left(broker_id=BrokerId(2), cause=ShrinkCause.LAG)
    assert (shrinks.counts, traffic.isr_expands) == ({lagged: 1}, 1)
