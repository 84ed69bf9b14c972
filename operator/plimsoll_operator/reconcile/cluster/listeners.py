"""The listeners of a LogCluster: certificates first, then the record that has brokers open them.

Called with each pass over the cluster, and once a minute while a listener has TLS, so that what is
due is renewed and a Secret that a user changed is copied.  A certificate that cannot be had stalls
what it is for, and keeps neither other listeners nor the one before from being served.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from plimsoll_core.errors import Reason
from plimsoll_core.messages.listeners import DeclareListeners
from plimsoll_core.messages.requests import Answer, Done, Refused
from plimsoll_operator.api import labels
from plimsoll_operator.api.listeners import DeclaredListener, committed
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
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
from plimsoll_operator.pki.expiry import CertificateKind, CertificateTimes
from plimsoll_operator.reconcile.cluster.child_repair import apply_child
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.closed_listeners import closed

logger = logging.getLogger("plimsoll.listeners")

LOOK_MS = 60_000
LOOK_AT_CLOSED_MS = 5_000
REFUSED = "ListenersRefused"
NO_CERTIFICATE = "CertificateMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Where listeners' certificates come from: the cluster's own authority, or users' pairs."""

    authorities: rotation.Authorities | None
    given: dict[str, KeyPair]


async def reconcile(term: Term, cluster: LogCluster, context: Context) -> None:
    """Raises Retry, and what the API server answers."""
    with_tls = [one for one in cluster.listeners if one.tls is not None]
    problems = await _certificates(term, context, with_tls) if with_tls else []
    own = any(_is_own(one) for one in with_tls)
    brokers = {*term.image.members, *term.image.brokers}
    names = [one.name for one in with_tls]
    certificate_times(term).keep(brokers, names, authority=own)
    wanted = committed(cluster.listeners)
    answer: Answer = Done()
    if wanted != term.image.listeners:
        answer = await term.ask(DeclareListeners(listeners=wanted))
    reason = NO_CERTIFICATE
    if isinstance(answer, Refused) and not _comes_by_itself(cluster, answer):
        problems.insert(0, answer.message)
        reason = REFUSED
    if problems:
        term.stall(StallSource.LISTENERS, Cause(reason=reason, message=" ".join(problems)))
    else:
        term.unstall(StallSource.LISTENERS)
    if closed(term.image):  # brokers tell why with heartbeats, which nothing else follows
        term.add_later(Work(Task.CLUSTER, term.key), LOOK_AT_CLOSED_MS)
    elif with_tls:
        term.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


def certificate_times(term: Term) -> CertificateTimes:
    """When they end, as this term saw them last."""
    return term.kept(CertificateTimes, CertificateTimes)


def _is_own(listener: DeclaredListener) -> bool:
    """The cluster's own authority signs what it shows."""
    return listener.tls is not None and not listener.tls.certificate_secret


def _comes_by_itself(cluster: LogCluster, answer: Refused) -> bool:
    """The metadata version that knows listeners is finalised later, and a pass follows that."""
    unpinned = cluster.spec.metadata_version is None
    return unpinned and answer.known_reason is Reason.MetadataTooOld


async def _certificates(
    term: Term, context: Context, listeners: list[DeclaredListener]
) -> list[str]:
    """Have every broker's Secret hold what its listeners show; what was wrong, in sentences."""
    problems: list[str] = []
    given: dict[str, KeyPair] = {}
    for listener in listeners:
        found = await _given(term, listener)
        if isinstance(found, KeyPair):
            given[listener.name] = found
        elif found is not None:
            problems.append(found)
    own = any(_is_own(one) for one in listeners)
    authorities = await _authorities(term, context) if own else None
    sources = _Sources(authorities=authorities, given=given)
    for broker_id in sorted({*term.image.members, *term.image.brokers}):
        await _broker(term, context, broker_id, listeners, sources)
    return problems


async def _given(term: Term, listener: DeclaredListener) -> KeyPair | str | None:
    """What a user gave, or a sentence about why it cannot be had; None: nothing is to be given."""
    name = listener.tls.certificate_secret if listener.tls is not None else None
    if not name:
        return None
    begun = f"Listener {listener.name}: Secret {name}"
    kept = "; brokers show what they had before, if anything."
    try:
        secret = await term.kube.get(SECRETS, term.key[0], name)
    except NotFound:
        return f"{begun} does not exist{kept}"
    data = manifests.data_of(secret)
    if "tls.crt" not in data or "tls.key" not in data:
        return f"{begun} has no tls.crt or no tls.key{kept}"
    pair = KeyPair(certificate=data["tls.crt"], key=data["tls.key"])
    why = why_unusable(pair)
    return f"{begun}: {why}{kept}" if why else pair


# --- the cluster's own authority ---------------------------------------------------------------


async def _authorities(term: Term, context: Context) -> rotation.Authorities:
    """What signs now; made, announced and replaced when it is due, and shown to clients."""
    name = labels.listener_authority(term.cluster_id)
    namespace = context.operator_namespace or context.namespace
    secret, known = await read_authorities(term, namespace, name)
    if known is not None:
        certificate_times(term).saw(None, "", "authority", known.current.certificate)
    try:
        now = rotation.step(known, f"{context.name} listeners", term.now_ms())
    except Unreadable as error:
        raise Retry(f"Secret {namespace}/{name}: {error}") from error
    # Clients trust it before it is kept, and it is kept before it signs.
    await apply_child(term, manifests.authority_config_map(context, now.trusted))
    if now != known:
        await write_secret(term, secret, manifests.authority_secret(context, now, name))
        logger.info("Secret %s/%s: the authority of listeners was changed", namespace, name)
        certificate_times(term).saw(None, "", "authority", now.current.certificate)
    return now


# --- brokers' Secrets --------------------------------------------------------------------------


async def _broker(
    term: Term,
    context: Context,
    broker_id: int,
    listeners: list[DeclaredListener],
    sources: _Sources,
) -> None:
    name = labels.broker_tls(context.name, broker_id)
    try:
        secret: Object | None = await term.kube.get(SECRETS, context.namespace, name)
    except NotFound:
        secret = None
    names = manifests.server_names(context, broker_id)
    pairs, times = {}, certificate_times(term)
    for listener in listeners:
        held = None if secret is None else manifests.pair_of(secret, listener.name)
        if held is not None:
            times.saw(broker_id, listener.name, _kind(listener), held.certificate)
        if _is_own(listener):
            assert sources.authorities is not None, "read where one is needed"
            pair = _own(held, names, sources.authorities, term.now_ms())
        else:
            given = sources.given.get(listener.name, held)
            if given is None:
                continue
            pair = given
        pairs[listener.name] = pair
    wanted = manifests.broker_secret(context, broker_id, pairs, manifests.inside_of(secret))
    if secret is None or secret.get("data") != wanted["data"]:
        await write_secret(term, secret, wanted)
        logger.info("Secret %s: certificates were written", name)
    for listener in listeners:
        if listener.name in pairs:
            chain = pairs[listener.name].certificate
            times.saw(broker_id, listener.name, _kind(listener), chain)


def _kind(listener: DeclaredListener) -> CertificateKind:
    return "own" if _is_own(listener) else "given"


def _own(
    held: KeyPair | None, names: tuple[str, ...], authorities: rotation.Authorities, now_ms: int
) -> KeyPair:
    """The pair that is held, as long as it is right; else a new one."""
    if held is not None and not why_unusable(held):
        found = describe(held.certificate)
        signed = signed_by(held.certificate, authorities.current.certificate)
        if signed and found.names == frozenset(names) and now_ms < found.validity.due_ms():
            return held
    return issue(authorities.current, names, now_ms)


async def read_authorities(
    term: Term, namespace: str, name: str
) -> tuple[Object | None, rotation.Authorities | None]:
    """A Secret that holds authorities, and those; None and None: there is none yet."""
    try:
        secret = await term.kube.get(SECRETS, namespace, name)
    except NotFound:
        return None, None
    known = manifests.authorities_of(secret)
    if known is None:
        raise Retry(f"Secret {namespace}/{name} is not what this operator keeps there")
    return secret, known


async def write_secret(term: Term, secret: Object | None, wanted: Object) -> None:
    """Create it, or replace what was read, by its resourceVersion."""
    try:
        if secret is None:
            await term.kube.create(SECRETS, wanted)
        else:
            version = secret["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            await term.kube.replace(SECRETS, {**wanted, "metadata": metadata})
    except Conflict:
        name = wanted["metadata"]["name"]
        raise Retry(f"Secret {name} was changed meanwhile", after_ms=500) from None
