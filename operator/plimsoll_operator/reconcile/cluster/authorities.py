"""Certificate authorities (CAs) of a cluster: keeps them in Secrets, and commits the CAs of
clients' certificates.

`settled` keeps a CA in a Secret of the operator's namespace; the reconcilers of listeners, of
clients and of the internal CA call it. A CA is stored before it signs. An unusable Secret is never
overwritten and signs nothing: `Unreadable` states why, and only a person can repair it.

`reconcile` commits the CAs of certificates that clients may log in with: the cluster's own and
those named in the spec. It runs with each reconcile of the cluster, and once a minute while
certificates are asked for. Removing a CA from the spec ends its clients' sessions at once. If a CA
is unreadable, the last content of the same object stays. The own CA's key is kept for users'
certificates (`certificate_signing`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from plimsoll_core.controller.security.trusted_issuers import (
    AUTHORITIES_MAX,
    BYTES_MAX,
    CERTIFICATES_MAX,
)
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareClientAuthorities
from plimsoll_core.security.client_certificates import OWN_AUTHORITY, ClientAuthority
from plimsoll_operator.api import labels
from plimsoll_operator.api.certificates import KEY_DEFAULT, ExternalCa
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki import rotation
from plimsoll_operator.pki.authority import (
    KeyPair,
    Unreadable,
    authority_certificates,
    why_unusable,
)
from plimsoll_operator.pki.expiry import AuthorityKind, CertificateTimes
from plimsoll_operator.pki.rotation import AGAIN_MS, Authorities
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.certificate_signing import (
    certificate_ms,
    client_signing,
    clients_show_certificates,
)
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.authorities")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySecret:
    """Describes the Secret of a CA. `name`: the Secret's name. `component`: its component label.
    `signs`: what the CA signs, a part of its certificate's common name. `kind`: label of the CA in
    metrics."""

    name: str
    component: str
    signs: str
    kind: AuthorityKind


def certificate_times(term: Term) -> CertificateTimes:
    """Return the expiry times of certificates, as this term last saw them."""
    return term.kept(CertificateTimes, CertificateTimes)


async def settled(
    term: Term,
    context: Context,
    secret: AuthoritySecret,
    step: Callable[[Authorities | None, str], Authorities],
    show: Callable[[bytes], Awaitable[None]] | None = None,
) -> Authorities:
    """Advance the rotation of a CA by one step, store the result in its Secret, and return it: the
    CA with the ones announced before and trusted after it. `step`: takes the stored CAs (None if
    there are none) and a common name, and returns those to store. `show`: called with the trusted
    certificates (PEM) before they are stored. Raise `Unreadable` if the Secret or a CA is unusable,
    Retry after a concurrent change, and the API server's errors."""
    namespace = context.operator_namespace or context.namespace
    found, known = await read_authorities(term, namespace, secret.name)
    if known is not None:
        certificate_times(term).saw_authority(secret.kind, known.current.certificate)
    try:
        now = step(known, f"{context.name} {secret.signs}")
        authority_certificates(now.trusted)
        for pair in (now.current, now.announced):
            if pair is not None and (why := why_unusable(pair)):
                raise Unreadable(why)
    except Unreadable as error:
        raise Unreadable(f"Secret {namespace}/{secret.name} cannot be used: {error}") from error
    if show is not None:
        await show(now.trusted)
    if now != known:
        wanted = manifests.authority_secret(context, now, secret.name, secret.component)
        await write_secret(term, found, wanted)
        steps = tuple(one.format(name=context.name) for one in NEXT_STEPS[secret.signs])
        logger.info(
            "the operator wrote Secret %s/%s, which holds the %s CA of LogCluster %s: %s",
            *(namespace, secret.name, secret.signs, context.name, _said(known, now, steps)),
        )
        certificate_times(term).saw_authority(secret.kind, now.current.certificate)
    return now


def _said(known: Authorities | None, now: Authorities, steps: tuple[str, ...]) -> str:
    """Return a text for the log that says what differs between the CAs `known` and `now`, and what
    clients need. `steps`: a value of `NEXT_STEPS`."""
    announced, signing, ended = steps
    if known is None:
        return "the CA is new, and signs certificates from now on"
    if replace(known, served=now.served) == now:
        return (
            f"the request {now.served!r} to rotate the CA is ignored, because the last rotation "
            f"step was less than {AGAIN_MS // 60000} minutes ago; make a new request later if "
            "you still want a rotation"
        )
    if now.announced is not None:
        return f"the next CA is in it too, and will sign certificates; {announced}"
    if now.former:
        return f"the next CA signs certificates from now on; {signing}"
    return f"the previous CA is no longer trusted; {ended}"


async def read_authorities(
    term: Term, namespace: str, name: str
) -> tuple[Object | None, Authorities | None]:
    """Return a Secret and the CAs in it, or (None, None) if there is none. Raise `Unreadable` if
    this operator did not write its content, and the API server's errors."""
    try:
        secret = await term.kube.get(SECRETS, namespace, name)
    except NotFound:
        return None, None
    known = manifests.authorities_of(secret)
    if known is None:
        raise Unreadable(
            f"Secret {namespace}/{name} cannot be used: it does not hold the CAs that the "
            "operator wrote there, since another client changed or removed them"
        )
    return secret, known


async def write_secret(term: Term, secret: Object | None, wanted: Object) -> None:
    """Create the Secret `wanted` if `secret` is None. Otherwise replace `secret` as it was read.
    Raise Retry if another client changed it meanwhile."""
    try:
        if secret is None:
            await term.kube.create(SECRETS, wanted)
        else:
            version = secret["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            await term.kube.replace(SECRETS, {**wanted, "metadata": metadata})
    except Conflict:
        name = wanted["metadata"]["name"]
        text = (
            f"Secret {name} was changed by another client while the operator wrote it; the "
            "operator reads it again and continues"
        )
        raise Retry(text, after_ms=500) from None


LOOK_MS = 60_000
MISSING = "ClientCaMissing"
CLIENT_CA = "client-ca"
"""Component label of the Secret with the clients' CA."""
KIND: AuthorityKind = "clients-authority"
"""Label value of the clients' CA in metrics."""
KEPT = "; brokers keep using its last valid version, if any."
MENDS = (
    "Restore its content, or delete it: then the operator makes a new CA and new certificates of "
    "users, and brokers refuse the former ones. Each client must then load the Secret of its User."
)
CORRECT = "The owner of that CA must correct the object; brokers then read it by themselves."
NEXT_STEPS = {
    "clients": (
        "brokers trust it too, and no client needs anything yet",
        "each client must load the Secret of its User before the operator drops the previous CA",
        "brokers refuse certificates that it signed",
    ),
    "listeners": (
        "give all clients the ConfigMap {name}-listener-ca, which has it, before it signs",
        "clients that have the present ConfigMap {name}-listener-ca need nothing",
        "clients need nothing, and may drop it",
    ),
    "internal": ("nothing needs to be done",) * 3,
}
"""By what a CA signs: what follows from each step of its rotation, and what clients need."""


@dataclass(slots=True)
class _WantedAuthorities:
    """CAs to commit for clients' certificates. `problems`: sentences on CAs that are unavailable.
    `signs`: the key pair of the cluster's own CA, None if not needed or unusable. `unusable`: a
    sentence that says why it is unusable, "" if it is not."""

    wanted: list[ClientAuthority] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    signs: KeyPair | None = None
    unusable: str = ""


async def _sought(
    term: Term, result: PassResult, cluster: LogCluster, context: Context
) -> _WantedAuthorities:
    known = {one.name: one for one in term.image.security.authorities}
    sought = _WantedAuthorities()
    if not clients_show_certificates(cluster):
        certificate_times(term).forget_authority(KIND)
        return sought
    try:
        own = await _own(term, result, context)
        trusted = authority_certificates(own.trusted)
    except Unreadable as error:
        # Only users' certificates depend on it; nothing else of the cluster waits.
        sought.unusable = f"The CA that signs users' certificates: {error}{KEPT} {MENDS}"
        sought.problems.append(sought.unusable)
        if OWN_AUTHORITY in known:
            sought.wanted.append(known[OWN_AUTHORITY])
    else:
        sought.signs = own.current
        sought.wanted.append(ClientAuthority(name=OWN_AUTHORITY, certificates=trusted))
    for declared in _named(cluster):
        found = await _read(term, declared)
        if isinstance(found, ClientAuthority):
            sought.wanted.append(found)
            continue
        sought.problems.append(found)
        if (before := _kept(declared, known)) is not None:
            sought.wanted.append(before)
    return sought


async def reconcile(term: Term, result: PassResult, cluster: LogCluster, context: Context) -> None:
    """Commit the CAs of clients' certificates, and set the CA that signs users' certificates.
    Faults stall the LogCluster. Raises Retry and the API server's errors."""
    sought = await _sought(term, result, cluster, context)
    wanted, problems, signs = sought.wanted, sought.problems, sought.signs
    reason = MISSING
    if tuple(wanted) != term.image.security.authorities:
        answer = await term.ask(DeclareClientAuthorities(authorities=tuple(wanted)))
        if isinstance(answer, Refused) and not _comes_by_itself(cluster, answer):
            problems.insert(0, answer.message)
            reason = answer.reason
    believed = signs is not None and _is_believed(term, signs)
    signing = client_signing(term)
    signing.authority, signing.unusable = signs if believed else None, sought.unusable
    if problems:
        cause = Cause(reason=reason, message=" ".join(problems))
        result.stall(StallSource.CLIENT_CERTIFICATES, cause)
    else:
        result.unstall(StallSource.CLIENT_CERTIFICATES)
    if wanted:
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


def _is_believed(term: Term, signs: KeyPair) -> bool:
    """Return True if the certificate of the CA `signs` is committed, so that brokers trust it."""
    committed = {der for one in term.image.security.authorities for der in one.certificates}
    return committed.issuperset(authority_certificates(signs.certificate))


def _comes_by_itself(cluster: LogCluster, answer: Refused) -> bool:
    """Return True if the controller refused only because the metadata version is too old, and the
    spec does not pin that version. Another pass follows once a newer version is finalised, so
    nothing has to be reported."""
    unpinned = cluster.spec.metadata_version is None
    return unpinned and answer.known_reason is Reason.MetadataTooOld


async def _own(term: Term, result: PassResult, context: Context) -> rotation.Authorities:
    """Return the cluster's own CA for clients' certificates, with its announced and former ones. It
    is created, announced and replaced when due; brokers trust a CA before it signs. Raises
    Unreadable, Retry, and the API server's errors."""

    def step(known: rotation.Authorities | None, common_name: str) -> rotation.Authorities:
        former_ms = rotation.CLIENT_OVERLAP_MS
        asked = (context.cluster.metadata.annotations or {}).get(labels.ROTATE_CLIENTS, "")
        return rotation.step(known, common_name, certificate_ms(term, result), former_ms, asked)

    name = labels.client_authority(term.cluster_id)
    secret = AuthoritySecret(name=name, component=CLIENT_CA, signs="clients", kind=KIND)
    return await settled(term, context, secret, step)


# --- other authorities ---------------------------------------------------------------------------


def _named(cluster: LogCluster) -> tuple[ExternalCa, ...]:
    stated = cluster.spec.certificates and cluster.spec.certificates.clients
    return (stated.external_cas or ()) if stated else ()


def _source(declared: ExternalCa) -> str:
    """Return a text that names the object, and the key in it, from which an external CA is read."""
    place, kind = declared.config_map, "ConfigMap"
    if place is None:
        place, kind = declared.secret, "Secret"
    return "nothing" if place is None else f"{kind} {place.name}, {place.key or KEY_DEFAULT}"


def _kept(declared: ExternalCa, known: dict[str, ClientAuthority]) -> ClientAuthority | None:
    """Return the committed CA of the same name if it was read from the same object as `declared`
    names, else None."""
    before = known.get(declared.name)
    return before if before is not None and before.source == _source(declared) else None


async def _read(term: Term, declared: ExternalCa) -> ClientAuthority | str:
    """Return a CA that the spec names, read from its object, or a sentence on why it is
    unavailable."""
    source = _source(declared)
    place = declared.config_map or declared.secret
    begun = f"The CA {declared.name!r} of clients' certificates cannot be read from {source}"
    if place is None or (declared.config_map and declared.secret):
        return (
            f"The CA {declared.name!r} of clients' certificates cannot be read, because its entry "
            f"does not name exactly one of configMap and secret{KEPT} Correct the entry in "
            "spec.certificates.clients.externalCas."
        )
    kind = CONFIG_MAPS if declared.config_map is not None else SECRETS
    try:
        found = await term.kube.get(kind, term.key[0], place.name)
    except NotFound:
        return f"{begun}, which does not exist{KEPT} Create it, or correct the LogCluster."
    key = place.key or KEY_DEFAULT
    if declared.config_map is not None:
        bundle = str((found.get("data") or {}).get(key, "")).encode()
    else:
        bundle = manifests.data_of(found).get(key, b"")
    try:
        certificates = authority_certificates(bundle)
    except Unreadable as error:
        return f"{begun}: {error}{KEPT} {CORRECT}"
    if len(certificates) > CERTIFICATES_MAX:
        return f"{begun}: it has more than {CERTIFICATES_MAX} certificates{KEPT} {CORRECT}"
    if sum(map(len, certificates)) > BYTES_MAX // AUTHORITIES_MAX:
        return f"{begun}: it has more than {BYTES_MAX // AUTHORITIES_MAX} bytes{KEPT} {CORRECT}"
    return ClientAuthority(name=declared.name, certificates=certificates, source=source)
