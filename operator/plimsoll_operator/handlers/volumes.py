"""Volumes grow when `storage.size` does; they are never shrunk, made anew or deleted here."""

from __future__ import annotations

import logging

from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.handlers.term import Term
from plimsoll_operator.kube.client import Object
from plimsoll_operator.kube.errors import Rejected
from plimsoll_operator.kube.resources import VOLUME_CLAIMS
from plimsoll_operator.manifests import labels
from plimsoll_operator.reconcile.quantities import amount

logger = logging.getLogger("plimsoll.volumes")

CANNOT_GROW = "VolumeCannotGrow"


async def grow(term: Term, cluster: LogCluster) -> None:
    """Ask for more where a claim asks for less than the spec."""
    namespace, name = cluster.key
    short = labels.short_id(term.cluster_id)
    selector = f"{labels.CLUSTER}={name},{labels.CLUSTER_ID}={short}"
    found = await term.kube.list(VOLUME_CLAIMS, namespace, label_selector=selector)
    wanted = cluster.spec.storage.size
    patch = {"spec": {"resources": {"requests": {"storage": wanted}}}}
    refusals = []
    for claim in found.items:
        if amount(_asked(claim)) >= amount(wanted):
            continue
        volume = claim["metadata"]["name"]
        try:
            await term.kube.merge(VOLUME_CLAIMS, namespace, volume, patch)
            logger.info("%s: grows to %s", volume, wanted)
        except Rejected as error:
            refusals.append(f"{volume}: {error.message}")
    if refusals:
        text = f"Volumes stay as they are: {refusals[0]}"
        term.note("Blocked", True, CANNOT_GROW, text)
    elif (note := term.notes.get("Blocked")) and note.reason == CANNOT_GROW:
        term.drop_note("Blocked")


def _asked(claim: Object) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])
