"""The metadata version from which on the log may hold credentials, users, rules and quotas.

Called by every decision that writes them.
"""

from __future__ import annotations

from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal

SINCE = 3


def too_old(turn: DecisionContext) -> Refusal | None:
    """Why nothing of it is written yet."""
    finalised = turn.image.metadata_version
    if finalised >= SINCE:
        return None
    return Refusal(
        reason=Reason.MetadataTooOld,
        message=(
            f"Users, rights and quotas need metadata version {release_of(SINCE)} (#{SINCE}), and"
            f" {release_of(finalised)} (#{finalised}) is finalised; it follows by itself when every"
            " broker runs that release, unless spec.metadataVersion holds it back."
        ),
    )
