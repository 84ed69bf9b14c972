"""A plan, and a cluster that carries it out: what tests of Rebalances begin with."""

from typing import Any

from plimsoll_core.cluster.model import (
    RebalanceObject,
)
from plimsoll_core.messages.moves import (
    BeginRebalance,
    MoveLimits,
    RunRebalance,
)
from plimsoll_core.messages.requests import (
    BrokerProvenDead,
    CreateTopics,
    NewTopic,
    Tick,
)
from plimsoll_core.planner.rebalance import PlanRequest, make

OBJECT = RebalanceObject(namespace="kafka", name="fill", uid="u1")
OTHER = RebalanceObject(namespace="kafka", name="other", uid="u2")
ONE = MoveLimits(concurrent_moves_per_broker=1)


def topic(world: Any, rows: Any, name: str = "orders", min_isr: int = 2) -> None:
    configs = {"min.insync.replicas": str(min_isr)}
    world.ask(CreateTopics(topics=(NewTopic(name=name, assignment=rows, configs=configs),)))


def planned(world: Any, mode: str = "AddBrokers", *brokers: int, **fields: Any) -> Any:
    return make(world.image, PlanRequest(mode=mode, brokers=brokers, **fields))


def begin(world: Any, mode: str = "AddBrokers", *brokers: int, **fields: Any) -> Any:
    found = planned(world, mode, *brokers)
    values = {
        "object": OBJECT,
        "mode": mode,
        "brokers": brokers,
        "plan_hash": found.hash,
        "moves": found.moves,
        "waves": found.waves,
    }
    return world.ask(BeginRebalance(**{**values, **fields}))


def look(world: Any, **fields: Any) -> Any:
    return world.ask(RunRebalance(**{"object": OBJECT, **fields}))


def row(world: Any, uid: str = "u1") -> Any:
    return world.image.rebalances[uid]


def rest(world: Any, uid: str = "u1") -> Any:
    return world.image.rebalance_rests[uid]


def moving(world: Any) -> list[Any]:
    found = [p for p in world.image.partitions.values() if p.moving]
    return sorted(found, key=lambda p: p.index)


def copied(world: Any, *partitions: Any) -> None:
    """Their new replicas are in sync, as far as their brokers live."""
    for p in partitions or moving(world):
        alive = [b for b in p.replicas if world.image.brokers[b].active]
        world.propose(alive, p.index)


def finish(world: Any, **fields: Any) -> Any:
    for _ in range(100):
        state = look(world, **fields)
        if state.phase != "Running":
            return state
        copied(world)
    raise AssertionError(f"it never ends: {state}")


def dies(world: Any, broker: int, *, away_ms: int = 0) -> None:
    epoch = world.image.brokers[broker].broker_epoch
    world.ask(BrokerProvenDead(broker_id=broker, broker_epoch=epoch, evidence="e"))
    world.ask(Tick())
    world.now_ms += away_ms
    for other in world.image.brokers:
        if world.image.brokers[other].active:
            world.beat(other)


def all_of(world: Any) -> list[Any]:
    return list(world.image.partitions.values())
