"""Decides if the place for the evidence of a Verification may be used and is there: its claim, or
the Secret of its bucket; and if the Secret for a mirrored cluster is there. Called by `reconcile`
before the driver starts; never reads what a Secret contains."""

from __future__ import annotations

from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.verification import Verification, VerificationStatus
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import SECRETS, VOLUME_CLAIMS
from plimsoll_operator.kube.seen_objects import INVALID_SPEC
from plimsoll_operator.manifests.verification import (
    BUCKET_KEYS_NEEDED,
    MIRROR_KEY_NEEDED,
    bucket_port,
    mirror_secret,
)
from plimsoll_operator.reconcile.verification.driver_report import final


def never_evidence(verification: Verification) -> VerificationStatus | None:
    """Return None if `spec.evidence` states a place, or is absent. Return a failed status if the
    endpoint of its bucket is not a URL."""
    store = verification.spec.evidence
    try:
        bucket_port(store)
    except ValueError as error:
        stated = None if store is None or store.s3 is None else store.s3.endpoint
        return _never(f"spec.evidence.s3.endpoint {stated} is not a URL: {error}.")
    return None


async def waits_for_evidence(
    kube: KubeApi, verification: Verification
) -> VerificationStatus | None:
    """Return None if the claim of `spec.evidence`, or the Secret of its bucket with its keys,
    exists, or if no evidence is to be kept. Else return a status that names the missing part. It is
    failed if the claim is the volume of a broker, which a driver must not mount. Raises
    ApiError."""
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
        owner = (found["metadata"].get("labels") or {}).get(labels.CLUSTER)
        if owner is not None:
            return _never(
                f"PersistentVolumeClaim {claim} belongs to LogCluster {owner}: brokers keep their"
                " data in it. Name another claim in spec.evidence."
            )
        return None
    try:
        secret: Object = await kube.get(SECRETS, namespace, store.s3.secret)
    except NotFound:
        return _missing(f"Secret {store.s3.secret} does not exist in {namespace}.")
    lacking = [key for key in BUCKET_KEYS_NEEDED if key not in (secret.get("data") or {})]
    if lacking:
        return _missing(f"Secret {store.s3.secret} has no key {' and no key '.join(lacking)}.")
    return None


async def waits_for_mirror(kube: KubeApi, verification: Verification) -> VerificationStatus | None:
    """Return None if the Secret of `source.mirrorOf` exists with its key, or if none is named. Else
    return a status that names it. Raises ApiError."""
    name, namespace = mirror_secret(verification), verification.metadata.namespace
    if name is None:
        return None
    try:
        secret: Object = await kube.get(SECRETS, namespace, name)
    except NotFound:
        secret = {}
    if MIRROR_KEY_NEEDED in (secret.get("data") or {}):
        return None
    text = (
        f"Secret {name} with the key {MIRROR_KEY_NEEDED} does not exist in {namespace}."
        " spec.source.mirrorOf names it; the run starts when it is there."
    )
    waits = condition("Ready", False, "MirrorNotReady", text)
    return VerificationStatus(phase="Pending", verdict="", conditions=(waits,))


def _missing(sentence: str) -> VerificationStatus:
    text = (
        f"{sentence} spec.evidence of the Verification names it; the run starts when it is there."
    )
    waits = condition("Ready", False, "EvidenceNotReady", text)
    return VerificationStatus(phase="Pending", verdict="", conditions=(waits,))


def _never(sentence: str) -> VerificationStatus:
    ended = final(
        "Failed", INVALID_SPEC, f"{sentence} No driver pod was started for the Verification."
    )
    return VerificationStatus(phase="Failed", verdict="Inconclusive", conditions=ended)
