"""Checks that statuses show the present state, not an old one, once faults have stopped.

Called by the checker of liveness. Administrators and scripts rely on statuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    LOG_BROKERS,
    LOG_CLUSTERS,
    RUN_ONCE,
    STATEFUL_SETS,
    TOPICS,
    VOLUME_CLAIMS,
    Kind,
)
from plimsoll_sim.desired.objects import AppliedObjects

FINAL = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})


def unshown(objects: AppliedObjects, image: ClusterImage) -> Iterator[str]:
    """Return sentences about wrong statuses; none if all are right."""
    for kind in (LOG_CLUSTERS, TOPICS):
        for name in objects.names(kind):
            yield from _ready(kind, objects.body(kind, name))
    for kind in RUN_ONCE:
        for name in objects.names(kind):
            body = objects.body(kind, name)
            phase = (body.get("status") or {}).get("phase")
            # A change that cannot begin as it stands waits for a person, and its status says why.
            if phase not in FINAL and not is_true(body, "Blocked"):
                yield f"{kind.kind} {name} shows {phase}"
    wanted = {labels.broker(objects.name, broker_id) for broker_id in image.members}
    if (sets := set(objects.names(STATEFUL_SETS))) != wanted:
        yield f"there are the StatefulSets {sorted(sets)}, not {sorted(wanted)}"
    yield from _brokers(objects, image)
    if image.released:
        yield f"volumes {image.released} are released, and not forgotten"
    for name in objects.names(VOLUME_CLAIMS):
        if objects.body(VOLUME_CLAIMS, name)["metadata"].get("deletionTimestamp"):
            yield f"claim {name} is going"


def _brokers(objects: AppliedObjects, image: ClusterImage) -> Iterator[str]:
    """One object for each member, which says that it serves and lacks nothing for long."""
    wanted = {labels.log_broker(objects.name, broker_id) for broker_id in image.members}
    if (there := set(objects.names(LOG_BROKERS))) != wanted:
        yield f"there are the LogBrokers {sorted(there)}, not {sorted(wanted)}"
        return
    for name in sorted(wanted):
        body = objects.body(LOG_BROKERS, name)
        yield from _ready(LOG_BROKERS, body)
        status = body.get("status") or {}
        if status.get("state") != "Active" or "fenced" in status:
            yield f"LogBroker {name} shows {status}"


def _ready(kind: Kind, body: Object) -> Iterator[str]:
    meta, status = body["metadata"], body.get("status") or {}
    if status.get("observedGeneration") != meta["generation"]:
        yield f"{kind.kind} {meta['name']} shows another generation than {meta['generation']}"
    if not is_true(body, "Ready"):
        yield f"{kind.kind} {meta['name']} is not shown to be ready: {status.get('conditions')}"
