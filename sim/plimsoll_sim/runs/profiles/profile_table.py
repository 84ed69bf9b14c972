"""Every profile by its name.  Half of all runs have one, drawn from the seed,
but for those that are asked for.

A profile has faults that need each other come more often together than by chance.  `options` draws
what it leaves open.
"""

from __future__ import annotations

from plimsoll_sim.runs.profiles.disks import DISKS
from plimsoll_sim.runs.profiles.groups import GROUPS
from plimsoll_sim.runs.profiles.operations import OPERATIONS
from plimsoll_sim.runs.profiles.profile import Profile
from plimsoll_sim.runs.profiles.replication import REPLICATION

PROFILES: dict[str, Profile] = {**REPLICATION, **OPERATIONS, **DISKS, **GROUPS}
ASKED_FOR = frozenset(GROUPS)
"""Not drawn from a seed, so that every seed is what it was; `--profile` asks for them."""
