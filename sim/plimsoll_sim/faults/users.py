"""An administrator's changes to users."""

from __future__ import annotations

import random

from plimsoll_sim.desired.users import change_anything
from plimsoll_sim.faults.fault_context import FaultContext
from plimsoll_sim.hosts import certified_users as change


def change_user(context: FaultContext, rng: random.Random) -> str | None:
    """Change a user's rules or password, or disable or enable it."""
    secured = context.world.secured
    if secured is None or secured.tenants is None:
        return None
    return change_anything(secured.tenants.users, rng)


def change_certified(context: FaultContext, rng: random.Random) -> str | None:
    """Change a user who logs in by certificates."""
    secured = context.world.secured
    if secured is None or secured.tenants is None or secured.tenants.certified is None:
        return None
    return change.change_certified(secured.tenants.certified, rng)
