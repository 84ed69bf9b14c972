"""Reports why the brokers cannot run the release, or use the metadata version, that a spec asks
for.

The release is `spec.version`, else the one that was chosen before (`pinned_choices`). So a new
operator does not upgrade brokers until `spec.version` changes. The controller decides the metadata
version (`metadata_finalization` of the core); this module only reports it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from plimsoll_core.cluster.record_versions import RELEASES, newest_of, numbers, release_of
from plimsoll_core.controller.brokers.metadata_finalization import Finalization, finalization
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.release import RELEASE
from plimsoll_operator.api.cluster_status import BlockedAction, Versions
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared.pinned_choices import brokers_version, choices_of
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

FINALIZE: Final = "FinalizeMetadata"
UNKNOWN_VERSION = "UnknownVersion"
TOO_OLD = "VersionTooOld"
UNKNOWN_METADATA = "UnknownMetadataVersion"
LOWERED = "MetadataVersionLowered"
NOT_UNDERSTOOD = "BrokerMetadataUnknown"


def review(term: Term, result: PassResult, cluster: LogCluster) -> bool:
    """Set or clear the stall causes about the versions that the spec asks for. Return False if
    brokers must not run the wanted release; the caller then changes nothing of the brokers."""
    _review_metadata(term, result, cluster)
    _review_brokers(term, result)
    choices = choices_of(term)
    choices.version_refused = not _review_version(term, result)
    if cluster.spec.version and not choices.version_refused:
        choices.release = cluster.spec.version  # no broker runs a refused version
    return not choices.version_refused


def _review_version(term: Term, result: PassResult) -> bool:
    wanted = brokers_version(term)
    known = sorted(term.options.images, key=numbers)
    if wanted not in known:
        text = (
            f"The brokers' version is {wanted}, but this operator has images for "
            f"{', '.join(known)} only (the chart's images.broker). Set spec.version to one of "
            f"them, or run an operator that has {wanted}; until then the brokers stay as they "
            "are."
        )
        result.stall(StallSource.VERSION, Cause(reason=UNKNOWN_VERSION, message=text))
        return False
    finalised = term.image.metadata_version
    if newest_of(wanted) < finalised:
        text = (
            f"Brokers of spec.version {wanted} cannot read metadata version "
            f"{release_of(finalised)}, which is finalised and cannot be lowered. Set "
            f"spec.version to {release_of(finalised)} or newer; until then the brokers stay as "
            "they are."
        )
        result.stall(StallSource.VERSION, Cause(reason=TOO_OLD, message=text))
        return False
    result.unstall(StallSource.VERSION)
    return True


def _review_metadata(term: Term, result: PassResult, cluster: LogCluster) -> None:
    stated = cluster.spec.metadata_version
    finalised = term.image.metadata_version
    known = {name: version for version, name in RELEASES.items()}
    if stated is not None and stated not in known:
        text = (
            f"spec.metadataVersion is {stated}, but this operator only knows "
            f"{', '.join(known)}. Run an operator that knows it; until then "
            f"{release_of(finalised)} stays in effect."
        )
        result.stall(StallSource.METADATA_VERSION, Cause(reason=UNKNOWN_METADATA, message=text))
    elif stated in known and known[stated] < finalised:
        text = (
            f"spec.metadataVersion is {stated}, but {release_of(finalised)} is finalised and "
            f"cannot be lowered: the log may hold records that {stated} cannot read. Set it to "
            f"{release_of(finalised)}, or remove it."
        )
        result.stall(StallSource.METADATA_VERSION, Cause(reason=LOWERED, message=text))
    else:
        result.unstall(StallSource.METADATA_VERSION)
    waits = look(term).waits if stated in known and known[stated] > finalised else ()
    now = timestamp(term.now_ms())
    result.block(
        FINALIZE,
        [
            BlockedAction(
                action=FINALIZE, broker=broker, reason="NotUnderstood", until=until, since=now
            )
            for broker, until in waits
        ],
    )


def _review_brokers(term: Term, result: PassResult) -> None:
    """Set the stall cause about brokers that report metadata of a newer release, which they cannot
    apply. Clear it if there are none."""
    heard = term.controller.soft.contacts
    told = {b: heard[b].unknown_metadata for b in sorted(term.image.brokers) if b in heard}
    text = " ".join(
        (
            f"Broker {broker} cannot apply newer metadata, so it serves clients with the last "
            f"metadata that it could apply: {why.rstrip('.')}."
        )
        for broker, why in told.items()
        if why
    )
    if text:
        release = release_of(term.image.metadata_version)
        text = f"{text} Set spec.version to {release} or newer."
        result.stall(StallSource.BROKER_METADATA, Cause(reason=NOT_UNDERSTOOD, message=text))
    else:
        result.unstall(StallSource.BROKER_METADATA)


def look(term: Term) -> Finalization:
    """Return the finalised metadata version, the newest that could be finalised, and the brokers
    that do not understand the wanted one."""
    controller = term.controller
    turn = DecisionContext(
        image=controller.image,
        soft=controller.soft,
        now_ms=controller.now_ms,
        settings=controller.settings,
    )
    return finalization(turn)


def versions(term: Term) -> Versions:
    """Return the versions for the LogCluster's status. A broker without a heartbeat in this term is
    not counted, since its release is unknown."""
    found = look(term)
    heard = term.controller.soft.contacts
    told = [heard[b].release for b in term.image.brokers if b in heard]
    counts = Counter(release for release in told if release)
    return Versions(
        operator=RELEASE,
        pinned=choices_of(term).release or brokers_version(term),
        brokers=dict(sorted(counts.items())),
        metadata=release_of(found.finalised),
        metadata_finalizable=release_of(found.finalizable),
    )
