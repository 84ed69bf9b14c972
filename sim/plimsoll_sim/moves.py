"""Moves of replicas as an administrator wishes for them, well or badly chosen.

Part of what goes wrong: each says what it did, None for nothing.
"""

from __future__ import annotations

import random

import msgspec

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.messages.reassignments import RunReassignment, TopicMove
from plimsoll_sim.world import TOPIC, World

MOVES_MAX = 4
"""Objects that exist at the same time."""


def start(world: World, rng: random.Random) -> str | None:
    """An object with one move: chosen replicas, or away from a broker."""
    wishes = world.wishes
    topic = wishes.topics.get(TOPIC)
    if topic is None or len(wishes.moves) >= MOVES_MAX:
        return None
    name = f"move-{len(wishes.moves) + len(wishes.gone_moves)}"
    if topic.replication_factor > len(wishes.members):
        return None
    chosen = rng.sample(list(wishes.members), topic.replication_factor)
    replan = rng.random() < 0.5
    if rng.random() < 0.6:
        index = rng.randrange(topic.partitions)
        move = TopicMove(topic=TOPIC, partitions=(index,), replicas=tuple(chosen), replan=replan)
    else:
        move = TopicMove(topic=TOPIC, away_from=(chosen[0],), replan=replan)
    holder = ReassignmentObject(namespace="sim", name=name, uid=f"uid-of-{name}")
    limit = rng.choice((None, None, 2_000, 200))
    wishes.moves[holder.uid] = RunReassignment(object=holder, moves=(move,), bytes_per_second=limit)
    return f"{name}: {move}" + (f" at {limit} bytes/s" if limit else "")


def end(world: World, rng: random.Random) -> str | None:
    """It is cancelled, or its object is deleted, whatever has become of it."""
    wishes = world.wishes
    if not wishes.moves:
        return None
    uid = rng.choice(list(wishes.moves))
    wanted = wishes.moves[uid]
    if rng.random() < 0.5:
        wishes.moves[uid] = msgspec.structs.replace(wanted, cancelled=True)
        return f"{wanted.object.name} is cancelled"
    del wishes.moves[uid]
    wishes.gone_moves[uid] = wanted.object
    return f"{wanted.object.name} is deleted"


def change_factor(world: World, rng: random.Random) -> str | None:
    wanted = world.wishes.topics.get(TOPIC)
    if wanted is None:
        return None
    factor = rng.randint(1, len(world.wishes.members))
    world.declare(replication_factor=factor, min_isr=min(wanted.min_isr, factor))
    return f"{wanted.replication_factor} -> {factor}"
