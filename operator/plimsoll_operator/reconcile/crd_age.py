"""Since when objects of a kind count: what went with its CRD was not meant to go.

Deleting a CRD deletes all its objects, and applying it again brings none back; no user asked to
delete their topics, or to cut users off.  Which CRD it was is noted at the cluster's Lease, for the
next operator; objects that were made before another one count for nothing.  Until something is
noted there, the Lease is removed with its LogCluster.  Called before an absence is believed, and
once in each term, so that the CRD is noted before anything is absent.
"""

from __future__ import annotations

from plimsoll_operator.kube.resources import CRDS, LEASES
from plimsoll_operator.reconcile.reconcile_term import Term


async def note(term: Term, crd_name: str, annotation: str) -> None:
    """Have it noted, once a term."""
    if annotation not in term.crds_noted:
        await counts_since(term, crd_name, annotation)


async def counts_since(term: Term, crd_name: str, annotation: str) -> str | None:
    """Objects made before then went with their CRD; None: it is going now."""
    crd = await term.kube.get(CRDS, None, crd_name)
    uid = str(crd["metadata"]["uid"])
    if crd["metadata"].get("deletionTimestamp"):
        return None
    lease = await term.kube.get(LEASES, term.key[0], term.lease_name)
    noted = (lease["metadata"].get("annotations") or {}).get(annotation)
    if noted is None:
        # What is noted outlives the LogCluster, as its log does: it owns the Lease no more.
        patch = {"metadata": {"annotations": {annotation: uid}, "ownerReferences": None}}
        await term.kube.merge(LEASES, term.key[0], term.lease_name, patch)
    term.crds_noted.add(annotation)
    if noted is None:
        return ""
    return "" if noted == uid else str(crd["metadata"]["creationTimestamp"])
