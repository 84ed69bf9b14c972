"""What the controller's answer to a proposed ISR (AlterPartition) says about the proposal.

Called by `replica.Replica`.  Source: the protocol's rules for AlterPartition answers; KIP-497.
"""

from __future__ import annotations

from enum import Enum

from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import PartitionAnswer

INELIGIBLE_BACKOFF_MS = 1_000
UNDECIDED = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.FENCED_LEADER_EPOCH,
        Code.INVALID_UPDATE_VERSION,
        Code.INVALID_REQUEST,
        Code.NEW_LEADER_ELECTED,
    }
)
"""After these a proposal may have been committed, or was overtaken: only metadata can tell."""


class ProposalOutcome(Enum):
    """What has become of a proposal."""

    COMMITTED = "committed"
    NOT_APPLIED = "certainly not applied: roll it back"
    UNDECIDED = "stays in flight until newer metadata"
    UNANSWERED = "sent again as it is"


def outcome(answer: PartitionAnswer | None) -> ProposalOutcome:
    """None: no answer came."""
    if answer is None:
        return ProposalOutcome.UNANSWERED
    if answer.code == Code.NONE:
        return ProposalOutcome.COMMITTED
    if answer.code == Code.INELIGIBLE_REPLICA:
        return ProposalOutcome.NOT_APPLIED
    return ProposalOutcome.UNDECIDED if answer.code in UNDECIDED else ProposalOutcome.UNANSWERED
