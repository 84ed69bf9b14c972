"""Objects that listeners need besides the cluster's children: Services, TLSRoutes, and cert-manager
Certificates.

The objects of a kind are listed once. One that is up to date is not written again, and one that
belongs to no listener is removed. `ask` creates a Certificate for each listener with a cert-manager
issuer; the key pair itself comes from the Secret that cert-manager fills, like a user's own pair
(`listeners`). If cert-manager is missing or does not answer, only its listener waits. Called by the
reconcilers of external access and of listeners.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.api.listeners import DeclaredListener
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CERTIFICATES, Kind
from plimsoll_operator.manifests.certificates import certificate
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster.children import applied_children, apply_child
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.listeners")


async def listed(term: Term, kind: Kind, context: Context) -> dict[str, Object]:
    """Return the objects of `kind` that belong to listeners of this LogCluster, by name: those
    that it owns, since others may have the same labels. Raises ApiError."""
    selector = f"{labels.CLUSTER}={context.name},{labels.COMPONENT}={labels.LISTENER_COMPONENT}"
    found = await term.kube.list(kind, context.namespace, label_selector=selector)
    uid = context.cluster.metadata.uid
    return {item["metadata"]["name"]: item for item in found.items if uid in _owners(item)}


def _owners(body: Object) -> list[str]:
    return [owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()]


async def applied(
    term: Term, result: PassResult, manifests: Iterable[Object], there: dict[str, Object]
) -> None:
    """Apply the manifests that differ from the objects in `there`, and put the stored objects into
    `there`. Raises ApiError, and Retry if an object has another owner."""
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        found = there.get(name)
        known = applied_children(term).manifests.get((manifest["kind"], name)) == manifest
        # Lists of built-in kinds omit their items' kind.
        stated = {part: manifest[part] for part in manifest if part not in ("apiVersion", "kind")}
        if found is None or not known or not states(found, stated):
            there[name] = await apply_child(term, result, manifest)


async def remove_others(
    term: Term, kind: Kind, context: Context, there: dict[str, Object], kept: Collection[str]
) -> None:
    """Delete the objects of `kind` in `there`, which this LogCluster owns, except those named in
    `kept`."""
    for name in sorted(there.keys() - set(kept)):
        meta = there[name]["metadata"]
        if meta.get("deletionTimestamp"):
            continue
        logger.info(
            "the operator deletes %s %s, because no listener uses it any more", kind.kind, name
        )
        applied_children(term).manifests.pop((kind.kind, name), None)
        try:
            await term.kube.delete(kind, context.namespace, name, uid=meta["uid"])
        except (NotFound, Conflict):
            continue


def states(found: object, stated: object) -> bool:
    """Return True if the object `found` has every field that the manifest `stated` has, with the
    same value. Fields that only `found` has do not matter."""
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


DISABLED = (
    "the chart's certManager.enabled is false, so this operator creates no Certificates; "
    "set it to true"
)
NOT_INSTALLED = (
    f"the API server does not serve {CERTIFICATES.kind} of {CERTIFICATES.api_version}: install "
    "cert-manager"
)


@dataclass(slots=True)
class _KeptCertificates:
    """State about cert-manager Certificates that a term keeps between passes."""

    # True if the last pass left no Certificate of a removed listener.
    swept: bool = False


async def ask(
    term: Term,
    result: PassResult,
    context: Context,
    listeners: Collection[DeclaredListener],
    names: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    """Create a cert-manager Certificate for each of `listeners`, which have an issuer, and remove
    all other Certificates of the cluster.

    `names`: the host names that the certificate must have, by listener. Return why a Certificate is
    not ready, by listener; listeners with a ready one are left out.
    """
    kept = term.kept(_KeptCertificates, _KeptCertificates)
    if not listeners and kept.swept:
        return {}
    if not term.options.certificates:
        kept.swept = True
        return {one.name: DISABLED for one in listeners}
    try:
        there = await listed(term, CERTIFICATES, context)
        wanted = {labels.listener_certificate(context.name, one.name) for one in listeners}
        await remove_others(term, CERTIFICATES, context, there, wanted)
        kept.swept = not listeners
    except NotFound:
        kept.swept = not listeners
        return {one.name: NOT_INSTALLED for one in listeners}
    except ApiError as error:
        # Also if cert-manager's webhooks do not answer: they are not part of the API server.
        why = (
            "the operator cannot list or delete cert-manager Certificates, so it does not apply "
            f"the listener's Certificate: {error.reply}"
        )
        return {one.name: why for one in listeners}
    whys: dict[str, str] = {}
    for listener in listeners:
        if why := await _ask(term, result, context, listener, names[listener.name], there):
            whys[listener.name] = why
    return whys


async def _ask(
    term: Term,
    result: PassResult,
    context: Context,
    listener: DeclaredListener,
    names: tuple[str, ...],
    there: dict[str, Object],
) -> str:
    """Apply the Certificate of a listener. Return why it is not ready, as part of a sentence, "" if
    it is."""
    if not names:
        return "no external name is known yet to request a Certificate for"
    issuer = listener.tls.issuer_ref if listener.tls is not None else None
    assert issuer is not None, "only listeners with an issuer have a Certificate"
    stated = certificate(context, listener.name, issuer, names)
    name = stated["metadata"]["name"]
    try:
        await applied(term, result, [stated], there)
    except ApiError as error:
        return f"the API server rejected Certificate {name}: {error.reply}"
    except Retry as error:  # a foreign object has the name
        return str(error)
    found = there[name]
    if is_true(found, "Ready") and _is_of(found):
        return ""
    return f"Certificate {name} is not ready{_told(found)}"


def _is_of(found: Object) -> bool:
    """Return True if the condition Ready of the Certificate `found` is about its present
    generation."""
    generation = found["metadata"].get("generation", 0)
    shown = (found.get("status") or {}).get("conditions") or ()
    said = (one.get("observedGeneration") for one in shown if one.get("type") == "Ready")
    return all(one is None or one >= generation for one in said)


def _told(found: Object) -> str:
    """Return cert-manager's message about the Certificate in parentheses, "" if there is none."""
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready" and one.get("message"):
            return f" ({str(one['message'])[:300].rstrip('.')})"
    return ""
