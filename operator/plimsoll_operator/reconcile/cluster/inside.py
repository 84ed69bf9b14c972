"""TLS between brokers and the operator (internal TLS): the certificates, and the steps to the
declared mode.

`decide` returns the mode to reach: the one that the spec states, else Required for a new cluster
and the present mode for a cluster that had brokers before. The choice is written to the status
before anything is created for a new cluster. `reconcile` is called with each reconcile of the
cluster, and every second or two while a step is under way. A broker's certificate is committed
before it is in the Secret, and the previous one is refused only after the broker has reported that
it shows the new one. So no step needs a restart or cuts a broker off. The CA's key is in the
operator's namespace. The controller's own certificate is made in memory at the start of each term,
whatever the spec states (`show_at_once`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import (
    AllowCertificates,
    BrokerFigures,
    InsideFigures,
    SetInsideMode,
)
from plimsoll_core.messages.requests import Refused
from plimsoll_core.security.inside import (
    ORDER,
    InsideMode,
    broker_identity,
    controller_identity,
    unstated_mode,
)
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, KEY, MODE, identity_of
from plimsoll_net.tls_policy import BadCertificate
from plimsoll_operator.api import labels
from plimsoll_operator.api.certificates import ModeName
from plimsoll_operator.api.cluster_status import CertificatesStatus, InternalCertificatesStatus
from plimsoll_operator.api.labels import ROTATE_INSIDE
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki import inside_rotation
from plimsoll_operator.pki.authority import (
    KeyPair,
    Unreadable,
    describe,
    issue_inside,
    signed_by,
    why_unusable,
)
from plimsoll_operator.pki.expiry import AuthorityKind
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_operator.reconcile.cluster.authorities import (
    AuthoritySecret,
    certificate_times,
    read_authorities,
    settled,
    write_secret,
)
from plimsoll_operator.reconcile.cluster.listeners import FOREIGN, LOOK_MS, NO_CERTIFICATE
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.certificate_signing import certificate_ms
from plimsoll_operator.reconcile.shared.pinned_choices import choices_of, part_of, shown_status
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry

logger = logging.getLogger("plimsoll.inside")

AGAIN_MS = 500
NAMES: dict[InsideMode, ModeName] = {
    InsideMode.OFF: "Off",
    InsideMode.PERMISSIVE: "Permissive",
    InsideMode.REQUIRED: "Required",
}


async def decide(term: Term, result: PassResult, cluster: LogCluster) -> InsideMode:
    """Return the mode of internal TLS that the cluster shall have. For a new cluster it is stored
    in the status before this returns. Raise Retry if that is not done yet."""
    stated, image = cluster.stated_inside, term.image
    choices = choices_of(term)
    if stated is not None:
        pinned = stated
    else:
        pinned = unstated_mode(choices.inside, image.inside.mode, has_brokers=bool(image.brokers))
    if pinned is not choices.inside:
        choices.inside = pinned
        result.mark_cluster()
    if stated is None and not image.brokers:
        await _keep(term, pinned)
    return pinned


async def _keep(term: Term, pinned: InsideMode) -> None:
    try:
        if _is_kept(await shown_status(term), pinned):
            return
        await term.write_status()
        status = await shown_status(term)
    except ApiError as error:
        name = "/".join(term.key)
        text = (
            "the operator cannot write the internal TLS mode to the status of LogCluster "
            f"{name}; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    if _is_kept(status, pinned):
        return
    if "versions" in status and "certificates" not in status:
        # The CRD is older than this operator: only the log will remember the choice, later.
        logger.warning(
            "the operator cannot store the internal TLS mode in the LogCluster's status, because "
            "the installed LogCluster CRD has no status.certificates, so only the metadata log "
            "keeps the mode; install the CRDs of this release"
        )
        return
    text = (
        f"the operator waits until the status of LogCluster {'/'.join(term.key)} shows the "
        "internal TLS mode; nothing needs to be done"
    )
    raise Retry(text, after_ms=AGAIN_MS)


def _is_kept(status: dict[str, object], pinned: InsideMode) -> bool:
    found = part_of(status, "certificates", CertificatesStatus)
    return found is not None and found.internal.pinned == NAMES[pinned]


def certificates_status(term: Term) -> CertificatesStatus | None:
    """Return the modes of internal TLS for the LogCluster's status: the committed one and the
    wanted one. Return None if nothing has been decided in this term."""
    pinned = choices_of(term).inside
    if pinned is None:
        return None
    mode = NAMES[term.image.inside.mode]
    return CertificatesStatus(internal=InternalCertificatesStatus(mode=mode, pinned=NAMES[pinned]))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByBroker:
    """The internal certificates of one broker: the Secret with their files, and what the broker
    reported in its last heartbeat (`told`, None if nothing). `takes_part`: True if the broker is
    registered and not fenced."""

    broker_id: BrokerId
    secret: Object | None
    files: dict[str, bytes]
    told: InsideFigures | None
    takes_part: bool
    # Why the broker's metadata copy on disk may still say Required, as a sentence; "" if it does
    # not.
    copy_closed: str
    # Why the Secret is not written, since it has another owner; "" if it may be.
    foreign: str

    @property
    def pair(self) -> KeyPair | None:
        """Return the key pair in the Secret, or None if there is none or it is unusable."""
        pair = KeyPair(certificate=self.files.get(CERTIFICATE, b""), key=self.files.get(KEY, b""))
        return None if why_unusable(pair) else pair


async def held_by(term: Term, context: Context, broker_id: BrokerId) -> HeldByBroker:
    try:
        name = labels.broker_tls(context.name, broker_id)
        secret: Object | None = await term.kube.get(SECRETS, context.namespace, name)
    except NotFound:
        secret = None
    foreign = manifests.why_foreign(context, broker_id, secret)
    broker = term.image.brokers.get(broker_id)
    contact = term.controller.soft.contacts.get(broker_id)
    if broker is None or contact is None or contact.broker_epoch != broker.broker_epoch:
        figures = None
    else:
        figures = contact.figures
    told = None if figures is None else figures.inside
    return HeldByBroker(
        broker_id=broker_id,
        secret=secret,
        files=manifests.inside_of(secret),
        told=told,
        takes_part=broker is not None and not broker.fenced,
        copy_closed=_copy_closed(figures),
        foreign=foreign,
    )


def _copy_closed(figures: BrokerFigures | None) -> str:
    if figures is None or figures.inside is None:
        return "the broker has not sent a heartbeat yet; start it if it is down."
    if figures.copied_offset is None:
        return (
            "the broker cannot update its copy of the metadata on disk, which still says "
            "Required (see the broker's log)."
        )
    return (
        "the broker still requires TLS; it stops that by itself." if figures.inside.only_tls else ""
    )


UNDER_WAY_MS = 1_000
AUTHORITY = "internal-ca"
"""Component label of the Secret with the internal CA."""
KIND: AuthorityKind = "internal-authority"
"""Label value of the internal CA in metrics."""


@dataclass(slots=True)
class InsideProgress:
    """State of internal TLS that a term keeps between passes. `waits`: a sentence that says why the
    declared mode is not reached yet, "" if it is. `keeps`: a sentence on a broker that keeps its
    certificate in mode Off, "" if none does."""

    waits: str = ""
    keeps: str = ""
    # The controller's own certificate and key, and the CAs under which it was made; None before
    # that.
    own: KeyPair | None = None
    authorities: Authorities | None = None


def waits_of(term: Term) -> str:
    """Return a sentence on why the declared mode of internal TLS is not reached, or why a broker
    keeps its certificate in mode Off. Return "" if neither is the case."""
    progress = term.kept(InsideProgress, InsideProgress)
    return progress.waits or progress.keeps


async def show_at_once(term: Term) -> PassResult:
    """Present the controller's certificate to brokers, signed by the CA in its Secret. Does nothing
    if it is presented already or the cluster never used internal TLS.

    It does not wait for a valid spec: a broker that is shown no certificate would reach no
    controller at all.
    """
    with PassResult() as result:
        await _show_at_once(term, result)
    return result


async def _show_at_once(term: Term, result: PassResult) -> None:
    progress = term.kept(InsideProgress, InsideProgress)
    untouched = _is_untouched(term)
    if progress.own is not None or (untouched and not term.controller.restores):
        return
    name = labels.inside_authority(term.cluster_id)
    namespace = term.options.namespace or term.key[0]
    try:
        _, known = await read_authorities(term, namespace, name)
    except Unreadable as error:
        text = (
            "the controller has no certificate to present to brokers; restore the content of the "
            f"Secret of the CA of internal TLS: {error}"
        )
        raise Retry(text) from error
    if known is None and untouched:
        return  # a log that is empty does not say if brokers use TLS
    if known is None:
        raise Retry(
            f"Secret {namespace}/{name}, which holds the CA of internal TLS, does not exist, so "
            "the controller has no certificate to present to brokers; restore the Secret"
        )
    if progress.own is None:
        _show(term, result, progress, known)


async def reconcile(
    term: Term, result: PassResult, cluster: LogCluster, context: Context, wanted: InsideMode
) -> None:
    """Take one step towards the mode `wanted`, and renew certificates that are due. Raises Retry,
    and the API server's errors."""
    progress = term.kept(InsideProgress, InsideProgress)
    before = term.image.inside.mode
    if wanted is InsideMode.OFF and _is_untouched(term):
        progress.waits = ""
        result.unstall(StallSource.INSIDE)
        certificate_times(term).forget_authority(KIND)
        return
    begins = wanted is not InsideMode.OFF and before is InsideMode.OFF
    if begins and not await _step(term, result, cluster, progress, wanted):
        return
    held = [await held_by(term, context, broker_id) for broker_id in _brokers(term)]
    if whys := [one.foreign for one in held if one.foreign]:
        _stop_at(term, result, progress, Cause(reason=FOREIGN, message=" ".join(whys)))
        return
    busy = await _certificates(term, result, cluster, context, held)
    await _step(term, result, cluster, progress, wanted)
    now = term.image.inside.mode
    soon = busy or now is not wanted or now is not before
    result.add_later(Work(Task.CLUSTER, term.key), UNDER_WAY_MS if soon else LOOK_MS)


def _stop_at(term: Term, result: PassResult, progress: InsideProgress, cause: Cause) -> None:
    """Show the stall `cause`, which only a person can resolve, in the LogCluster's status. Until it
    is resolved, no certificate is issued and no CA is replaced."""
    if progress.waits != cause.message:
        progress.waits = cause.message
        result.mark_cluster()
    result.stall(StallSource.INSIDE, cause)
    result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


def _is_untouched(term: Term) -> bool:
    return term.image.inside.mode is InsideMode.OFF and not term.image.inside.certificates


async def _step(
    term: Term,
    result: PassResult,
    cluster: LogCluster,
    progress: InsideProgress,
    wanted: InsideMode,
) -> bool:
    """Ask the controller for the next mode on the way to `wanted`. Return False if it refuses.
    Return True otherwise, also if that mode is reached."""
    mode = term.image.inside.mode
    before, progress.waits = progress.waits, ""
    if mode is not wanted:
        at, to = ORDER.index(mode), ORDER.index(wanted)
        answer = await term.ask(SetInsideMode(mode=ORDER[at + (1 if to > at else -1)]))
        if isinstance(answer, Refused):
            return _refused(term, result, cluster, answer, progress, before)
    result.unstall(StallSource.INSIDE)
    if before:
        result.mark_cluster()
    return True


def _refused(
    term: Term,
    result: PassResult,
    cluster: LogCluster,
    answer: Refused,
    progress: InsideProgress,
    before: str,
) -> bool:
    progress.waits = answer.message
    # Without a stated mode, a metadata version that is held back is no contradiction.
    waits = cluster.spec.metadata_version is None or cluster.stated_inside is None
    by_itself = answer.known_reason is Reason.InsideNotReady or (
        answer.known_reason is Reason.MetadataTooOld and waits
    )
    if by_itself:
        result.unstall(StallSource.INSIDE)
    else:
        result.stall(StallSource.INSIDE, Cause(reason=answer.reason, message=answer.message))
    if before != answer.message:
        result.mark_cluster()
    return False


# --- certificates -------------------------------------------------------------------------------


async def _certificates(
    term: Term, result: PassResult, cluster: LogCluster, context: Context, held: list[HeldByBroker]
) -> bool:
    """Issue a certificate to every broker that lacks a valid one, or remove the certificates in
    mode Off. Return True if the next step can be taken within a second or two."""
    progress = term.kept(InsideProgress, InsideProgress)
    await _forget_removed(term)
    busy = False
    if term.image.inside.mode is InsideMode.OFF:
        before, (held, busy) = progress.keeps, await _take_back(term, context, progress, held)
        if progress.keeps != before:
            result.mark_cluster()
        if not held:
            return busy
    authorities = await _authorities(term, result, cluster, context, held)
    _show(term, result, progress, authorities)
    busy = busy or authorities.under_way
    renewing = False
    for one in held:
        allowed = term.image.inside.of(one.broker_id)
        waits = one.takes_part and len(allowed) > 1
        # One broker after the other; one without a certificate gets it at once.
        if await _broker(
            term, result, context, one, authorities, may_renew=not renewing or not allowed
        ):
            renewing = busy = True
        renewing, busy = renewing or waits, busy or waits
    return busy


async def _take_back(
    term: Term, context: Context, progress: InsideProgress, held: list[HeldByBroker]
) -> tuple[list[HeldByBroker], bool]:
    """Remove the certificates of brokers in mode Off. Return the brokers that still need theirs,
    and True if others will soon need theirs no more. An absent broker only knows the mode Required.
    It keeps its certificate until it is back and reports that its copy of the metadata states
    another mode; without a certificate it could not connect to anything."""
    kept, busy, progress.keeps = [], False, ""
    for one in held:
        if not one.files and not term.image.inside.of(one.broker_id):
            continue
        if not one.takes_part:
            kept.append(one)
        elif one.copy_closed:
            busy = True
            progress.keeps = progress.keeps or (
                f"Broker {one.broker_id} still needs its internal certificate, although "
                f"internal TLS is Off: {one.copy_closed} The operator then removes the "
                "certificate by itself."
            )
        else:
            if one.files:
                wanted = manifests.with_inside(context, one.broker_id, one.secret, {})
                await write_secret(term, one.secret, wanted)
            await _allow(term, one.broker_id, ())
            logger.info(
                "the operator removed the certificate for internal TLS of broker %d, because "
                "internal TLS is off",
                one.broker_id,
            )
    return kept, busy


def _brokers(term: Term) -> list[BrokerId]:
    return sorted({*term.image.members, *term.image.brokers})


async def _authorities(
    term: Term, result: PassResult, cluster: LogCluster, context: Context, held: list[HeldByBroker]
) -> Authorities:
    """Return the internal CA, with its announced and former ones. A CA is stored before it is
    trusted, trusted before it signs, and retired once that is proven safe. Raise Retry if its
    Secret is unusable."""
    asked = (cluster.metadata.annotations or {}).get(ROTATE_INSIDE, "")

    def step(known: Authorities | None, common_name: str) -> Authorities:
        proofs = _proofs(term, known, held, asked)
        return inside_rotation.step(known, common_name, certificate_ms(term, result), proofs)

    name = labels.inside_authority(term.cluster_id)
    secret = AuthoritySecret(name=name, component=AUTHORITY, signs="internal", kind=KIND)
    try:
        return await settled(term, context, secret, step)
    except Unreadable as error:
        text = (
            "The CA of internal TLS, between brokers and the operator, is unusable, so brokers "
            f"keep their present certificates; restore the content of its Secret: {error}. Clients "
            "do not use this CA."
        )
        result.stall(StallSource.INSIDE, Cause(reason=NO_CERTIFICATE, message=text))
        raise Retry(text) from error


def _proofs(
    term: Term, known: Authorities | None, held: list[HeldByBroker], asked: str
) -> inside_rotation.Proofs:
    if known is None:
        return inside_rotation.Proofs(trusted=frozenset(), renewed=False, asked=asked)
    trusted: set[str] = set()
    if known.announced is not None:
        announced = describe(known.announced.certificate).sha256
        shown = all(one.files.get(AUTHORITIES) == known.trusted for one in held)
        told = all(
            one.told is not None and announced in one.told.authorities
            for one in held
            if one.takes_part
        )
        trusted = {announced} if shown and told else set()
    renewed = all(_is_renewed(term, one, known.current) for one in held)
    return inside_rotation.Proofs(trusted=frozenset(trusted), renewed=renewed, asked=asked)


def _is_renewed(term: Term, one: HeldByBroker, current: KeyPair) -> bool:
    pair = one.pair
    if pair is None or not signed_by(pair.certificate, current.certificate):
        return False
    if not one.takes_part:
        return True
    newest = describe(pair.certificate).sha256
    shown = one.told is not None and one.told.sha256 == newest
    return shown and term.image.inside.of(one.broker_id) == (newest,)


def _show(
    term: Term, result: PassResult, progress: InsideProgress, authorities: Authorities
) -> None:
    """Present the controller's own certificate to brokers. It is renewed before its end and after a
    change of the CAs. Raise Retry if the CA is unusable."""
    own = progress.own
    due = own is None or describe(own.certificate).validity.due_ms() <= certificate_ms(term, result)
    if not due and progress.authorities == authorities:
        return
    identity = controller_identity(term.cluster_id)
    try:
        own = issue_inside(authorities.current, identity, certificate_ms(term, result))
        shown = identity_of(own.certificate, own.key, authorities.trusted)
    except (Unreadable, BadCertificate) as error:
        name = labels.inside_authority(term.cluster_id)
        text = (
            f"the operator cannot issue the controller's certificate from Secret {name} in the "
            "operator's namespace, which holds the CA of internal TLS; restore the content of "
            f"the Secret: {error}"
        )
        raise Retry(text) from error
    progress.own, progress.authorities = own, authorities
    term.show_inside(shown)


async def _broker(
    term: Term,
    result: PassResult,
    context: Context,
    one: HeldByBroker,
    authorities: Authorities,
    *,
    may_renew: bool,
) -> bool:
    """Commit which certificates the broker may show, then write its certificate and the trusted CAs
    into its Secret. Return True if the broker got a new certificate, which happens only if
    `may_renew` is True."""
    pair, allowed = one.pair, term.image.inside.of(one.broker_id)
    told = one.told.sha256 if one.told is not None else ""
    # The one it shows now, as far as known, stays allowed.
    in_use = told if told in allowed else None
    # It may by now show the one given last without having reported it; that stays allowed too.
    unseen = one.takes_part and len(allowed) > 1 and told != allowed[0]
    may_renew = may_renew and not unseen
    renewed = False
    if pair is None or (may_renew and not _is_right(term, result, one, pair, authorities)):
        identity = broker_identity(term.cluster_id, one.broker_id)
        if pair is not None and in_use is None:
            in_use = describe(pair.certificate).sha256
        pair, renewed = (
            issue_inside(authorities.current, identity, certificate_ms(term, result)),
            True,
        )
        in_use = in_use or next(iter(allowed), None)
    newest = describe(pair.certificate).sha256
    others = tuple(sha256 for sha256 in (in_use, *allowed) if sha256 not in (None, newest))
    keep = () if told == newest else others[:1]
    await _allow(term, one.broker_id, (newest, *keep))
    mode = term.image.inside.mode.value.encode()
    files = {
        CERTIFICATE: pair.certificate,
        KEY: pair.key,
        AUTHORITIES: authorities.trusted,
        MODE: mode,
    }
    if files != one.files:
        wanted = manifests.with_inside(context, one.broker_id, one.secret, files)
        await write_secret(term, one.secret, wanted)
        logger.info(
            "the operator wrote the certificates for internal TLS of broker %d (mode %s)",
            one.broker_id,
            mode.decode(),
        )
    return renewed


def _is_right(
    term: Term, result: PassResult, one: HeldByBroker, pair: KeyPair, authorities: Authorities
) -> bool:
    found = describe(pair.certificate)
    named = found.names == {broker_identity(term.cluster_id, one.broker_id)}
    signed = signed_by(pair.certificate, authorities.current.certificate)
    return named and signed and certificate_ms(term, result) < found.validity.due_ms()


async def _allow(term: Term, broker_id: BrokerId, sha256: tuple[str, ...]) -> None:
    if term.image.inside.of(broker_id) != sha256:
        answer = await term.ask(AllowCertificates(broker_id=broker_id, sha256=sha256))
        if isinstance(answer, Refused):
            raise Retry(answer.message)


async def _forget_removed(term: Term) -> None:
    known = set(_brokers(term))
    for row in term.image.inside.certificates:
        if row.broker_id not in known:
            await _allow(term, row.broker_id, ())
