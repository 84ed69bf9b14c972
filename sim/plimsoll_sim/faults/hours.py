"""Faults that are changes of the hours: maintenance windows, pauses, hibernation."""

from __future__ import annotations

import random

from plimsoll_sim.desired import hours
from plimsoll_sim.faults.fault_context import FaultContext

PERIODS = (1, 2)
"""Minutes between two beginnings of a window; they divide an hour."""
LENGTHS_S = (5, 20)


def change_windows(context: FaultContext, rng: random.Random) -> str:
    """Declare a short maintenance window, or take the declared one away."""
    objects = context.world.objects
    maintenance = objects.cluster.spec.maintenance
    if maintenance is not None and maintenance.windows:
        hours.set_window(objects, 1, 0)
        return "no window"
    period, seconds = rng.choice(PERIODS), rng.choice(LENGTHS_S)
    hours.set_window(objects, period, seconds)
    return f"{seconds} s every {period} min"


def pause_cluster(context: FaultContext, rng: random.Random) -> str | None:
    """Pause the cluster for a while."""
    objects = context.world.objects
    if objects.cluster.spec.paused:
        return None
    hours.set_paused(objects, paused=True)
    context.heal_later(lambda: hours.set_paused(objects, paused=False))
    return objects.name


def hibernate_cluster(context: FaultContext, rng: random.Random) -> str | None:
    """Put the cluster to sleep for a while."""
    objects = context.world.objects
    if objects.cluster.spec.hibernated:
        return None
    hours.set_hibernated(objects, hibernated=True)
    context.heal_later(lambda: hours.set_hibernated(objects, hibernated=False))
    return objects.name
