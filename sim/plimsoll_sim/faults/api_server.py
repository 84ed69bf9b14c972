"""Faults of the Kubernetes API server and of etcd behind it."""

from __future__ import annotations

import random

from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.api_server import stateful_sets
from plimsoll_operator.api_server.store import Backup
from plimsoll_operator.kube.resources import LOG_CLUSTERS, METADATA_BATCHES, METADATA_SNAPSHOTS
from plimsoll_sim.cluster.world import World
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.faults.processes import any_operator

LOSSY_SHARE = 0.1
"""Share of requests that are lost or carried out late, and of replies that are lost, while the API
server is degraded."""
THROTTLED_SHARE = 0.05
LOST_SHARES = (0.2, 0.5, 1.0)
BACKUP_SHARE = 0.7
"""Probability that etcd's backup is renewed instead of restored."""


def cut_operator_from_api_server(context: FaultContext, rng: random.Random) -> str | None:
    host = any_operator(context, rng)
    if host is None or host.process is None:
        return None
    process, away_from = host.process, context.world.weather.away_from
    away_from[process] = None

    def mend() -> None:
        away_from.pop(process, None)

    context.heal_later(mend)
    return host.name


def stop_api_server(context: FaultContext, _: random.Random) -> str:
    weather = context.world.weather
    weather.down = True

    def start() -> None:
        weather.down = False

    context.heal_later(start)
    return "refuses"


def hang_api_server(context: FaultContext, _: random.Random) -> str:
    weather = context.world.weather
    weather.hung = True

    def resume() -> None:
        weather.hung = False

    context.heal_later(resume)
    return "does not answer"


def degrade_api_server(context: FaultContext, _: random.Random) -> str:
    """Degrade the API server: it loses requests and replies, carries some requests out late, and
    throttles."""
    weather = context.world.weather
    weather.lose_request, weather.lose_reply = LOSSY_SHARE, LOSSY_SHARE
    weather.late, weather.throttle = LOSSY_SHARE, THROTTLED_SHARE

    def mend() -> None:
        weather.lose_request = weather.lose_reply = weather.late = weather.throttle = 0.0

    context.heal_later(mend)
    return "loses, delays, throttles"


def restore_etcd(context: FaultContext, rng: random.Random) -> str | None:
    """Restore etcd to a backup, or renew the backup. Not while an earlier restore has not been
    repaired."""
    world = context.world
    if context.etcd_backup.revision == world.etcd.revision or world.ghost.restored:
        return None
    if rng.random() < BACKUP_SHARE:
        context.etcd_backup = world.etcd.backup()
        return None
    sequence = world.ghost.sequence
    go_back(world, context.etcd_backup)
    return f"from batch {sequence} on"


def go_back(world: World, backup: Backup) -> None:
    """Restore etcd to a backup."""
    world.etcd.restore(backup)
    found = stateful_sets.listed(world.api_server, METADATA_BATCHES)
    world.ghost.restored_to([one.body.get("spec", {}) for one in found])


def lose_log(world: World) -> None:
    """Delete all objects of the metadata log."""
    for kind in (METADATA_BATCHES, METADATA_SNAPSHOTS):
        for one in stateful_sets.listed(world.api_server, kind):
            world.api_server.store.remove(one)


def confirm_history(world: World) -> bool:
    """Confirm, as a person would, the history that an operator names. Return False if none does."""
    choices = [choice for host in world.operators if (choice := host.choice)]
    for choice in choices[:1]:
        world.objects.annotate(LOG_CLUSTERS, world.objects.name, RESTORE_METADATA, choice)
        world.ghost.chosen = True
    return bool(choices)


def lose_metadata_batches(context: FaultContext, rng: random.Random) -> str | None:
    """Delete some or all MetadataBatches, and perhaps the MetadataSnapshots too."""
    world = context.world
    if world.ghost.restored or world.ghost.image.next_offset == 0:
        return None
    share = rng.choice(LOST_SHARES)
    kinds = [METADATA_BATCHES, METADATA_SNAPSHOTS][: rng.randint(1, 2)]
    server = world.api_server
    found = [one for kind in kinds for one in stateful_sets.listed(server, kind)]
    lost = [one for one in found if rng.random() < share]
    if not lost:
        return None
    world.ghost.went_back()
    for one in lost:
        server.store.remove(one)
    return f"{len(lost)} of {len(found)} objects"
