"""Facts needed to prove that a user deleted an object: since when its CRD exists, and the state of
its namespace.

Deleting a CRD deletes all its objects, and applying it again restores none; no user asked to delete
their topics, or to cut users off. The CRD's uid is therefore stored in an annotation of the
cluster's Lease, for the next operator. If the CRD later has another uid, absent objects that were
created before the present CRD do not count as deleted. A Lease with such an annotation outlives its
LogCluster; a Lease without one is deleted with it. Called before an absence is believed, and once
in each term, so that the uid is stored before any object is absent.
"""

from __future__ import annotations

from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.resources import CRDS, LEASES, NAMESPACES
from plimsoll_operator.reconcile.reconcile_term import Term


class _NotedCrds(set[str]):
    """Names of the Lease's annotations that this term has read or written."""


async def note(term: Term, crd_name: str, annotation: str) -> None:
    """Store the uid of the CRD `crd_name` in the Lease's `annotation`, unless this term has done so
    already."""
    if annotation not in term.kept(_NotedCrds, _NotedCrds):
        await counts_since(term, crd_name, annotation)


async def counts_since(term: Term, crd_name: str, annotation: str) -> str | None:
    """Compare the present CRD with the one stored in the Lease's `annotation`. If they are the
    same, return "": every absent object may have been deleted by a user. If no CRD is stored, store
    the present one and return "". If another one is stored, return the creation time of the present
    CRD: objects created before that time were deleted with the stored CRD. Return None if the CRD
    is being deleted."""
    crd = await term.kube.get(CRDS, None, crd_name)
    uid = str(crd["metadata"]["uid"])
    if crd["metadata"].get("deletionTimestamp"):
        return None
    lease = await term.kube.get(LEASES, term.key[0], term.lease_name)
    noted = (lease["metadata"].get("annotations") or {}).get(annotation)
    if noted is None:
        # The note must outlive the LogCluster, as its log does: drop the Lease's owner.
        patch = {"metadata": {"annotations": {annotation: uid}, "ownerReferences": None}}
        await term.kube.merge(LEASES, term.key[0], term.lease_name, patch)
    term.kept(_NotedCrds, _NotedCrds).add(annotation)
    if noted is None:
        return ""
    return "" if noted == uid else str(crd["metadata"]["creationTimestamp"])


async def namespace_stands(term: Term, namespace: str) -> bool:
    """Return True if the namespace exists and is not being deleted."""
    try:
        found = await term.kube.get(NAMESPACES, None, namespace)
    except NotFound:
        return False
    phase = (found.get("status") or {}).get("phase")
    return phase == "Active" and not found["metadata"].get("deletionTimestamp")
