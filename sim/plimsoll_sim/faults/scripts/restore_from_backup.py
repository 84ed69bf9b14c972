"""Takes the metadata log, the operators and brokers' copies of the metadata away, and lets a person
restore them from the backup, or from the copies that are left.

The backup may lag, be older or partial, or hold objects of another cluster. Meanwhile no other
fault strikes. The person confirms one of the histories that an operator names. `checkers.backups`
judges the restore: a broker that still runs with newer metadata has proven them.
"""

from __future__ import annotations

import random
from pathlib import Path

from plimsoll_core.cluster.record_versions import SKIPS_SINCE
from plimsoll_core.cluster.topic_names import CLUSTER_METADATA
from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP, RESTORE_METADATA
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.cluster.world import World
from plimsoll_sim.environment.simulated_disk import Folder
from plimsoll_sim.faults.api_server import lose_log
from plimsoll_sim.faults.backups import objects_of, spoil
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import DATA, BrokerHost

SPOILED_SHARE = 0.5
"""Probability that the backup is older or damaged when it is needed."""
ASKED_SHARE = 0.7
"""Probability that the person asks for the backup although brokers may have newer copies."""
LAG_MS_MAX = 4_000
ANSWERS_MS = 60_000
CONFIRMATIONS_MAX = 3


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    able = world.ghost.image.metadata_version >= SKIPS_SINCE and not world.ghost.restored
    if not able or context.lasting or not objects_of(world):
        return None
    hosts = [host for host in world.brokers.values() if host.running]
    if not hosts:
        return None
    holders = rng.sample(hosts, rng.choice((0, 0, 1, len(hosts))))
    context.run(_script(context, holders, rng))
    return f"{len(holders)} of {len(hosts)} brokers keep the metadata"


def _script(context: FaultContext, holders: list[BrokerHost], rng: random.Random) -> Script:
    world = context.world
    context.alone = True
    is_whole = world.expect_liveness  # no volume is lost
    spoil(world, context.older_backup, rng)
    yield pause(rng.randrange(LAG_MS_MAX))
    if rng.random() < SPOILED_SHARE:
        world.note(f"story: the backup is {spoil(world, context.older_backup, rng)}")
    _lose(world, holders)
    if rng.random() < ASKED_SHARE:
        world.objects.annotate(LOG_CLUSTERS, world.objects.name, RESTORE_FROM_BACKUP, "newest")
    for operator in world.operators:
        world.start_operator(operator)
    for host in world.brokers.values():
        world.start_broker(host)
    yield Wait(lambda: any(host.choices for host in world.operators), ANSWERS_MS)
    yield from _confirm(world, rng)
    world.expect_restored = is_whole and any(host.active for host in world.operators)


def _lose(world: World, holders: list[BrokerHost]) -> None:
    """End every process, and remove the log and the copies of brokers that are no holders."""
    for process in [host.process for host in world.operators] + world.client_processes:
        if process is not None:
            process.die()
    world.clients.clear()  # nobody waits for them
    world.expect_liveness = False  # a backup may not be enough
    for host in world.brokers.values():
        host.kill()
        if host not in holders:
            lose_metadata(host)
    world.ghost.metadata_lost()
    lose_log(world)


def _confirm(world: World, rng: random.Random) -> Script:
    """Confirm one of the histories that an operator names, until one leads."""
    for _ in range(CONFIRMATIONS_MAX):
        choices = next((host.choices for host in world.operators if host.choices), ())
        if not choices:
            world.note("story: no history is offered")
            return
        choice = rng.choice(choices)
        world.ghost.chosen = True
        world.objects.annotate(LOG_CLUSTERS, world.objects.name, RESTORE_METADATA, choice)
        world.note(f"story: {choice} is confirmed")
        yield Wait(lambda: any(host.active for host in world.operators), ANSWERS_MS)
        if any(host.active for host in world.operators):
            world.note("story: an operator leads")
            return


def lose_metadata(host: BrokerHost) -> None:
    """Remove a stopped broker's copy of the metadata from its disk, and no records."""
    found = host.volume.find(Path(DATA))
    if isinstance(found, Folder):
        found.entries.pop(CLUSTER_METADATA, None)
