"""Revisions of the brokers' pod template: numbers, some of an image that does not exist."""

from __future__ import annotations

import random

from plimsoll_sim.desired.state import DesiredState

BAD = "bad"
"""A revision that begins so does not start."""
BAD_SHARE = 0.2


def starts(revision: str) -> bool:
    """Whether a pod of this revision comes up."""
    return not revision.startswith(BAD)


def change(wishes: DesiredState, rng: random.Random) -> str:
    """Ask for another revision, perhaps one that does not start; returns it."""
    number = int(wishes.revision.lstrip(BAD) or 0) + 1
    wishes.revision = f"{BAD if rng.random() < BAD_SHARE else ''}{number}"
    return wishes.revision


def correct(wishes: DesiredState) -> None:
    """Ask for a revision that starts, if the present one does not."""
    if not starts(wishes.revision):
        wishes.revision = str(int(wishes.revision.lstrip(BAD)) + 1)
