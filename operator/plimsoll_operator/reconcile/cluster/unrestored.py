"""Starts the brokers of a cluster with volumes and an empty metadata log.

The brokers' volumes hold the only copies of the metadata, and no term begins before they are
restored. So this runs before the term commits anything: it creates the objects that brokers need to
start and to offer their copies, with certificates of the internal CA, which is made anew if it is
gone. A copy may demand TLS, whatever the spec states. Until the log is restored the controller
admits only the certificates that were written here: their holders run in pods that mount the
brokers' Secrets. The LogCluster's reconciler commits these certificates afterwards. While a log is
damaged, nothing tells which certificates were committed: any that the CA signed is admitted, and
plaintext unless the status shows that brokers have certificates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text
from plimsoll_core.security.inside import (
    BrokerCertificates,
    Inside,
    InsideMode,
    broker_identity,
    controller_identity,
)
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, KEY, MODE, identity_of
from plimsoll_net.tls_policy import BadCertificate
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import CertificatesStatus, MetadataRestoreStatus
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.kube.seen_objects import Key
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
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_operator.reconcile.cluster import inside
from plimsoll_operator.reconcile.cluster.authorities import AuthoritySecret, settled, write_secret
from plimsoll_operator.reconcile.cluster.children import (
    apply_child,
    broker_sets,
    children,
    config_maps,
    create_child,
)
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared import pinned_choices
from plimsoll_operator.reconcile.shared.certificate_signing import certificate_ms
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context, part_of
from plimsoll_operator.reconcile.stall_causes import Cause
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.metadata_restored_condition import way_out

logger = logging.getLogger("plimsoll.cluster")

RESTORING = "RestoringMetadata"
UNPROVEN = inside_rotation.Proofs(trusted=frozenset(), renewed=False)


class StartedBrokers:
    """What a term knows of the brokers that it has started before its log was restored. `admits`:
    the certificates that the controller admits until then, None before any was written."""

    admits: Inside | None = None


def started_brokers(term: Term) -> StartedBrokers:
    return term.kept(StartedBrokers, StartedBrokers)


def admitted(term: Term) -> Inside:
    """Return which peers the controller admits: by the committed image, and besides these, by the
    certificates written before the restoration, until the image has them."""
    committed, before = term.image.inside, started_brokers(term).admits
    if before is None:
        return committed
    if not term.image.brokers:
        return before
    missing = [
        row for row in before.certificates if row.sha256[0] not in committed.of(row.broker_id)
    ]
    if not missing or committed.mode is InsideMode.OFF:
        started_brokers(term).admits = None
        return committed
    added = {row.broker_id: row.sha256 for row in missing}
    rows = {row.broker_id: row.sha256 for row in committed.certificates}
    merged = tuple(
        BrokerCertificates(broker_id=b, sha256=(*added.get(b, ()), *rows.get(b, ())))
        for b in sorted({*rows, *added})
    )
    return Inside(mode=committed.mode, certificates=merged)


def demands_tls(term: Term) -> bool:
    """Return True if peers without a certificate are refused though the image does not say so: the
    log cannot be read, and the LogCluster shows that its brokers have certificates. Otherwise a
    stranger could offer copies of the metadata in their names."""
    if term.image.brokers:
        return False
    shown = part_of(term.objects.clusters.choices(term.key), "certificates", CertificatesStatus)
    return shown is not None and shown.internal.mode == inside.NAMES[InsideMode.REQUIRED]


def cause(broker_ids: Iterable[BrokerId]) -> Cause:
    """Return the cause to show while the controller waits for copies of the brokers."""
    text = (
        f"The metadata log is empty, but volumes of {brokers_text(sorted(broker_ids))} exist. The "
        "operator starts these brokers and restores the log from their copies of it."
    )
    return restoring(text)


def restoring(text: str) -> Cause:
    """Return the cause to show while the controller restores its log by itself."""
    return Cause(reason=RESTORING, message=text, serves=False, waits=True)


def still_unrestored(
    before: MetadataRestoreStatus, conditions: Iterable[Condition], key: Key
) -> Cause:
    """Return the cause to show while the controller tries again to restore its log: what the last
    attempt has not restored, `before`, in its own words if `Ready` among the `conditions` shows
    them."""
    reason = Reason.MetadataRegressed.name
    ready = next((one for one in conditions if one.type == "Ready"), None)
    if ready is not None and (ready.status, ready.reason) == ("False", reason):
        return Cause(reason=reason, message=ready.message, serves=False)
    choice = before.choices[0].value if before.choices else ""
    text = f"The metadata log is not restored: {'; '.join(before.doubts)}".rstrip(".")
    return Cause(reason=reason, message=f"{text}.{way_out(key, choice)}", serves=False)


async def bring_up(term: Term, broker_ids: Iterable[BrokerId]) -> PassResult:
    """Create what the brokers `broker_ids` need to start, unless it exists. A pass that ends in
    `Retry` or an error of the API server is repeated by the caller."""
    with PassResult() as result:
        await _bring_up(term, result, sorted(broker_ids))
    return result


async def _bring_up(term: Term, result: PassResult, broker_ids: list[BrokerId]) -> None:
    await pinned_choices.read(term)
    context = manifest_context(term)
    if context is None:
        return  # the LogCluster is deleted, or its spec unreadable, which its status says
    await _certificates(term, result, context, broker_ids)
    for manifest in children(context):
        await apply_child(term, result, manifest)
    for manifest in (*config_maps(context, broker_ids), *broker_sets(context, broker_ids)):
        await create_child(term, result, manifest)


async def _certificates(
    term: Term, result: PassResult, context: Context, broker_ids: list[BrokerId]
) -> None:
    try:
        authorities = await _authorities(term, result, context)
        rows = [
            BrokerCertificates(
                broker_id=b, sha256=(await _broker(term, result, context, b, authorities),)
            )
            for b in broker_ids
        ]
        _show(term, result, authorities)
    except (Unreadable, BadCertificate) as error:
        raise Retry(
            "The CA of internal TLS is unusable, so brokers get no certificates; restore the "
            f"content of its Secret: {error}."
        ) from error
    admits = Inside(mode=InsideMode.REQUIRED, certificates=tuple(rows))
    started_brokers(term).admits = admits


async def _authorities(term: Term, result: PassResult, context: Context) -> Authorities:
    def step(known: Authorities | None, common_name: str) -> Authorities:
        if known is not None:
            return known  # no rotation before the log says what brokers trust
        return inside_rotation.step(None, common_name, certificate_ms(term, result), UNPROVEN)

    name = labels.inside_authority(term.cluster_id)
    secret = AuthoritySecret(
        name=name, component=inside.AUTHORITY, signs="internal", kind=inside.KIND
    )
    return await settled(term, context, secret, step)


async def _broker(
    term: Term, result: PassResult, context: Context, broker_id: BrokerId, authorities: Authorities
) -> str:
    """Write the broker's internal certificate into its Secret, unless a valid one is there. Return
    the certificate's fingerprint."""
    secret = await _secret(term, context, broker_id)
    if why := manifests.why_foreign(context, broker_id, secret):
        raise Retry(why)
    files = manifests.inside_of(secret)
    pair = KeyPair(certificate=files.get(CERTIFICATE, b""), key=files.get(KEY, b""))
    identity = broker_identity(term.cluster_id, broker_id)
    now_ms = certificate_ms(term, result)
    if not _is_valid(pair, identity, authorities, now_ms):
        pair = issue_inside(authorities.current, identity, now_ms)
    wanted = {
        CERTIFICATE: pair.certificate,
        KEY: pair.key,
        AUTHORITIES: authorities.trusted,
        # Brokers whose copy demands TLS use it in any case; others must reach each other as before.
        MODE: files.get(MODE, InsideMode.PERMISSIVE.value.encode()),
    }
    if wanted != files:
        manifest = manifests.with_inside(context, broker_id, secret, wanted)
        await write_secret(term, secret, manifest)
        logger.info(
            "the operator wrote the certificates for internal TLS of broker %d, so that the "
            "broker can send its copy of the metadata log, which the operator restores",
            broker_id,
        )
    return describe(pair.certificate).sha256


async def _secret(term: Term, context: Context, broker_id: BrokerId) -> Object | None:
    try:
        return await term.kube.get(
            SECRETS, context.namespace, labels.broker_tls(context.name, broker_id)
        )
    except NotFound:
        return None


def _is_valid(pair: KeyPair, identity: str, authorities: Authorities, now_ms: int) -> bool:
    if why_unusable(pair):
        return False
    found = describe(pair.certificate)
    signed = signed_by(pair.certificate, authorities.current.certificate)
    return found.names == {identity} and signed and now_ms < found.validity.due_ms()


def _show(term: Term, result: PassResult, authorities: Authorities) -> None:
    """Present a controller's certificate of the internal CA to brokers, once in a term."""
    progress = term.kept(inside.InsideProgress, inside.InsideProgress)
    if progress.own is not None and progress.authorities == authorities:
        return
    own = issue_inside(
        authorities.current, controller_identity(term.cluster_id), certificate_ms(term, result)
    )
    shown = identity_of(own.certificate, own.key, authorities.trusted)
    progress.own, progress.authorities = own, authorities
    term.show_inside(shown)
