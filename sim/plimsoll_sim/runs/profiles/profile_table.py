"""All profiles by name. Half of all runs have a profile drawn from their seed, unless one is named.

With a profile, faults that must occur together occur together more often than by chance. `options`
draws what a profile leaves open.
"""

from __future__ import annotations

from plimsoll_sim.runs.profiles.buffers import BUFFERS
from plimsoll_sim.runs.profiles.cleaning import CLEANING
from plimsoll_sim.runs.profiles.damage import DAMAGE
from plimsoll_sim.runs.profiles.disks import DESCRIPTORS, DISKS
from plimsoll_sim.runs.profiles.fail_overs import FAIL_OVERS
from plimsoll_sim.runs.profiles.groups import GROUPS
from plimsoll_sim.runs.profiles.operations import HOURS, OPERATIONS, RENAMES
from plimsoll_sim.runs.profiles.profile import Profile
from plimsoll_sim.runs.profiles.replication import REPLICATION
from plimsoll_sim.runs.profiles.restores import RESTORES
from plimsoll_sim.runs.profiles.security import SECURITY
from plimsoll_sim.runs.profiles.transactions import TRANSACTIONS

DRAWN: dict[str, Profile] = {**REPLICATION, **OPERATIONS, **DISKS}
"""Profiles that a seed may draw."""
PROFILES: dict[str, Profile] = {
    **DRAWN,
    **CLEANING,
    **GROUPS,
    **SECURITY,
    **BUFFERS,
    **DAMAGE,
    **DESCRIPTORS,
    **RENAMES,
    **HOURS,
    **RESTORES,
    **FAIL_OVERS,
    **TRANSACTIONS,
}
