"""Builds the Verification that a VerificationSchedule starts."""

from __future__ import annotations

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.verification_schedule import VerificationSchedule
from plimsoll_operator.kube.resources import VERIFICATION_SCHEDULES, VERIFICATIONS


def verification(schedule: VerificationSchedule, name: str, due_ms: int) -> Manifest:
    """Build the Verification `name` for the start that was due at `due_ms` (milliseconds since
    1970), from the schedule's template. Its owner is the schedule, so it is deleted with the
    schedule."""
    meta = schedule.metadata
    return VERIFICATIONS.manifest(
        {
            "name": name,
            "namespace": meta.namespace,
            "labels": {labels.MANAGED_BY: labels.OPERATOR, labels.SCHEDULE: meta.name},
            "annotations": {labels.DUE_TIME: timestamp(due_ms)},
            "ownerReferences": labels.owner(VERIFICATION_SCHEDULES.kind, meta.name, meta.uid),
        },
        spec=msgspec.to_builtins(schedule.spec.template),
    )
