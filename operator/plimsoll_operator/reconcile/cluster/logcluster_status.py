"""Status of a LogCluster. This module decides which condition is shown if several apply: a rolling
restart, an edit that waits, a stall.

Called by the status writer; computed from the committed image and the reconcilers' results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from plimsoll_core.errors import Reason
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.cluster_status import (
    BLOCKED_MAX,
    BlockedAction,
    CertificatesStatus,
    LogClusterStatus,
    MetadataRestoreStatus,
    Versions,
)
from plimsoll_operator.api.conditions import condition, unready
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.blocked_actions import blocked_condition, that_wait, worst_first
from plimsoll_operator.reconcile.cluster.access import secure_condition
from plimsoll_operator.reconcile.cluster.backup_condition import backup_conditions, backup_status
from plimsoll_operator.reconcile.cluster.external_access import external_whys
from plimsoll_operator.reconcile.cluster.hibernation import hibernation_conditions
from plimsoll_operator.reconcile.cluster.inside import certificates_status, waits_of
from plimsoll_operator.reconcile.cluster.maintenance_hours import hours_conditions
from plimsoll_operator.reconcile.cluster.membership import unsettled
from plimsoll_operator.reconcile.cluster.release_versions import versions
from plimsoll_operator.reconcile.cluster.unrestored import still_unrestored
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_condition, rolls_of, troubles_text
from plimsoll_operator.reconcile.shared.pinned_choices import choices_of, part_of
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.status.cluster_conditions import (
    DURABLE,
    cluster_conditions,
    metadata_durable,
    metadata_log_status,
    told_by,
)
from plimsoll_operator.status.cluster_counts import cluster_status, groups_status, pools_status
from plimsoll_operator.status.limits_condition import limits_condition
from plimsoll_operator.status.metadata_restored_condition import offers
from plimsoll_operator.status.status_writer import StatusDraft
from plimsoll_operator.status.unclean_recovery_condition import TYPE as UNCLEAN
from plimsoll_operator.status.unclean_recovery_condition import UncleanRecovery

NOTHING_TO_DO = "No human action is needed."
SEE_BLOCKED = "No human action is needed, except for what the condition Blocked asks for."


@dataclass(slots=True)
class ClusterMemory:
    """State about its LogCluster that a term keeps between passes."""

    # Generation of the spec that was reconciled last.
    observed: int | None = None
    # Size of the smallest volume.
    volume_size: str | None = None
    # Size of the smallest volume of each pool that has volumes.
    pool_sizes: dict[str, str] = field(default_factory=dict)
    # Unclean elections of the last day.
    unclean: UncleanRecovery = field(default_factory=UncleanRecovery)


def cluster_memory(term: Term) -> ClusterMemory:
    return term.kept(ClusterMemory, ClusterMemory)


def render(term: Term, key: Key) -> StatusDraft | None:
    """Return the status of the LogCluster. Return None if it is deleted or being deleted, or if the
    metadata log was not read and there is nothing to report."""
    found = term.cluster
    if found is None:
        return None
    image = term.image
    if not image.controller_epoch:
        return _without_log(term, found)
    status = msgspec.structs.replace(
        cluster_status(image, found),
        blocked=tuple(_blocked(term)[:BLOCKED_MAX]),
        versions=versions(term)
        if choices_of(term).release
        else _versions_before(term, key) or versions(term),
        certificates=certificates_status(term) or _certificates_before(term, key),
        volume_size=cluster_memory(term).volume_size,
        pools=pools_status(image, found, cluster_memory(term).pool_sizes),
        groups=groups_status(_told_groups(term)),
        metadata_log=metadata_log_status(term.controller),
        backup=backup_status(term),
        metadata_restore=_metadata_restore(term, key),
    )
    rolling = rolls_of(term).rolling
    if rolling is not None and rolling.staged is not None:
        status = msgspec.structs.replace(status, rollout=rolling.staged)
    told = told_by(term.controller.soft.contacts)
    whys = external_whys(term)
    found_so = cluster_conditions(image, status, troubles_text(rolls_of(term).troubles), told, whys)
    notes = {c.type: c for c in _notes(term)}
    shown = {c.type: c for c in found_so} | notes
    durable = metadata_durable(term.controller)
    if durable is None:  # not all heartbeats arrived yet: keep what is shown
        before = term.objects.clusters.conditions(key)
        durable = next((c for c in before if c.type == DURABLE), None)
    if durable is not None:
        shown[DURABLE] = durable
    if rolling is not None:
        shown["Reconciling"] = rolls_condition(rolling)
    elif shown["Reconciling"].status == "False" and (edit := unsettled(term, found)):
        shown["Reconciling"] = edit
    shown |= {one.type: one for one in hibernation_conditions(image, found)}
    if (beyond := limits_condition(image, sum(1 for _ in term.objects.clusters))) is not None:
        shown[beyond.type] = beyond
    if (stalled := shown.get("Stalled")) and stalled.status == "True":
        _show_stall(shown, stalled, notes)
    return StatusDraft(
        uid=found.metadata.uid,
        status=msgspec.structs.replace(status, conditions=tuple(shown.values())),
        generation=_observed(term, key),
        shown=term.objects.clusters.conditions(key),
        version=found.metadata.resource_version,
    )


def _show_stall(
    shown: dict[str, Condition], stalled: Condition, notes: Mapping[str, Condition]
) -> None:
    """Have the other conditions `shown` follow from `stalled`. A cause in `notes` that stops the
    service says so itself."""
    if "Ready" not in notes:
        shown["Ready"] = unready(shown["Ready"], stalled)
    if shown["Reconciling"].status != "True":
        text = "The spec is not fully applied; see the condition Stalled."
        shown["Reconciling"] = condition("Reconciling", False, "Stalled", text)


def _observed(term: Term, key: Key) -> int:
    """Return the generation of the spec that was followed last: in this term, else by the
    conditions that the previous operator wrote, else 0."""
    known = cluster_memory(term).observed
    if known is not None:
        return known
    shown = (one.observed_generation for one in term.objects.clusters.conditions(key))
    return max(shown, default=0)


def _told_groups(term: Term) -> Iterator[int | None]:
    """Yield the number of consumer groups that each active broker reports (None if it reports
    none). Groups of a dead broker have moved to another broker, so it is left out."""
    heard = term.controller.soft.contacts
    for broker_id, broker in term.image.brokers.items():
        if broker.active and broker_id in heard:
            yield heard[broker_id].groups


def _without_log(term: Term, found: LogCluster) -> StatusDraft | None:
    """Return the status before the metadata log was read, which only says why the cluster is not
    led. Return None if there is nothing to say."""
    if not term.shown.notes:
        return None
    led = None if term.controller.stalled is None else kafka_id(term.cluster_id)
    status = LogClusterStatus(
        cluster_id=led,
        conditions=tuple(_shown_notes(term).values()),
    )
    return StatusDraft(
        uid=found.metadata.uid,
        status=with_choices(term, found.key, status),
        generation=found.metadata.generation,
        shown=term.objects.clusters.conditions(found.key),
        version=found.metadata.resource_version,
    )


def with_choices(term: Term, key: Key, status: LogClusterStatus) -> LogClusterStatus:
    """Return the status with what is stored there kept: the choices of the operator (release, mode
    of internal TLS), and those that a person has. Used for a status that contains little else."""
    return msgspec.structs.replace(
        status,
        versions=_versions_before(term, key),
        certificates=_certificates_before(term, key),
        metadata_restore=_metadata_restore(term, key),
    )


def _metadata_restore(term: Term, key: Key) -> MetadataRestoreStatus | None:
    """Return what this controller has not restored. While it has found nothing itself, return what
    the last attempt to restore the log has not, as the status shows it: that may have been another
    operator's."""
    controller = term.controller
    if controller.not_restored is not None and not controller.restores:
        return offers(controller.not_restored)
    return _restore_before(term, key)


def _restore_before(term: Term, key: Key) -> MetadataRestoreStatus | None:
    controller = term.controller
    if controller.active:
        return None
    if (why := controller.stalled) and why.known_reason is not Reason.MetadataRegressed:
        return None  # the log has another fault now
    return part_of(term.objects.clusters.choices(key), "metadataRestore", MetadataRestoreStatus)


def _shown_notes(term: Term) -> dict[str, Condition]:
    """Return `ShownState.notes`. While the controller tries again to restore its log, the cause
    says what the last attempt has not restored, so that a person can act meanwhile."""
    shown, source = term.shown, StallSource.CONTROLLER
    now, before = shown.stall_causes.get(source), _restore_before(term, term.key)
    if now is None or not now.waits or before is None:
        return shown.notes
    kept = still_unrestored(before, term.objects.clusters.conditions(term.key), term.key)
    return replace(shown, stall_causes={**shown.stall_causes, source: kept}).notes


def _versions_before(term: Term, key: Key) -> Versions | None:
    """Return the versions that the status shows now, or None. A status without them would erase the
    pinned release, on which the next term relies."""
    return part_of(term.objects.clusters.choices(key), "versions", Versions)


def _certificates_before(term: Term, key: Key) -> CertificatesStatus | None:
    return part_of(term.objects.clusters.choices(key), "certificates", CertificatesStatus)


def _blocked(term: Term) -> list[BlockedAction]:
    return worst_first(row for _, rows in sorted(term.shown.blocked.items()) for row in rows)


def _notes(term: Term) -> list[Condition]:
    """Return the conditions that do not follow from the image: Blocked, Stalled, UncleanRecovery,
    Secure if the spec asks for protection, and those that reconcilers set."""
    notes = {
        "Blocked": condition(
            "Blocked",
            False,
            "NothingWaits",
            "No restart, move or other voluntary action is waiting.",
        ),
        "Stalled": condition("Stalled", False, "NothingToDo", NOTHING_TO_DO),
        UNCLEAN: cluster_memory(term).unclean.condition(term.now_ms()),
    } | _shown_notes(term)
    notes |= {one.type: one for one in (*hours_conditions(term), *backup_conditions(term))}
    if (secure := secure_condition(term.image, waits_of(term))) is not None:
        notes[secure.type] = secure
    if rows := that_wait(_blocked(term)):
        notes["Blocked"] = blocked_condition(rows)
        if "Stalled" not in term.shown.notes:
            notes["Stalled"] = condition("Stalled", False, "NothingToDo", SEE_BLOCKED)
    return list(notes.values())
