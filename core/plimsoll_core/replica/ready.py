"""The effects that a replica's step asks for, in the order in which they must be carried out.

`Replica.take_ready` makes it.  The broker's replica manager takes it once per step: its driver
answers and wakes, then the proposal waits to be sent.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.messages.requests import IsrProposal
from plimsoll_core.replica.waiters import Answered


class Ready(NamedTuple):
    """The effects of one step on one partition, first to last."""

    answers: list[Answered]
    """First.  What produces hear.  Everything they were promised is in the log already: a batch is
    written by the driver before the replica is told of it, and counted only then."""

    woken: list[object]
    """Second.  Parked fetches that have something new to read; they read the log as it is now."""

    proposal: IsrProposal | None
    """Last, and never before the replica took up the maximal in-sync set that the proposal means:
    it did so when it made the proposal.  Proposals of one partition are sent in order."""


NOTHING = Ready([], [], None)
