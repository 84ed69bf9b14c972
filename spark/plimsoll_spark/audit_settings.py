"""The settings of one audit, as typed values read from `verification.json`.

Called by `verification`. A file with `source` asks for an audit of existing topics, one with
`produce` for a run that writes (`settings`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from plimsoll_spark.settings import Refusal, Refused, Report, _Camel, _check_report, _without_nulls

AuditCheck = Literal["ReplicasEqual", "Readable", "NoGap", "EpochsOrdered"]
AUDIT_CHECKS: tuple[AuditCheck, ...] = ("ReplicasEqual", "Readable", "NoGap", "EpochsOrdered")
LEADER_CHECKS: tuple[AuditCheck, ...] = ("Readable", "NoGap", "EpochsOrdered")
"""The checks with `reads: Memory`, which reads from leaders alone."""


class ExistingTopicsSource(_Camel, frozen=True):
    """Which topics. `match_pattern`: a regular expression for the whole name; `topics`: the names
    that the operator found, None: the cluster is asked; `compacted`: those that are or were
    compacted, beside those that the cluster says are."""

    match_pattern: str
    topics: tuple[str, ...] | None = None
    compacted: tuple[str, ...] = ()


class Source(_Camel, frozen=True):
    """The topics to audit, and how they are read."""

    existing_topics: ExistingTopicsSource
    reads: Literal["Disk", "Memory"] = "Disk"
    bytes_per_second: int | None = None
    """Bound on the bytes per second that all brokers together send; None: no limit."""


class AuditVerify(_Camel, frozen=True):
    """The properties of the logs to check; None: all that these reads can prove."""

    checks: tuple[AuditCheck, ...] | None = None


class AuditSettings(_Camel, frozen=True):
    """The audit that `verification.json` requests."""

    name: str
    bootstrap: str
    source: Source
    verify: AuditVerify = msgspec.field(default_factory=AuditVerify)
    report: Report = msgspec.field(default_factory=Report)
    deadline_seconds: int = 3600
    login: Path | None = None
    """The directory at which the Secret of a User is mounted; None: no login."""

    @property
    def checks(self) -> tuple[AuditCheck, ...]:
        """Return the checks that decide the verdict."""
        stated = self.verify.checks
        if stated is not None:
            return stated
        return AUDIT_CHECKS if self.source.reads == "Disk" else LEADER_CHECKS


def is_audit(path: Path) -> bool:
    """Return True if the file asks for an audit. A malformed file is left to `settings.load`."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return False
    return isinstance(content, dict) and content.get("source") is not None


def load_audit(path: Path, login: Path | None = None) -> AuditSettings:
    """Return the settings in a file. `login`: the directory of the mounted Secret. Raises `Refusal`
    if the file is malformed or asks for what cannot be done."""
    try:
        settings = msgspec.convert(
            _without_nulls(msgspec.json.decode(path.read_bytes())), AuditSettings
        )
        re.compile(settings.source.existing_topics.match_pattern)
    except (msgspec.DecodeError, re.error) as error:
        raise Refusal(Refused.INVALID_SPEC, f"verification.json: {error}") from error
    _check_report(settings.report)
    if settings.source.reads == "Memory" and "ReplicasEqual" in settings.checks:
        sentence = "the check ReplicasEqual needs reads: Disk, since leaders alone serve memory"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    if not settings.checks:
        raise Refusal(Refused.INVALID_SPEC, "verify.checks names no check")
    if (settings.source.bytes_per_second or 1) < 1 or settings.deadline_seconds < 1:
        sentence = "source.bytesPerSecond and deadlineSeconds must be at least 1"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    return msgspec.structs.replace(settings, login=login)
