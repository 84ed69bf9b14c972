"""Faults of the place that holds the backup of the metadata."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from uuid import UUID

from plimsoll_operator.backup import backup_objects
from plimsoll_operator.backup.place_owner import NAME as OWNER
from plimsoll_sim.cluster.world import CLUSTER_ID, World
from plimsoll_sim.faults.fault_context import FaultContext

ANOTHER_ID = UUID(int=0xC2)
LOST_SHARE = 0.3
FAILING_SHARE = 0.3


Spoiled = Callable[[str, bytes, random.Random], bytes | None]
"""Function from an object's name and bytes to what becomes of it: other bytes, or None."""


def objects_of(world: World) -> dict[str, bytes]:
    """Return the objects of the cluster's backup; none if it has no backup."""
    return {} if world.bucket is None else world.bucket.objects(CLUSTER_ID)


def fail_bucket(context: FaultContext, rng: random.Random) -> str | None:
    """Let the bucket refuse requests, or lose requests and answers, so that the export lags."""
    bucket = context.world.bucket
    if bucket is None:
        return None
    bucket.down = rng.random() < 0.5
    bucket.fails = FAILING_SHARE
    context.heal_later(bucket.heal)
    return "down" if bucket.down else "loses requests"


def spoil_backup(context: FaultContext, rng: random.Random) -> str | None:
    """Change what the bucket holds: it is as it was before, or lacks objects, or has torn ones, or
    some of another cluster. The first time, remember it as it is."""
    return spoil(context.world, context.older_backup, rng)


def spoil(world: World, older: dict[str, bytes], rng: random.Random) -> str | None:
    stored = objects_of(world)
    names = [name for name in sorted(stored) if name != OWNER]
    if not names:
        return None
    if not older:
        older.update(stored)
        return None
    what = rng.choice(tuple(SPOILED))
    some = [name for name in names if rng.random() < LOST_SHARE]
    if what == "older":
        stored.clear()
        stored.update(older)
    for name in names[len(names) // 2 :] if what == "without its end" else some:
        if (made := SPOILED[what](name, stored.get(name, b""), rng)) is None:
            stored.pop(name, None)
        else:
            stored[name] = made
    return what


def as_of_another(name: str, data: bytes) -> bytes:
    """Return an intact object of this name with the same content, of another cluster."""
    known = backup_objects.parse(name)
    if known is None:
        return data
    try:
        content = backup_objects.decode(data, known, CLUSTER_ID)
    except backup_objects.ObjectUnreadable:
        return data
    return backup_objects.encode(content, ANOTHER_ID)


SPOILED: Mapping[str, Spoiled] = {
    "older": lambda _name, data, _rng: data or None,
    "partial": lambda _name, _data, _rng: None,
    "without its end": lambda _name, _data, _rng: None,
    "torn": lambda _name, data, rng: data[: rng.randrange(len(data))] if data else None,
    "of another cluster": lambda name, data, _rng: as_of_another(name, data),
}
"""What becomes of objects, by what the backup is then."""
