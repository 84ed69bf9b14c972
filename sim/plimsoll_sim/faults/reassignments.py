"""Reassignment objects as an administrator makes and gives them up, well or badly chosen."""

from __future__ import annotations

import random

from plimsoll_operator.api.meta import LocalClusterRef
from plimsoll_operator.api.reassignment import Move, ReassignmentSpec, Throttle
from plimsoll_operator.kube.resources import REASSIGNMENTS
from plimsoll_sim.cluster.world import TOPIC
from plimsoll_sim.faults.fault_context import FaultContext

OBJECTS_MAX = 4
"""Objects that exist at the same time."""
BYTES_PER_SECOND = (None, None, 2_000, 200)


def start_reassignment(context: FaultContext, rng: random.Random) -> str | None:
    """An object with one move: to chosen replicas, or away from a broker."""
    objects = context.world.objects
    topic, members = objects.declared(TOPIC), objects.members
    if topic is None or len(objects.reassignments) >= OBJECTS_MAX:
        return None
    if topic.replication_factor > len(members):
        return None
    name = f"move-{objects.made.get(REASSIGNMENTS, 0)}"
    chosen = tuple(int(b) for b in rng.sample(list(members), topic.replication_factor))
    replan = rng.random() < 0.5
    if rng.random() < 0.6:
        index = rng.randrange(topic.partitions)
        move = Move(topic=TOPIC, partitions=(index,), replicas=chosen)
    else:
        move = Move(topic=TOPIC, away_from=(chosen[0],))
    limit = rng.choice(BYTES_PER_SECOND)
    spec = ReassignmentSpec(
        cluster_ref=LocalClusterRef(name=objects.name),
        moves=(move,),
        on_target_lost="Replan" if replan else "Block",
        throttle=None if limit is None else Throttle(bytes_per_second=str(limit)),
    )
    objects.create(REASSIGNMENTS, name, spec)
    return f"{name}: {move}" + (f" at {limit} bytes/s" if limit else "")


def end_reassignment(context: FaultContext, rng: random.Random) -> str | None:
    """An object is cancelled or deleted, whatever its phase."""
    objects = context.world.objects
    if not objects.reassignments:
        return None
    name = rng.choice(list(objects.reassignments))
    if rng.random() < 0.5:
        objects.edit(REASSIGNMENTS, name, cancelled=True)
        return f"{name} is cancelled"
    objects.delete(REASSIGNMENTS, name)
    return f"{name} is deleted"
