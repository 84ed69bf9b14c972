"""Faults of processes: kills, stops, pauses and power cuts of brokers and operators."""

from __future__ import annotations

import random

from plimsoll_sim.cluster.lost_disk_content import cut_power, image_of
from plimsoll_sim.engine.process import Process
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.operators import OperatorHost

CRASH_WRITES_MAX = 30
CLOCK_SET_BACK_MS = (-86_400_000, -3_600_000)
CLOCK_STEPS_MS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)
ACTIVE_OPERATOR_SHARE = 0.7
"""Probability that a fault of an operator strikes the active controller, if there is one."""

# --- brokers --------------------------------------------------------------------------------------


def kill_broker(context: FaultContext, rng: random.Random) -> str | None:
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    host.kill()
    context.start_later(host)
    return host.name


def stop_broker(context: FaultContext, rng: random.Random) -> str | None:
    """Stop a broker cleanly. Half of the time an image of its disk is taken then (for
    `restore_disk_image`)."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None or host.process is None:
        return None
    kept = rng.random() < 0.5

    def ended() -> None:
        if kept:
            context.disk_images[host.id] = image_of(host)
        context.start_later(host)

    host.process.at_death.append(ended)
    host.stop()
    return host.name


def cut_power_of_broker(context: FaultContext, rng: random.Random) -> str:
    return _cut_power(context, rng.choice(list(context.world.brokers.values())))


def cut_power_of_all_brokers(context: FaultContext, _: random.Random) -> str:
    return "; ".join(_cut_power(context, host) for host in context.world.brokers.values())


def _cut_power(context: FaultContext, host: BrokerHost) -> str:
    """Cut the power, even if no broker is running: its writes may not be on the disk yet."""
    context.start_later(host)
    lost = ", ".join(map(str, cut_power(context.world, host)))
    return f"{host.name}, data of [{lost}] is lost"


def crash_broker_at_io(context: FaultContext, rng: random.Random) -> str | None:
    """Kill a broker during one of its next writes or syncs."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None or host.process is None:
        return None
    host.volume.crash_in = rng.randint(0, CRASH_WRITES_MAX)
    host.process.at_death.append(lambda: context.start_later(host))
    return f"{host.name} in {host.volume.crash_in} writes"


def pause_broker(context: FaultContext, rng: random.Random) -> str | None:
    host = observed_partitions.running_broker(context.world, rng)
    return None if host is None or host.process is None else _pause(context, host.process)


def step_wall_clock(context: FaultContext, rng: random.Random) -> str | None:
    """Step the wall clock of a serving broker for the rest of its process's life. A broker trusts a
    clock that is wrong when it starts (docs/guarantees.md, 29)."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None or host.process is None or host.manager is None:
        return None
    host.process.wall_offset_ms = rng.choice(CLOCK_STEPS_MS)
    return f"{host.name} by {host.process.wall_offset_ms} ms"


def set_wall_clock_back(context: FaultContext, rng: random.Random) -> str | None:
    """Set a broker's wall clock back far enough for the broker to notice, and correct it later."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None or host.process is None or host.manager is None:
        return None
    process = host.process
    process.wall_offset_ms = rng.choice(CLOCK_SET_BACK_MS)

    def set_right() -> None:
        process.wall_offset_ms = 0

    context.heal_later(set_right)
    return f"{host.name} by {process.wall_offset_ms} ms"


# --- operators ------------------------------------------------------------------------------------


def any_operator(context: FaultContext, rng: random.Random) -> OperatorHost | None:
    """Return a running operator, usually the active controller's."""
    hosts = [one for one in context.world.operators if one.running]
    active = [one for one in hosts if one.active]
    if active and rng.random() < ACTIVE_OPERATOR_SHARE:
        hosts = active
    return rng.choice(hosts) if hosts else None


def kill_operator(context: FaultContext, rng: random.Random) -> str | None:
    host = any_operator(context, rng)
    if host is None:
        return None
    host.kill()
    context.heal_later(lambda: context.world.start_operator(host))
    return host.name


def stop_operator(context: FaultContext, rng: random.Random) -> str | None:
    """Stop an operator cleanly: it releases its Lease."""
    host = any_operator(context, rng)
    if host is None:
        return None
    host.stop()
    context.heal_later(lambda: context.world.start_operator(host))
    return host.name


def pause_operator(context: FaultContext, rng: random.Random) -> str | None:
    host = any_operator(context, rng)
    return None if host is None or host.process is None else _pause(context, host.process)


def _pause(context: FaultContext, process: Process) -> str | None:
    if process.paused:
        return None
    process.pause()

    def resume() -> None:
        if process.alive:
            process.resume()

    context.heal_later(resume)
    return process.name
