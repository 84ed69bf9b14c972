"""A decision's own image is taken over instead of being made again: always what a replay gives."""

from __future__ import annotations

import gc
import time
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_operator.builders import an_image, replay

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import ClusterImage, TopicObject
from plimsoll_core.cluster.records import MembersChanged, Record
from plimsoll_core.controller.decide import Settings, VolatileState, decide
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import BrokerProvenDead, DeclareTopic, Done, Request
from plimsoll_operator.controller.commit_queue import CommitQueue

FENCE_CPU_S_MAX = 1.5
"""Three times what it is meant to cost: a machine may be slow, a quadratic step is slower."""


def members(*numbers: int) -> tuple[MembersChanged, ...]:
    return tuple(MembersChanged(cause="t", broker_ids=(BrokerId(n),)) for n in numbers)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("commit"), st.integers(1, 3), st.just(False)),
        st.tuples(st.just("drop"), st.just(0), st.just(False)),
    ),
    max_size=30,
)


@given(STEPS)
async def test_committed_image_equals_replay_of_the_log(
    steps: list[tuple[str, int, bool]],
) -> None:
    start = ClusterImage(cluster_id=uuid4())
    queue, log = CommitQueue(start), list[Record]()
    for number, (what, count, with_image) in enumerate(steps):
        if what == "add":
            records = members(*range(number, number + count))
            image = apply_all(queue.speculative, records) if with_image else None
            queue.add(records, Done(), image)
        elif what == "commit" and queue.queued:
            queue.take(units_max=count)
            log += queue.commit()[2]
        elif what == "drop":
            queue.drop("dropped")
            assert queue.speculative is queue.committed
        assert queue.committed == replay(start, *log)
        assert queue.queued or queue.speculative is queue.committed


def declared(name: str, partitions: int) -> DeclareTopic:
    return DeclareTopic(
        object=TopicObject(namespace="kafka", name=name, uid=name),
        topic_name=name,
        partitions=partitions,
        replication_factor=3,
        min_isr=2,
    )


async def test_fencing_ten_thousand_partitions_costs_little() -> None:
    soft, settings = VolatileState(), Settings()
    queue = CommitQueue(an_image((0, 1, 2)))

    def work(request: Request | None) -> None:
        while request is not None:
            decision = decide(queue.speculative, soft, request, 1_000_000, settings)
            queue.add(decision.records, decision.answer, decision.image)
            request = decision.again

    for number in range(10):
        work(declared(f"topic-{number}", 1_000))
    while queue.queued:
        queue.take()
        queue.commit()
    victim = queue.committed.brokers[BrokerId(0)]
    assert len(queue.committed.hosted[victim.id]) == 10_000

    gc.disable()  # a collection costs what other tests have left behind
    try:
        began = time.process_time()
        epoch = victim.broker_epoch
        work(BrokerProvenDead(broker_id=victim.id, broker_epoch=epoch, evidence="killed"))
        while queue.queued:
            queue.take()
            queue.commit()
        spent_s = time.process_time() - began
    finally:
        gc.enable()
    partitions = queue.committed.partitions.values()
    assert queue.committed.brokers[victim.id].fenced
    assert not any(victim.id in p.isr or p.leader in (None, victim.id) for p in partitions)
    assert spent_s < FENCE_CPU_S_MAX, f"it took {spent_s:.2f} s of CPU"
