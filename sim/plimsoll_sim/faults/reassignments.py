"""Reassignment objects as an administrator makes and gives them up, well or badly chosen."""

from __future__ import annotations

import random

import msgspec

from plimsoll_core.cluster.model import ReassignmentObject
from plimsoll_core.messages.reassignments import RunReassignment, TopicMove
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults.context import FaultContext

OBJECTS_MAX = 4
"""Objects that exist at the same time."""
BYTES_PER_SECOND = (None, None, 2_000, 200)


def start_reassignment(context: FaultContext, rng: random.Random) -> str | None:
    """An object with one move: to chosen replicas, or away from a broker."""
    wishes = context.world.wishes
    topic = wishes.topics.get(TOPIC)
    if topic is None or len(wishes.moves) >= OBJECTS_MAX:
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
    limit = rng.choice(BYTES_PER_SECOND)
    wishes.moves[holder.uid] = RunReassignment(object=holder, moves=(move,), bytes_per_second=limit)
    return f"{name}: {move}" + (f" at {limit} bytes/s" if limit else "")


def end_reassignment(context: FaultContext, rng: random.Random) -> str | None:
    """An object is cancelled or deleted, whatever its phase."""
    wishes = context.world.wishes
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
