"""Tags of the brokers' image: numbers, some of an image that does not exist."""

from __future__ import annotations

import random

from plimsoll_sim.desired.objects import AppliedObjects

BAD = "bad"
"""A tag that begins so cannot be pulled."""
BAD_SHARE = 0.2


def starts(tag: str) -> bool:
    """Return True if a pod with this image comes up."""
    return not tag.startswith(BAD)


def change(objects: AppliedObjects, rng: random.Random) -> str:
    """Ask for another image, perhaps one that does not start; returns its tag."""
    number = int(objects.image_tag.lstrip(BAD) or 0) + 1
    tag = f"{BAD if rng.random() < BAD_SHARE else ''}{number}"
    objects.set_image_tag(tag)
    return tag


def correct(objects: AppliedObjects) -> None:
    """Ask for an image that starts, if the present one does not."""
    if not starts(objects.image_tag):
        objects.set_image_tag(str(int(objects.image_tag.lstrip(BAD)) + 1))
