"""Faults of brokers' disks: full, broken, slow, replaced by an empty or an older one."""

from __future__ import annotations

import random

from plimsoll_broker.replication.disk_shares import reserve_of
from plimsoll_sim.cluster.lost_disk_content import change_disk, image_of
from plimsoll_sim.environment.simulated_disk import ROOM_BYTES
from plimsoll_sim.faults import observed_partitions
from plimsoll_sim.faults.fault_context import FaultContext

SLOW_IO_US = (200_000, 3_000_000)
"""Shortest and longest time that an operation in a thread takes, in virtual microseconds."""


def fill_disk(context: FaultContext, rng: random.Random) -> str | None:
    """Fill a broker's disk. It has room again later, without a restart of the broker."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    host.volume.full = True

    def empty() -> None:
        host.volume.full = False

    context.heal_later(empty)
    return host.name


def leave_little_room(context: FaultContext, rng: random.Random) -> str | None:
    """Leave less free space than the reserve on one broker's disk, or on all. Clients are then
    refused, but not followers and groups, and leaders move to brokers with space."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    free = int(reserve_of(ROOM_BYTES) * rng.choice((0.1, 0.4, 0.6, 0.9)))
    hosts = list(context.world.brokers.values()) if rng.random() < 0.5 else [host]
    for one in hosts:
        one.volume.free_bytes = free

    def freed() -> None:
        for one in hosts:
            one.volume.free_bytes = None

    context.heal_later(freed)
    return " ".join(one.name for one in hosts)


def break_disk(context: FaultContext, rng: random.Random) -> str | None:
    """Make every write to a broker's disk fail. After the disk is repaired, the broker needs a
    restart."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    host.volume.broken = True
    host.needs_restart = True

    def mend() -> None:
        host.volume.broken = False

    context.heal_later(mend)
    return host.name


def exhaust_descriptors(context: FaultContext, rng: random.Random) -> str | None:
    """Make every other file fail to open; this ends later, without a restart."""
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    host.volume.no_descriptors = 0.5

    def enough() -> None:
        host.volume.no_descriptors = 0.0

    context.heal_later(enough)
    return host.name


def slow_disk(context: FaultContext, rng: random.Random) -> str | None:
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    slow = context.world.loop.slow_io
    slow[host.name] = SLOW_IO_US

    def mend() -> None:
        slow.pop(host.name, None)

    context.heal_later(mend)
    return host.name


def replace_disk_with_empty(context: FaultContext, rng: random.Random) -> str | None:
    host = observed_partitions.running_broker(context.world, rng)
    if host is None:
        return None
    change_disk(context.world, host, None)
    context.world.expect_liveness = False  # a person may have to say that the data is gone
    context.world.expect_restored = False
    context.start_later(host)
    return host.name


def restore_disk_image(context: FaultContext, rng: random.Random) -> str | None:
    """Take an image of a broker's disk the first time; later, replace the disk by that image, which
    is then outdated."""
    host = rng.choice(list(context.world.brokers.values()))
    image = context.disk_images.get(host.id)
    if image is None:
        context.disk_images[host.id] = image_of(host)
        return None
    if host.running:
        context.start_later(host)
    change_disk(context.world, host, image)
    return host.name
