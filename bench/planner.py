"""How long the planner takes: 10,000 partitions, replication factor 3, 30 brokers, one core.

Prints, for each goal, what was planned, and the median and spread of the rounds.

    python -m bench.planner --rounds 5
"""

import argparse
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner.outcome import Plan
from plimsoll_core.planner.placement import Row, place, start_of
from plimsoll_core.planner.plan import plan
from plimsoll_core.planner.request import (
    AddBrokers,
    ChangeTopics,
    FullRebalance,
    Goal,
    MoveOff,
    PlanBroker,
    PlanPartition,
    PlanTopic,
    PreferredLeaders,
    RemoveBrokers,
    Request,
    SetReplicationFactor,
)
from plimsoll_core.planner.waves import Limits, waves

PARTITIONS = 10_000
BROKERS = 30
REPLICATION_FACTOR = 3
SIZE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster before, and what is asked.  Topics were made by the formula on `placed_on`."""

    name: str
    goal: Goal
    placed_on: int = BROKERS
    partitions_per_topic: int = 50
    racks: int = 0
    uneven_racks: bool = False


def brokers_of(case: Case) -> list[PlanBroker]:
    def rack(broker: int) -> str | None:
        if not case.racks:
            return None
        # Uneven: every added broker is in the first rack.
        in_first = case.uneven_racks and broker >= case.placed_on
        return "r0" if in_first else f"r{broker % case.racks}"

    return [PlanBroker(id=BrokerId(n), rack=rack(n)) for n in range(BROKERS)]


def request_of(case: Case) -> Request:
    brokers = brokers_of(case)
    located = [(broker.id, broker.rack) for broker in brokers[: case.placed_on]]
    topics, partitions = [], []
    preferred: Counter[BrokerId] = Counter()
    for number in range(PARTITIONS // case.partitions_per_topic):
        topic = PlanTopic(id=UUID(int=number + 1), name=f"topic-{number}")
        start = start_of(located, case.partitions_per_topic, preferred)
        rows = place(
            located, case.partitions_per_topic, REPLICATION_FACTOR, "RoundRobin", start=start
        )
        assert not isinstance(rows, Refusal)
        preferred.update(row[0] for row in rows)
        topics.append(topic)
        partitions += [partition(topic, index, row) for index, row in enumerate(rows)]
    return Request(
        brokers=tuple(brokers), topics=tuple(topics), partitions=tuple(partitions), goal=case.goal
    )


def partition(topic: PlanTopic, index: int, row: Row) -> PlanPartition:
    return PlanPartition(
        topic_id=topic.id, index=index, replicas=row, isr=row, min_isr=2, size_bytes=SIZE_BYTES
    )


def added(first: int) -> AddBrokers:
    return AddBrokers(brokers=tuple(BrokerId(n) for n in range(first, BROKERS)))


def removed(*brokers: int) -> RemoveBrokers:
    return RemoveBrokers(brokers=tuple(BrokerId(n) for n in brokers))


def every_topic(count: int, change: Callable[[UUID], SetReplicationFactor | MoveOff]) -> Goal:
    return ChangeTopics(changes=tuple(change(UUID(int=n + 1)) for n in range(count)))


def cases() -> Iterator[Case]:
    yield Case(name="add 27 to 3", goal=added(3), placed_on=3)
    yield Case(name="add 10 to 20", goal=added(20), placed_on=20)
    yield Case(name="add 1 to 29", goal=added(29), placed_on=29)
    yield Case(name="add 10 to 20, 3 racks", goal=added(20), placed_on=20, racks=3)
    yield Case(
        name="add 9 to 21, all in one of 3 racks",
        goal=added(21),
        placed_on=21,
        racks=3,
        uneven_racks=True,
    )
    yield Case(name="remove 1", goal=removed(7))
    yield Case(name="remove 10", goal=removed(*range(10)))
    yield Case(name="remove 10, 3 racks", goal=removed(*range(10)), racks=3)
    yield Case(name="full after adding 10", goal=FullRebalance(), placed_on=20)
    yield Case(name="full after adding 10, 3 racks", goal=FullRebalance(), placed_on=20, racks=3)
    yield Case(
        name="full, one topic, after adding 10",
        goal=FullRebalance(),
        placed_on=20,
        partitions_per_topic=PARTITIONS,
    )
    yield Case(
        name="full, topics of 3 partitions",
        goal=FullRebalance(),
        placed_on=20,
        partitions_per_topic=3,
    )
    yield Case(name="leaders", goal=PreferredLeaders(), placed_on=30, partitions_per_topic=40)
    yield Case(
        name="RF 3 to 5, all topics",
        goal=every_topic(
            200, lambda topic: SetReplicationFactor(topic_id=topic, replication_factor=5)
        ),
    )
    yield Case(
        name="all topics off broker 4",
        goal=every_topic(200, lambda topic: MoveOff(topic_id=topic, brokers=(BrokerId(4),))),
    )


def timed(request: Request) -> tuple[float, float, Plan]:
    """Seconds of processor time for the plan, and for its waves."""
    gc.collect()
    began = time.process_time()
    answer = plan(request)
    planned = time.process_time()
    assert isinstance(answer, Plan), answer
    waves(answer, request.partitions, Limits())
    return planned - began, time.process_time() - planned, answer


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="")
    options = arguments.parse_args()
    print("| goal | replicas moved (lower bound) | leaders | plan, s: median (min – max) | waves |")
    print("|---|---|---|---|---|")
    for case in cases():
        if options.only not in case.name:
            continue
        request = request_of(case)
        rounds = [timed(request) for _ in range(options.rounds)]
        seconds = [each[0] for each in rounds]
        answer = rounds[0][2]
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} – {max(seconds):.2f})"
        print(
            f"| {case.name} | {answer.moved_replicas} ({answer.lower_bound})"
            f" | {answer.moved_leaders} | {spread}"
            f" | {statistics.median(each[1] for each in rounds):.2f} |",
            flush=True,
        )
        for relaxation in answer.relaxations:
            print(f"  {relaxation.rule}: {relaxation.message}")


if __name__ == "__main__":
    main()
