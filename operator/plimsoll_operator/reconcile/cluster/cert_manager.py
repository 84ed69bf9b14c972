"""Listeners whose certificates cert-manager makes: has a Certificate for each, and says how it is.

The pair itself comes from the Secret that cert-manager fills, as one that a user gives
(`listeners`), so a renewal reaches brokers as any other pair does.  Where cert-manager cannot be
asked, or does not answer, its listener alone waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.api.listeners import DeclaredListener
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import CERTIFICATES
from plimsoll_operator.manifests.certificates import certificate
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster.listener_objects import applied, listed, remove_others
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

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
    """Of one cluster and term."""

    # Whether no Certificate was left by the last pass.
    swept: bool = False


async def ask(
    term: Term,
    context: Context,
    listeners: Collection[DeclaredListener],
    names: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    """Have a Certificate for each of these listeners with an issuer, and for no other one.
    `names`: what it is for, by listener.  Returns what keeps each from being ready, by listener."""
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
        # Also where cert-manager's webhooks do not answer: they are no part of the API server.
        return {one.name: f"the API server rejected a request: {error.reply}" for one in listeners}
    whys: dict[str, str] = {}
    for listener in listeners:
        if why := await _ask(term, context, listener, names[listener.name], there):
            whys[listener.name] = why
    return whys


async def _ask(
    term: Term,
    context: Context,
    listener: DeclaredListener,
    names: tuple[str, ...],
    there: dict[str, Object],
) -> str:
    """Why it is not ready; empty: it is."""
    if not names:
        return "no external name is known yet to request a Certificate for"
    issuer = listener.tls.issuer_ref if listener.tls is not None else None
    assert issuer is not None, "who has none is not asked about"
    stated = certificate(context, listener.name, issuer, names)
    name = stated["metadata"]["name"]
    try:
        await applied(term, [stated], there)
    except ApiError as error:
        return f"the API server rejected Certificate {name}: {error.reply}"
    except Retry as error:  # somebody else has an object of the name
        return str(error)
    found = there[name]
    if is_true(found, "Ready") and _is_of(found):
        return ""
    return f"Certificate {name} is not ready{_told(found)}"


def _is_of(found: Object) -> bool:
    """Whether its conditions speak of what it states now."""
    generation = found["metadata"].get("generation", 0)
    shown = (found.get("status") or {}).get("conditions") or ()
    said = (one.get("observedGeneration") for one in shown if one.get("type") == "Ready")
    return all(one is None or one >= generation for one in said)


def _told(found: Object) -> str:
    """What cert-manager says."""
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready" and one.get("message"):
            return f" ({str(one['message'])[:300].rstrip('.')})"
    return ""
