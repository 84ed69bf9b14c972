"""The metadata version from which on the log may hold credentials, users, rules and quotas.

Called by every decision that writes them.
"""

from __future__ import annotations

from plimsoll_core.controller.kernel import decision
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Refusal

SINCE = 3


def too_old(turn: DecisionContext) -> Refusal | None:
    """Return a refusal if the finalised metadata version does not know the records of users,
    credentials, rules and quotas, or None."""
    return decision.too_old(turn, SINCE, "Users, rights and quotas need")
