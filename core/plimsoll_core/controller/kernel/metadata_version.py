"""Whether the finalised metadata version knows what a decision is about to write.

Called by decisions that write records which a later version introduced.
"""

from __future__ import annotations

from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal


def too_old(turn: DecisionContext, since: int, needing: str) -> Refusal | None:
    """Why nothing of it is written yet.  `needing`: who needs the version `since`, with the verb:
    "spec.listeners needs"."""
    finalised = turn.image.metadata_version
    if finalised >= since:
        return None
    return Refusal(
        reason=Reason.MetadataTooOld,
        message=(
            f"{needing} metadata version {release_of(since)} (#{since}), and"
            f" {release_of(finalised)} (#{finalised}) is finalised; it follows by itself when every"
            " broker runs that release, unless spec.metadataVersion holds it back."
        ),
    )
