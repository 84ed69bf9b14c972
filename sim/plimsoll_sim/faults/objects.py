"""Faults that are changes of objects by people and tools: LogCluster, Users, moves, Rebalances,
Verifications, and objects that operators created.
"""

from __future__ import annotations

import random

from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api import labels
from plimsoll_operator.api.meta import LocalClusterRef
from plimsoll_operator.api.pools import IDS_OF_A_POOL
from plimsoll_operator.api.reassignment import Move, ReassignmentSpec, Throttle
from plimsoll_operator.api.rebalance import Limits, Mode, RebalanceSpec
from plimsoll_operator.api.verification import Produce, VerificationSpec
from plimsoll_operator.api_server import stateful_sets
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    PODS,
    REASSIGNMENTS,
    REBALANCES,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    VERIFICATIONS,
    Kind,
)
from plimsoll_sim.cluster.world import TOPIC, World
from plimsoll_sim.desired import revisions
from plimsoll_sim.desired.users import change_anything
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.hosts import certified_users as change

CHILDREN = (
    STATEFUL_SETS,
    CONFIG_MAPS,
    SERVICES,
    SERVICE_ACCOUNTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
)
TOUCHED = "sim/touched"
OBJECTS_MAX = 2
"""Maximum number of Verifications at the same time."""
WHOLE_POOL_SHARE = 0.3
"""Share of removals, in a cluster with pools, that remove all brokers of a pool if the others have
room."""


def delete_pod(context: FaultContext, rng: random.Random) -> str | None:
    """Delete a broker's pod, as an eviction or a person does."""
    return _delete(context, rng, PODS)


def delete_child(context: FaultContext, rng: random.Random) -> str | None:
    """Delete an object that the operator created for the LogCluster."""
    return _delete(context, rng, rng.choice(CHILDREN))


def _delete(context: FaultContext, rng: random.Random, kind: Kind) -> str | None:
    world = context.world
    found = _made(world, kind)
    if not found:
        return None
    one = rng.choice(found)
    where = stateful_sets.target(world.api_server, kind, *one.key)
    world.api_server.writes.delete(where, {}, dry_run=False)
    return f"{kind.kind} {one.key[1]}"


def change_stateful_set(context: FaultContext, rng: random.Random) -> str | None:
    """Change a broker's pod template, as another client."""
    world = context.world
    found = _made(world, STATEFUL_SETS)
    if not found:
        return None
    one = rng.choice(found)
    spec = one.body["spec"]
    template = spec["template"]
    own = {**(template["metadata"].get("annotations") or {}), TOUCHED: str(rng.randint(1, 9))}
    changed = {**template, "metadata": {**template["metadata"], "annotations": own}}
    where = stateful_sets.target(world.api_server, STATEFUL_SETS, *one.key)
    body = {**one.body, "spec": {**spec, "template": changed}}
    world.api_server.writes.replace(where, body, dry_run=False)
    return one.key[1]


def start_verification(context: FaultContext, rng: random.Random) -> str | None:
    """Start a Verification of the topic; if there are many, delete one instead."""
    objects = context.world.objects
    known = objects.names(VERIFICATIONS)
    if len(known) >= OBJECTS_MAX:
        name = rng.choice(known)
        objects.delete(VERIFICATIONS, name)
        return f"{name} is deleted"
    name = f"verification-{objects.made.get(VERIFICATIONS, 0)}"
    spec = VerificationSpec(
        cluster_ref=LocalClusterRef(name=objects.name),
        topic=TOPIC,
        produce=Produce(records=10),
    )
    objects.create(VERIFICATIONS, name, spec)
    return name


def _made(world: World, kind: Kind) -> list[StoredObject]:
    """Return the objects of a kind that operators created for the cluster and that are not being
    deleted."""
    return [
        one
        for one in stateful_sets.listed(world.api_server, kind)
        if one.labels.get(labels.INSTANCE) == world.objects.name
        and not one.metadata.get("deletionTimestamp")
    ]


# --- the LogCluster and Users ---------------------------------------------------------------------


def remove_broker(context: FaultContext, rng: random.Random) -> str | None:
    """Remove a member in the LogCluster's spec, if the topics' replicas find room on the others."""
    world = context.world
    objects = world.objects
    factors = [wanted.replication_factor for wanted in objects.topics.values()]
    factors.append(world.options.factor_max)  # also of a topic that is made again, and of groups'
    members = objects.members
    if len(members) <= max(factors):
        return None
    going = rng.choice(members)
    lost = [going]
    if world.options.pooled and rng.random() < WHOLE_POOL_SHARE:
        pool = [b for b in members if b // IDS_OF_A_POOL == going // IDS_OF_A_POOL]
        lost = pool if len(members) - len(pool) >= max(factors) else lost
    kept = tuple(b for b in members if b not in lost)
    objects.set_members(kept, world.options.broker_ids)
    return f"{brokers_text(lost)} {'is' if len(lost) == 1 else 'are'} not wanted any more"


def add_broker(context: FaultContext, rng: random.Random) -> str | None:
    """Make a broker a member again that was removed or is being removed."""
    world = context.world
    objects = world.objects
    missing = [b for b in map(BrokerId, world.brokers) if b not in objects.members]
    if not missing:
        return None
    coming = rng.choice(missing)
    wanted = tuple(sorted((*objects.members, coming)))
    objects.set_members(wanted, world.options.broker_ids)
    return f"broker {coming} is wanted again"


def roll_brokers(context: FaultContext, rng: random.Random) -> str:
    """Change the revision of every broker's pod, perhaps to one that does not start until it is
    corrected."""
    world = context.world
    context.heal_later(lambda: revisions.correct(world.objects))
    return revisions.change(world.objects, rng)


def change_user(context: FaultContext, rng: random.Random) -> str | None:
    """Change a user's rules or password, or disable or enable it."""
    secured = context.world.secured
    if secured is None or secured.tenants is None:
        return None
    return change_anything(secured.tenants.users, rng)


def change_certified(context: FaultContext, rng: random.Random) -> str | None:
    """Change a user that logs in by certificate."""
    secured = context.world.secured
    if secured is None or secured.tenants is None or secured.tenants.certified is None:
        return None
    return change.change_certified(secured.tenants.certified, rng)


# --- Reassignments --------------------------------------------------------------------------------

REASSIGNMENTS_MAX = 4
"""Maximum number of Reassignments at the same time."""
BYTES_PER_SECOND = (None, None, 2_000, 200)


def start_reassignment(context: FaultContext, rng: random.Random) -> str | None:
    """Create a Reassignment with one move: to chosen replicas, or away from a broker."""
    objects = context.world.objects
    topic, members = objects.declared(TOPIC), objects.members
    if topic is None or len(objects.reassignments) >= REASSIGNMENTS_MAX:
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
    """Cancel or delete a Reassignment, whatever its phase."""
    objects = context.world.objects
    if not objects.reassignments:
        return None
    name = rng.choice(list(objects.reassignments))
    if rng.random() < 0.5:
        objects.edit(REASSIGNMENTS, name, cancelled=True)
        return f"{name} is cancelled"
    objects.delete(REASSIGNMENTS, name)
    return f"{name} is deleted"


# --- Rebalances -----------------------------------------------------------------------------------

REBALANCES_MAX = 3
"""Maximum number of Rebalances at the same time."""
MODES: tuple[Mode, ...] = ("Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders", "Load")
ADDED_MAX = 2
REMOVED_MAX = 1


def start_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """Create a Rebalance of any mode; some wait for approval."""
    objects = context.world.objects
    if len(objects.rebalances) >= REBALANCES_MAX:
        return None
    name = f"rebalance-{objects.made.get(REBALANCES, 0)}"
    mode = rng.choice(MODES)
    brokers = None
    if mode in ("AddBrokers", "RemoveBrokers"):
        most = ADDED_MAX if mode == "AddBrokers" else REMOVED_MAX
        members = list(objects.members)
        chosen = rng.sample(members, rng.randint(1, min(most, len(members))))
        brokers = tuple(sorted(int(broker) for broker in chosen))
    spec = RebalanceSpec(
        cluster_ref=LocalClusterRef(name=objects.name),
        mode=mode,
        brokers=brokers,
        approval=rng.choice(("Manual", "Automatic")),
        limits=Limits(concurrent_moves_per_broker=rng.choice((1, 2, 5))),
    )
    objects.create(REBALANCES, name, spec)
    return f"{name}: {spec}"


def end_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """Cancel or delete a Rebalance, whatever its phase."""
    objects = context.world.objects
    if not objects.rebalances:
        return None
    name = rng.choice(list(objects.rebalances))
    if rng.random() < 0.5:
        objects.edit(REBALANCES, name, cancelled=True)
        return f"{name} is cancelled"
    objects.delete(REBALANCES, name)
    return f"{name} is deleted"


def pause_rebalance(context: FaultContext, rng: random.Random) -> str | None:
    """Pause a Rebalance, or resume a paused one."""
    objects = context.world.objects
    if not objects.rebalances:
        return None
    name = rng.choice(list(objects.rebalances))
    paused = bool(objects.rebalances[name].spec.paused)
    objects.edit(REBALANCES, name, paused=None if paused else True)
    return f"{name} {'goes on' if paused else 'is paused'}"
