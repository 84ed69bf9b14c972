"""Finalises a newer metadata version of the log, and tells what prevents it.

Called for every Tick, when a broker is unfenced, and for a cluster's status. A version is finalised
once every member and every registered broker has reported in this term that it understands the
version, has a session, and no restart is under way (a restarted broker may return as an older
release). A version is never lowered again: an older release could not read the log any more.
Sources: KIP-584, KIP-778; docs/operations.md, "Upgrade".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_core.cluster.record_versions import NEWEST, OLDEST, release_of
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.voluntary_work import HourHold, VoluntaryWork, hour_hold
from plimsoll_core.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalization:
    """The state of a cluster's metadata version. `finalised` is the present version. `finalizable`
    is the newest that could be finalised now. `wanted` is the version pinned in the spec, else the
    newest that this release understands. `waits` tells why `wanted` is not finalised, as pairs of a
    broker (None if no particular broker is the reason) and the end of a sentence after "until"."""

    finalised: int
    finalizable: int
    wanted: int
    waits: tuple[tuple[BrokerId | None, str], ...] = ()


def finalize(turn: DecisionContext) -> None:
    """Finalise the metadata version that the spec pins, or without a pin the newest that every
    broker understands. Do nothing while that is impossible, or while a restart is granted."""
    found = finalization(turn)
    pinned = turn.settings.metadata_version is not None
    # Do not finalise part of the way to the pinned version: a rollback stays possible until then.
    target = found.wanted if pinned else min(found.wanted, found.finalizable)
    if not found.finalised < target <= found.finalizable or turn.image.grants:
        return
    if _hold(turn) is not None:
        return
    cause = "every broker understands this metadata version"
    turn.add(MetadataVersionFinalized(cause=cause, metadata_version=target))


def finalization(turn: DecisionContext) -> Finalization:
    image = turn.image
    finalised = image.metadata_version
    pinned = turn.settings.metadata_version
    wanted = NEWEST if pinned is None else pinned
    finalizable = NEWEST
    waits: list[tuple[BrokerId | None, str]] = []
    for broker_id in sorted({*image.members, *image.brokers}):
        newest, why = _understands(turn, broker_id)
        finalizable = min(finalizable, newest)
        if newest < wanted:
            waits.append((broker_id, why))
    if not image.brokers:
        finalizable = finalised
    finalizable = max(finalizable, finalised)
    if wanted > NEWEST:
        # A controller that does not know it cannot tell which broker understands it.
        waits = [(None, f"an operator leads that knows metadata version {release_of(wanted)}")]
    if not waits and wanted > finalised and image.grants:
        waits.append((min(image.grants), f"broker {min(image.grants)} is back from its restart"))
    if not waits and wanted > finalised and (hold := _hold(turn)) is not None:
        waits.append((None, hold.until))
    return Finalization(
        finalised=finalised,
        finalizable=finalizable,
        wanted=wanted,
        waits=tuple(waits) if wanted > finalised else (),
    )


def _hold(turn: DecisionContext) -> HourHold | None:
    """Return why the finalisation waits for its hours, or None. A new cluster does not wait, since
    its declared logins and listeners need it, nor does hibernation, which needs it too."""
    if turn.image.metadata_version == OLDEST:
        return None
    return hour_hold(replace(turn.settings.hours, hibernated=False), VoluntaryWork.FINALIZE)


def _understands(turn: DecisionContext, broker_id: BrokerId) -> tuple[int, str]:
    """Return the newest metadata version that a broker is known to understand, and a clause that
    completes "until": what has to happen before a newer version can be finalised."""
    finalised = turn.image.metadata_version
    broker = turn.image.brokers.get(broker_id)
    if broker is None:
        return finalised, f"broker {broker_id} has registered"
    contact = turn.soft.contacts.get(broker_id)
    if contact is None or contact.metadata_versions is None or not turn.has_session(broker):
        return finalised, f"broker {broker_id} sends heartbeats again"
    newest = contact.metadata_versions[1]
    return newest, f"broker {broker_id}, which runs release {contact.release}, is upgraded"
