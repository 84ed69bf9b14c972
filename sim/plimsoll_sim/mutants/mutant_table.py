"""All mutants, in the order in which the documentation lists them."""

from __future__ import annotations

from plimsoll_sim.mutants.beginnings import BEGINNINGS
from plimsoll_sim.mutants.buffers import BUFFERS
from plimsoll_sim.mutants.cleaning import CLEANING
from plimsoll_sim.mutants.failover import FAILOVER
from plimsoll_sim.mutants.groups import GROUPS
from plimsoll_sim.mutants.guards import GUARDS
from plimsoll_sim.mutants.inside import INSIDE
from plimsoll_sim.mutants.mutant import Mutant
from plimsoll_sim.mutants.rights import RIGHTS
from plimsoll_sim.mutants.strangers import STRANGERS
from plimsoll_sim.mutants.trust import TRUST
from plimsoll_sim.mutants.unlisted_guards import OTHERS

MUTANTS: tuple[Mutant, ...] = (
    *GUARDS,
    *OTHERS,
    *BEGINNINGS,
    *TRUST,
    *GROUPS,
    *CLEANING,
    *INSIDE,
    *RIGHTS,
    *BUFFERS,
    *FAILOVER,
    *STRANGERS,
)
