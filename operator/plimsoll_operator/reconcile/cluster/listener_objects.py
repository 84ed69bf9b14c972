"""Objects that listeners have besides the cluster's own children: Services for clients outside,
TLSRoutes, Certificates.  One list of a kind tells what is there; what is as it should be is not
written again, and what belongs to no listener any more is removed.

Called by the reconcilers of external access and of certificates.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster.child_repair import apply_child
from plimsoll_operator.reconcile.reconcile_term import Term

logger = logging.getLogger("plimsoll.listeners")


async def listed(term: Term, kind: Kind, context: Context) -> dict[str, Object]:
    """By name, those of this LogCluster's listeners.  Raises ApiError."""
    selector = f"{labels.CLUSTER}={context.name},{labels.COMPONENT}={labels.LISTENER_COMPONENT}"
    found = await term.kube.list(kind, context.namespace, label_selector=selector)
    return {item["metadata"]["name"]: item for item in found.items}


async def applied(term: Term, manifests: Iterable[Object], there: dict[str, Object]) -> None:
    """Have them as they are stated; `there` then holds what the API server has.  Raises ApiError
    and Retry."""
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        found = there.get(name)
        known = term.applied.get((manifest["kind"], name)) == manifest
        # Lists of built-in kinds do not repeat what kind their items are.
        stated = {part: manifest[part] for part in manifest if part not in ("apiVersion", "kind")}
        if found is None or not known or not states(found, stated):
            there[name] = await apply_child(term, manifest)


async def remove_others(
    term: Term, kind: Kind, context: Context, there: dict[str, Object], kept: Collection[str]
) -> None:
    """What this very LogCluster has of a kind, but for `kept`."""
    for name in sorted(there.keys() - set(kept)):
        meta = there[name]["metadata"]
        owners = [owner["uid"] for owner in meta.get("ownerReferences") or ()]
        if context.cluster.metadata.uid not in owners or meta.get("deletionTimestamp"):
            continue
        logger.info("removing %s %s: no listener uses it", kind.kind, name)
        term.applied.pop((kind.kind, name), None)
        try:
            await term.kube.delete(kind, context.namespace, name, uid=meta["uid"])
        except (NotFound, Conflict):
            continue


def states(found: object, stated: object) -> bool:
    """Whether an object has all that a manifest states, whatever else others put into it."""
    if isinstance(stated, dict):
        return isinstance(found, dict) and all(
            key in found and states(found[key], value) for key, value in stated.items()
        )
    if isinstance(stated, list):
        return (
            isinstance(found, list)
            and len(found) == len(stated)
            and all(states(one, other) for one, other in zip(found, stated, strict=True))
        )
    return found == stated
