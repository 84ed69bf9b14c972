"""Decides if the place for the evidence of a Verification is there: its claim, or the Secret of its
bucket. Called by `reconcile` before the driver starts; never reads what the Secret contains."""

from __future__ import annotations

from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import SECRETS, VOLUME_CLAIMS
from plimsoll_operator.manifests.verification import BUCKET_KEYS_NEEDED


async def waits_for_evidence(kube: KubeApi, verification: Verification) -> Condition | None:
    """Return None if the claim of `spec.evidence`, or the Secret of its bucket with its keys,
    exists, or if no evidence is to be kept. Else return the condition that names the missing part.
    Raises ApiError."""
    store, namespace = verification.spec.evidence, verification.metadata.namespace
    if store is None:
        return None
    if store.s3 is None:
        claim = store.persistent_volume_claim or ""
        try:
            found = await kube.get(VOLUME_CLAIMS, namespace, claim)
        except NotFound:
            return _missing(f"PersistentVolumeClaim {claim} does not exist in {namespace}.")
        if found["metadata"].get("deletionTimestamp"):
            return _missing(f"PersistentVolumeClaim {claim} is being deleted.")
        return None
    try:
        secret: Object = await kube.get(SECRETS, namespace, store.s3.secret)
    except NotFound:
        return _missing(f"Secret {store.s3.secret} does not exist in {namespace}.")
    lacking = [key for key in BUCKET_KEYS_NEEDED if key not in (secret.get("data") or {})]
    if lacking:
        return _missing(f"Secret {store.s3.secret} has no key {' and no key '.join(lacking)}.")
    return None


def _missing(sentence: str) -> Condition:
    text = f"{sentence} spec.evidence names it; the run starts when it is there."
    return condition("Ready", False, "EvidenceNotReady", text)
