"""Reconciles the listeners of a LogCluster: first their certificates, then the committed record
upon which brokers open the listeners.

Called with each pass over the cluster, and once a minute while a listener has TLS, so that
certificates are renewed in time and a Secret that a user changed is copied. An unavailable
certificate stalls its own listener; other listeners, and the previous certificate, are still
served.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_core.controller.brokers.declared_listeners import SINCE
from plimsoll_core.errors import Reason
from plimsoll_core.messages.brokers import DeclareListeners
from plimsoll_core.messages.requests import Answer, Done, Refused
from plimsoll_operator.api import labels
from plimsoll_operator.api.external_access import IssuerRef
from plimsoll_operator.api.listeners import DeclaredListener, committed
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.selectors import why_refused
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.certificates import inside_names
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki import rotation
from plimsoll_operator.pki.authority import (
    KeyPair,
    Unreadable,
    describe,
    issue,
    signed_by,
    why_unusable,
)
from plimsoll_operator.pki.expiry import AuthorityKind, CertificateKind
from plimsoll_operator.reconcile.cluster import external_access, listener_objects
from plimsoll_operator.reconcile.cluster.authorities import (
    AuthoritySecret,
    certificate_times,
    settled,
    write_secret,
)
from plimsoll_operator.reconcile.cluster.children import apply_child
from plimsoll_operator.reconcile.cluster.external_access import OutsideAccess
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.certificate_signing import certificate_ms
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.cluster_conditions import closed

logger = logging.getLogger("plimsoll.listeners")

LOOK_MS = 60_000
LOOK_SOON_MS = 5_000
REFUSED = "ListenersRefused"
NO_CERTIFICATE = "CertificateMissing"
NO_SELECTOR = "InvalidRequest"
KIND: AuthorityKind = "authority"
"""Label value of the listeners' CA in metrics."""
FOREIGN = "SecretForeign"
KEPT = "; brokers keep presenting their previous certificate, if any."
MENDS = (
    "Restore its content, or delete it: then the operator makes a new CA, and all clients of "
    "listeners with TLS need the new ConfigMap {name}-listener-ca."
)
GIVEN = (
    "The owner of the Secret must correct it; within a minute brokers then present the corrected "
    "certificate."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Sources of the listeners' certificates. `authorities`: the cluster's own CA, None if not
    needed or unusable. `given`: key pairs of users or of cert-manager, by listener. `outside`:
    external host names to include, by (listener, broker)."""

    authorities: rotation.Authorities | None
    given: dict[str, KeyPair]
    outside: dict[tuple[str, int], tuple[str, ...]]


async def reconcile(term: Term, result: PassResult, cluster: LogCluster, context: Context) -> None:
    """Write the listeners' certificates into the brokers' Secrets, and commit the listeners. Faults
    stall the LogCluster. Raises Retry, and the API server's errors."""
    with_tls = [one for one in cluster.listeners if one.tls is not None]
    access = await _outside(term, result, cluster, context)
    problems, foreign = await _certificates(term, result, context, with_tls, access)
    if not any(_is_own(one) for one in with_tls):
        certificate_times(term).forget_authority(KIND)
    brokers = {*term.image.members, *term.image.brokers}
    names = [one.name for one in with_tls]
    certificate_times(term).keep(brokers, names)
    wanted = committed(cluster.listeners, access.outside)
    answer: Answer = Done()
    if wanted != term.image.listeners:
        answer = await term.ask(DeclareListeners(listeners=wanted))
    found: list[tuple[str, str]] = []
    if isinstance(answer, Refused) and not _comes_by_itself(cluster, answer):
        found.append((REFUSED, answer.message))
    else:
        await external_access.sweep(term, cluster, context, access)
    found += [(FOREIGN, one) for one in foreign]
    found += [(NO_CERTIFICATE, one) for one in problems]
    found += [(external_access.REFUSED, one) for one in access.refused]
    found += [(NO_SELECTOR, one) for one in _no_selectors(cluster)]
    if found:
        text = " ".join(message for _, message in found)
        result.stall(StallSource.LISTENERS, Cause(reason=found[0][0], message=text))
    else:
        result.unstall(StallSource.LISTENERS)
    # Brokers report causes in heartbeats, and other controllers in their own objects' status, which
    # nothing else follows.
    by_issuer = any(_issuer(one) is not None for one in with_tls)
    if closed(term.image) or external_access.external_whys(term) or (by_issuer and problems):
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_SOON_MS)
    elif with_tls or access.outside:
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


async def _outside(
    term: Term, result: PassResult, cluster: LogCluster, context: Context
) -> OutsideAccess:
    """Return the result of `external_access.settle`, or an empty one while the metadata version is
    too old to commit external listeners."""
    if term.image.metadata_version < SINCE:
        return OutsideAccess()
    return await external_access.settle(term, result, cluster, context)


def _is_own(listener: DeclaredListener) -> bool:
    """Return True if the cluster's own CA signs the listener's certificate."""
    given = listener.tls is None or listener.tls.certificate_secret or listener.tls.issuer_ref
    return not given


def _issuer(listener: DeclaredListener) -> IssuerRef | None:
    return None if listener.tls is None else listener.tls.issuer_ref


def _no_selectors(cluster: LogCluster) -> list[str]:
    """Return a sentence for each listener of which the allowedNamespaces selector is invalid.
    `manifests.networkpolicy` ignores such a selector."""
    selectors = (
        (one.name, one.allowed_namespaces.selector)
        for one in cluster.listeners
        if one.allowed_namespaces is not None
    )
    whys = ((name, "" if one is None else why_refused(one)) for name, one in selectors)
    return [
        f"Listener {name}: allowedNamespaces.selector: {why} Until it is fixed, only pods of "
        "the LogCluster's own namespace can connect."
        for name, why in whys
        if why
    ]


def _comes_by_itself(cluster: LogCluster, answer: Refused) -> bool:
    """Return True if the controller refused only because the metadata version is too old, and the
    spec does not pin that version. Another pass follows once a newer version is finalised, so
    nothing has to be reported."""
    unpinned = cluster.spec.metadata_version is None
    return unpinned and answer.known_reason is Reason.MetadataTooOld


async def _certificates(
    term: Term,
    result: PassResult,
    context: Context,
    listeners: list[DeclaredListener],
    access: OutsideAccess,
) -> tuple[list[str], list[str]]:
    """Write the certificates of all listeners with TLS into every broker's Secret. Return two lists
    of sentences: on missing certificates, and on Secrets that were not written since they have
    another owner."""
    brokers = sorted({*term.image.members, *term.image.brokers})
    problems = await _ask_issuers(term, result, context, listeners, brokers, access)
    if not listeners:
        return problems, []
    given: dict[str, KeyPair] = {}
    for listener in listeners:
        found = await _given(term, context, listener)
        if isinstance(found, KeyPair):
            given[listener.name] = found
        elif found is not None:
            problems.append(found)
    authorities = None
    if any(_is_own(one) for one in listeners):
        try:
            authorities = await _authorities(term, result, context)
        except Unreadable as error:
            begun, mends = "The CA that signs brokers' listener certificates", MENDS
            problems.append(f"{begun}: {error}{KEPT} {mends.format(name=context.name)}")
    sources = _Sources(authorities=authorities, given=given, outside=access.names)
    whys = [await _broker(term, result, context, one, listeners, sources) for one in brokers]
    return problems, [why for why in whys if why]


async def _ask_issuers(
    term: Term,
    result: PassResult,
    context: Context,
    listeners: list[DeclaredListener],
    brokers: Sequence[int],
    access: OutsideAccess,
) -> list[str]:
    asking = [one for one in listeners if _issuer(one) is not None]
    names = {one.name: inside_names(context, brokers) for one in asking if not one.external}
    for one in (one for one in asking if one.external):
        known = (access.names.get((one.name, broker_id), ()) for broker_id in brokers)
        names[one.name] = tuple(dict.fromkeys(name for some in known for name in some))
    whys = await listener_objects.ask(term, result, context, asking, names)
    return [f"Listener {name}: {why}." for name, why in sorted(whys.items())]


async def _given(term: Term, context: Context, listener: DeclaredListener) -> KeyPair | str | None:
    """Return the key pair that a user or cert-manager provides for the listener, or a sentence on
    why it is missing. Return None if the cluster's own CA signs instead, or if cert-manager's fault
    is reported already."""
    name = listener.tls.certificate_secret if listener.tls is not None else None
    issued = _issuer(listener) is not None
    if issued:
        name = labels.listener_certificate(context.name, listener.name)
    if not name:
        return None
    begun = f"Listener {listener.name}: Secret {name}"
    try:
        secret = await term.kube.get(SECRETS, term.key[0], name)
    except NotFound:
        return None if issued else f"{begun} does not exist{KEPT} {GIVEN}"
    data = manifests.data_of(secret)
    if "tls.crt" not in data or "tls.key" not in data:
        return f"{begun} lacks tls.crt or tls.key{KEPT} {GIVEN}"
    pair = KeyPair(certificate=data["tls.crt"], key=data["tls.key"])
    why = why_unusable(pair)
    return f"{begun}: {why}{KEPT} {GIVEN}" if why else pair


# --- the cluster's own authority ---------------------------------------------------------------


async def _authorities(term: Term, result: PassResult, context: Context) -> rotation.Authorities:
    """Return the listeners' CA, with its announced and former ones. It is created, announced,
    replaced when due, and published to clients in a ConfigMap. Raises Unreadable, Retry, and the
    API server's errors."""

    def step(known: rotation.Authorities | None, common_name: str) -> rotation.Authorities:
        asked = (context.cluster.metadata.annotations or {}).get(labels.ROTATE_LISTENERS, "")
        return rotation.step(known, common_name, certificate_ms(term, result), asked=asked)

    async def show(trusted: bytes) -> None:
        """Publish the trusted CAs in a ConfigMap before they are stored, so that clients trust a CA
        before it signs."""
        await apply_child(term, result, manifests.authority_config_map(context, trusted))

    name = labels.listener_authority(term.cluster_id)
    secret = AuthoritySecret(name=name, component=manifests.AUTHORITY, signs="listeners", kind=KIND)
    return await settled(term, context, secret, step, show)


# --- brokers' Secrets --------------------------------------------------------------------------


async def _broker(
    term: Term,
    result: PassResult,
    context: Context,
    broker_id: int,
    listeners: list[DeclaredListener],
    sources: _Sources,
) -> str:
    """Write the broker's Secret with the listeners' certificates if it is not up to date. Return
    "", or a sentence that says why the Secret must not be written."""
    name = labels.broker_tls(context.name, broker_id)
    try:
        secret: Object | None = await term.kube.get(SECRETS, context.namespace, name)
    except NotFound:
        secret = None
    if why := manifests.why_foreign(context, broker_id, secret):
        return why
    names = manifests.server_names(context, broker_id)
    pairs, times = {}, certificate_times(term)
    for listener in listeners:
        held = None if secret is None else manifests.pair_of(secret, listener.name)
        if held is not None:
            times.saw(broker_id, listener.name, _kind(listener), held.certificate)
        pair = sources.given.get(listener.name, held)
        if _is_own(listener) and sources.authorities is not None:
            all_names = (*names, *sources.outside.get((listener.name, broker_id), ()))
            pair = _own(held, all_names, sources.authorities, certificate_ms(term, result))
        if pair is not None:
            pairs[listener.name] = pair
    wanted = manifests.broker_secret(context, broker_id, pairs, manifests.inside_of(secret))
    if secret is None or secret.get("data") != wanted["data"]:
        await write_secret(term, secret, wanted)
        logger.info(
            "the operator wrote the listener certificates of broker %d to Secret %s",
            broker_id,
            name,
        )
    for listener in listeners:
        if listener.name in pairs:
            chain = pairs[listener.name].certificate
            times.saw(broker_id, listener.name, _kind(listener), chain)
    return ""


def _kind(listener: DeclaredListener) -> CertificateKind:
    return "own" if _is_own(listener) else "given"


def _own(
    held: KeyPair | None, names: tuple[str, ...], authorities: rotation.Authorities, now_ms: int
) -> KeyPair:
    """Return the key pair `held` if it is valid, has these names and is signed by the present CA.
    Otherwise return a new one."""
    if held is not None and not why_unusable(held):
        found = describe(held.certificate)
        signed = signed_by(held.certificate, authorities.current.certificate)
        if signed and found.names == frozenset(names) and now_ms < found.validity.due_ms():
            return held
    return issue(authorities.current, names, now_ms)
