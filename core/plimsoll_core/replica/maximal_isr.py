"""The in-sync set as a leader holds it: committed, or committed with one proposal in flight.

While a proposal is in flight the controller may or may not have committed it, so the leader counts
the *maximal* set when it moves the high watermark, and the *committed* one when it asks whether
there are enough in-sync replicas (KIP-497, KIP-966).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import IsrProposal


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedIsr:
    """Nothing in flight."""

    committed: tuple[BrokerId, ...]

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpand:
    """A proposal to add `joining`: it counts for the high watermark from before it was sent."""

    committed: tuple[BrokerId, ...]
    joining: BrokerId
    proposal: IsrProposal

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return (*self.committed, self.joining)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrink:
    """A proposal to drop `leaving`: they still count until the drop is committed."""

    committed: tuple[BrokerId, ...]
    leaving: tuple[BrokerId, ...]
    proposal: IsrProposal

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        return self.committed


IsrState = CommittedIsr | PendingExpand | PendingShrink


def proposal_in_flight(state: IsrState) -> IsrProposal | None:
    match state:
        case CommittedIsr():
            return None
        case PendingExpand() | PendingShrink():
            return state.proposal
        case _:
            assert_never(state)
