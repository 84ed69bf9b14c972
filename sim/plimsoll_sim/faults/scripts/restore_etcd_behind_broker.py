"""Restores etcd to a state that is older than the metadata which one broker, the keeper, has
applied, while no other process has applied it.

The other brokers were killed before the backup, and the operators end. The log continues from the
backup until a snapshot covers the offset that the keeper has reached, under a controller with an
epoch that the keeper may know already. Then the keeper comes back. The new history is a legitimate
one, in which records may be lost. So from then on only the keeper's metadata is checked, and no
other fault strikes. At the end a person confirms a history, and the cluster must converge.
"""

from __future__ import annotations

import random

from plimsoll_core.cluster.record_versions import TERMS_SINCE
from plimsoll_core.messages.moves import LimitMovement
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.cluster.world import World
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost

TERMS_MAX = 2
"""Maximum number of terms that begin between the backup and the restore."""
OTHERS_SHARE = 0.3
"""Probability that the other brokers follow the new history before the keeper comes back."""
CONFIRMATIONS_MAX = 5
BYTES_PER_SECOND = 1_000_000


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    keeper = observed_partitions.running_broker(world, rng)
    known = world.ghost.image.metadata_version >= TERMS_SINCE and not world.ghost.restored
    if keeper is None or not known or context.lasting:
        return None
    context.run(_script(context, keeper, rng))
    return keeper.name


def _script(context: FaultContext, keeper: BrokerHost, rng: random.Random) -> Script:
    world = context.world
    others = [host for host in world.brokers.values() if host is not keeper]
    context.alone = True
    for host in others:
        host.kill()
    backup, offset = world.etcd.backup(), world.ghost.image.next_offset
    for _ in range(rng.randint(0, TERMS_MAX)):
        yield from _next_term(world, rng)
    _commit(world, -1)
    yield Wait(lambda: _known(keeper) > offset, 10_000)
    held = _known(keeper)
    if held <= offset or world.ghost.restored:
        for host in others:
            world.start_broker(host)
        context.alone = False
        return
    for process in [host.process for host in world.operators] + world.client_processes:
        if process is not None:
            process.die()
    world.clients.clear()  # nobody waits for them
    keeper.kill()
    world.etcd.restore(backup)
    world.ghost.forked(keeper.id)
    world.expect_liveness = False  # nothing is committed once the keeper is back
    world.note(f"story: {keeper.name} holds {held} records, etcd {offset}")
    yield from _next_term(world, rng)
    if rng.random() < OTHERS_SHARE:
        for host in others:
            world.start_broker(host)
    for number in range(world.options.slots // 2 + held - offset + 2):
        _commit(world, number)
        yield pause(150)
    yield pause(2_000)
    yield from _next_term(world, rng)
    starts = [host.log_start for host in world.operators if host.log_start is not None]
    world.note(f"story: {keeper.name} returns with {held} records; the log begins at {starts}")
    world.start_broker(keeper)
    yield pause(15_000)
    yield from _confirm(world, others, rng)


def _confirm(world: World, others: list[BrokerHost], rng: random.Random) -> Script:
    """Once every broker has answered, confirm one of the histories that an operator names, and
    again if others are named by then. Once an operator leads, the cluster must converge."""
    for host in others:
        world.start_broker(host)
    yield pause(20_000)
    for _ in range(CONFIRMATIONS_MAX):
        yield Wait(lambda: any(host.choices for host in world.operators), 60_000)
        choices = next((host.choices for host in world.operators if host.choices), ())
        if not choices:
            return
        choice = rng.choice(choices)
        world.ghost.choose(keeps_log=choice.startswith("log-"))
        world.objects.annotate(LOG_CLUSTERS, world.objects.name, RESTORE_METADATA, choice)
        world.note(f"story: {choice} is confirmed")
        yield Wait(lambda: any(host.active for host in world.operators), 20_000)
        if any(host.active for host in world.operators):
            world.note("story: an operator leads")
            world.expect_liveness = True
            return


def _known(keeper: BrokerHost) -> int:
    """Return the number of records that the broker has applied."""
    image = None if keeper.manager is None else keeper.manager.image
    return -1 if image is None else int(image.next_offset)


def _commit(world: World, number: int) -> None:
    """Make the active controller, if there is one, commit a record."""
    change = LimitMovement(bytes_per_second=BYTES_PER_SECOND + number)
    for host in world.operators:
        host.pass_on(change)


def _next_term(world: World, rng: random.Random) -> Script:
    """Kill all operators, start them again, and wait until one leads."""
    for host in rng.sample(world.operators, len(world.operators)):
        host.kill()
        world.start_operator(host)
    yield Wait(lambda: any(host.active for host in world.operators), 15_000)
