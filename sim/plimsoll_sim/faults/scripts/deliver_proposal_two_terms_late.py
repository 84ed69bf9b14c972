"""A leader's proposal of a follower reaches its controller two terms late, in the same process.

A controller of the term in between has refused a copy of it, since the follower was fenced. The
leader goes on without the follower, which is back, in the same lifetime, when the proposal arrives.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.messages.requests import AlterPartition
from plimsoll_sim.environment.connection_end import End
from plimsoll_sim.environment.network import keeps_nothing
from plimsoll_sim.faults import observed_partitions, shared_steps
from plimsoll_sim.faults.fault_context import FaultContext, Script, Wait, pause
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_wire import control

LENGTH_BYTES = 4
LONG_US = 300_000
"""How often sessions and Leases, which last seconds, are looked at."""


class Late(NamedTuple):
    """The partition, its leader, the follower that it is made to propose, and the two operators:
    the one that receives the proposal late, and the one that leads in between."""

    key: PartitionKey
    leader: BrokerHost
    joiner: BrokerHost
    late: OperatorHost
    between: OperatorHost


class HeldProposals:
    """Stalls each connection from a broker to an operator once it carries a proposal, so that the
    broker's other messages pass on new connections."""

    def __init__(self, context: FaultContext, source: str, target: str) -> None:
        self._context = context
        self._link = (source, target)
        self.ends: list[End] = []
        context.world.network.keeps = self._keeps

    def end(self) -> None:
        """Deliver what was held, and hold nothing more."""
        self._context.world.network.keeps = keeps_nothing
        shared_steps.unstall(self._context.world, self.ends)

    def _keeps(self, end: End, what: Any) -> bool:
        # Without TLS a message is sent whole.
        on_link = (end.process.host, end.peer.process.host) == self._link
        if not on_link or not self._context.active or not isinstance(what, bytes):
            return False
        with suppress(control.MalformedControlMessage):
            body = control.decode_request(what[LENGTH_BYTES:]).body
            if isinstance(body, control.Command) and isinstance(body.request, AlterPartition):
                shared_steps.stall(self._context.world, [end])
                self.ends.append(end)
                return True
        return False


def strike(context: FaultContext, rng: random.Random) -> str | None:
    world = context.world
    operators = [one for one in world.operators if one.running]
    found = observed_partitions.followed_partitions(world)
    active = [one for one in operators if one.active]
    if not found or len(operators) < 2 or not active or world.network.keeps is not keeps_nothing:
        return None
    p, leader, joiner = rng.choice(found)
    between = next(one for one in operators if one is not active[0])
    context.run(_script(context, Late(p.key, leader, joiner, active[0], between)))
    return f"{joiner.name} joins {leader.name}, told to {active[0].name}"


def _script(context: FaultContext, story: Late) -> Script:
    key, leader, joiner, late, between = story
    world, life = context.world, story.late.process
    names = [one.name for one in world.operators]
    unheard = [link for name in names for link in ((joiner.name, name), (name, joiner.name))]
    for link in unheard:
        world.network.cut(*link)
    in_sync = partial(observed_partitions.is_in_sync, world, key, joiner)
    apart = shared_steps.cut_between(world, leader, [joiner])
    yield Wait(lambda: not in_sync(), 3_000)
    held = HeldProposals(context, leader.name, late.name)
    shared_steps.heal(world, apart)
    proposed = partial(observed_partitions.proposes, key, leader, joiner)
    yield Wait(lambda: proposed() and bool(held.ends), 2_500)
    world.note(f"story: {leader.name} proposes {joiner.name}: {proposed()}")
    apart = shared_steps.cut_between(world, leader, [joiner])
    if proposed() and life is not None:
        yield Wait(lambda: not observed_partitions.is_active(world, joiner), 9_000, LONG_US)
        life.pause()
        yield _led_by(context, between)
        yield Wait(lambda: not proposed(), 8_000, LONG_US)
        world.note(f"story: {leader.name} has rolled it back: {not proposed()}")
        shared_steps.heal(world, unheard)
        life.resume()
        between.stop()  # which frees the Lease at once
        yield _led_by(context, late)
        yield Wait(lambda: observed_partitions.is_active(world, joiner) is True, 9_000, LONG_US)
        world.note(f"story: it arrives at {late.name}: {late.active and late.process is life}")
        context.heal_later(lambda: world.start_operator(between))
    held.end()
    yield pause(500)
    shared_steps.heal(world, [*apart, *unheard])


def _led_by(context: FaultContext, host: OperatorHost) -> Wait:
    """Wait until this operator leads, in a later term than the present one."""
    image = context.world.ghost.image
    return Wait(
        lambda: host.active and context.world.ghost.image.controller_epoch > image.controller_epoch,
        15_000,
        LONG_US,
    )
