"""Tags of the brokers' image: numbers. A tag with a prefix stands for an image that does not
exist.
"""

from __future__ import annotations

import random

from plimsoll_sim.desired.objects import AppliedObjects

BAD = "bad"
"""Prefix of the tags of images that cannot be pulled."""
BAD_SHARE = 0.2


def starts(tag: str) -> bool:
    """Return True if a pod with this image starts."""
    return not tag.startswith(BAD)


def change(objects: AppliedObjects, rng: random.Random) -> str:
    """Set another image tag in the spec, perhaps one that does not start. Return the tag."""
    number = int(objects.image_tag.lstrip(BAD) or 0) + 1
    tag = f"{BAD if rng.random() < BAD_SHARE else ''}{number}"
    objects.set_image_tag(tag)
    return tag


def correct(objects: AppliedObjects) -> None:
    """If the wanted image does not start, set one that does."""
    if not starts(objects.image_tag):
        objects.set_image_tag(str(int(objects.image_tag.lstrip(BAD)) + 1))
