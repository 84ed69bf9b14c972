"""Changes by people and tools to objects that operators made, and people's Verifications."""

from __future__ import annotations

import random

from plimsoll_operator.api import labels
from plimsoll_operator.api.meta import LocalClusterRef
from plimsoll_operator.api.verification import Produce, VerificationSpec
from plimsoll_operator.api_server import stateful_sets
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    VERIFICATIONS,
    Kind,
)
from plimsoll_sim.cluster.world import TOPIC, World
from plimsoll_sim.faults.fault_context import FaultContext

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
"""Verifications that exist at the same time."""


def delete_pod(context: FaultContext, rng: random.Random) -> str | None:
    """Delete a broker's pod, as an eviction or a person does."""
    return _delete(context, rng, PODS)


def delete_child(context: FaultContext, rng: random.Random) -> str | None:
    """Something that the operator made for the LogCluster."""
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
    """Another client writes a broker's pod template."""
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
    """The cluster's own that are not going yet."""
    return [
        one
        for one in stateful_sets.listed(world.api_server, kind)
        if one.labels.get(labels.INSTANCE) == world.objects.name
        and not one.metadata.get("deletionTimestamp")
    ]
