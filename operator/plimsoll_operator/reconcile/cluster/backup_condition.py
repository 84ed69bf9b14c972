"""Shows the backup of a LogCluster: the condition BackedUp and `status.backup`."""

from __future__ import annotations

from plimsoll_operator.api.backup import BackupStatus
from plimsoll_operator.api.conditions import condition, timestamp
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.reconcile_term import Term

TYPE = "BackedUp"


def backup_status(term: Term) -> BackupStatus | None:
    """Return what the backup holds; None if none is wanted or nothing is stored yet."""
    state = term.backup()
    if state is None or not state.end:
        return None
    proof = state.proof
    return BackupStatus(
        place=state.place,
        offset=state.end,
        stored=_time(state.stored_ms),
        oldest=_time(state.oldest_ms),
        objects=state.objects,
        size=str(state.bytes),
        proven=_time(proof.at_ms) if proof else None,
        proven_offset=proof.end if proof else None,
        digest=proof.digest if proof else None,
    )


def _time(at_ms: int) -> str | None:
    return timestamp(at_ms) if at_ms else None


def backup_conditions(term: Term) -> list[Condition]:
    """Return the condition BackedUp, if a backup is wanted and something is known of it."""
    state = term.backup()
    if state is None:
        return []
    if state.why:
        text = (
            f"The cluster's metadata is not backed up: {state.why} The cluster works on without "
            "the backup."
        )
        return [condition(TYPE, False, "NotStored", text)]
    if not state.end:
        return []
    if state.drill_failed:
        text = (
            "The operator could not restore the backup of the cluster's metadata in "
            f"{state.place} in a test (a restore drill), so do not rely on the backup. The "
            f"running cluster is not affected. {state.drill_failed}"
        )
        return [condition(TYPE, False, "DrillFailed", text)]
    text = (
        f"The cluster's metadata is backed up in {state.place} within seconds of each change. "
        "The backup holds no records of topics and no offsets of groups."
    )
    if state.not_deleted:
        text += f" Old objects cannot be deleted: {state.not_deleted}"
    return [condition(TYPE, True, "Stored", text)]
