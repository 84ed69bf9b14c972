"""Proposals wait to be pulled: the newest of each partition, the oldest partitions first."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from plimsoll_broker.replication.proposal_queue import ProposalQueue
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.model import PartitionKey


def hosted(index: int) -> Any:
    partition = SimpleNamespace(isr=(1, 2))
    return SimpleNamespace(
        key=PartitionKey(UUID(int=7), index), replica=SimpleNamespace(partition=partition)
    )


def proposal(*isr: int, cause: str = "caught up") -> Any:
    return SimpleNamespace(new_isr=isr, cause=cause)


def taken(queue: ProposalQueue, count_max: int = 10) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.hosted.key.index, one.proposal.new_isr) for one in queue.take(count_max)]


def test_newer_proposal_of_a_partition_takes_the_place_of_the_older() -> None:
    queue = ProposalQueue(Traffic())
    queue.add(hosted(0), proposal(1))
    queue.add(hosted(1), proposal(1, 2, 3))
    queue.add(hosted(0), proposal(2))
    assert taken(queue) == [(0, (2,)), (1, (1, 2, 3))]
    assert taken(queue) == []


async def test_waiter_wakes_for_a_proposal_and_waits_again_once_all_are_taken() -> None:
    queue = ProposalQueue(Traffic())
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


def test_proposal_is_counted_when_it_is_made_and_not_when_it_is_sent_again() -> None:
    traffic = Traffic()
    queue = ProposalQueue(traffic)
    queue.add(hosted(0), proposal(1, cause="lag"))
    queue.add(hosted(1), proposal(1, 2, 3))
    queue.put_back(hosted(0), proposal(1, cause="lag"))
    assert (traffic.isr_shrinks, traffic.isr_expands) == ({"lag": 1}, {"caught up": 1})
