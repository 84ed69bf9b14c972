"""The settings of one audit, as typed values read from `verification.json`.

Called by `verification`. A file with `source` asks for an audit of existing topics, one with
`produce` for a run that writes (`settings`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from plimsoll_spark.settings import Refusal, Refused, Report, check_report, without_nulls
from plimsoll_spark.values import Camel

AuditCheck = Literal["ReplicasEqual", "Readable", "NoGap", "EpochsOrdered", "MirrorEqual"]
AUDIT_CHECKS: tuple[AuditCheck, ...] = ("ReplicasEqual", "Readable", "NoGap", "EpochsOrdered")
LEADER_CHECKS: tuple[AuditCheck, ...] = ("Readable", "NoGap", "EpochsOrdered")
"""The checks with `reads: Memory`, which reads from leaders alone."""


class NameDigests(Camel, frozen=True):
    """Digests of topics' names, which show no name: SHA-256 of `salt`, a colon and the name, in
    hexadecimal digits."""

    salt: str
    digests: tuple[str, ...]

    def of(self, names: Iterable[str]) -> set[str]:
        """Return those of these names that are among the digests."""
        known = set(self.digests)
        return {one for one in names if _digest(self.salt, one) in known}


class ExistingTopicsSource(Camel, frozen=True):
    """The topics to audit. `topics`: their names; None: all topics that the cluster shows and
    `match_pattern`, a regular expression of RE2, matches as a whole. `compacted`: topics to treat
    as compacted although the cluster may say that they are not, since they once were;
    `once_compacted`: the operator's statement of such topics."""

    match_pattern: str
    topics: tuple[str, ...] | None = None
    compacted: tuple[str, ...] = ()
    once_compacted: NameDigests | None = None

    def treated_as_compacted(self, names: Iterable[str]) -> set[str]:
        """Return those of these names that `compacted` or `once_compacted` states."""
        stated = set(names)
        digests = self.once_compacted.of(stated) if self.once_compacted is not None else set()
        return stated & set(self.compacted) | digests


class MirrorOf(Camel, frozen=True):
    """The other cluster, which holds the sources of the audited topics. `bootstrap`: its brokers'
    addresses, comma-separated; `has_login`: True if a Secret with a login is mounted; `prefix`:
    what each audited topic's name has before its source's."""

    bootstrap: str
    has_login: bool = False
    prefix: str = ""


class Source(Camel, frozen=True):
    """The topics to audit. `reads`: Disk to read every replica on its own broker, Memory to read
    from the leaders only."""

    existing_topics: ExistingTopicsSource
    reads: Literal["Disk", "Memory"] = "Disk"
    bytes_per_second: int | None = None
    """Bound on the bytes per second that all brokers together send; None: no limit."""
    mirror_of: MirrorOf | None = None
    """None: the topics are compared with no other cluster's."""


class AuditVerify(Camel, frozen=True):
    """The properties of the logs to check. `checks`: None: all with `reads: Disk`, `LEADER_CHECKS`
    with `reads: Memory`."""

    checks: tuple[AuditCheck, ...] | None = None


class AuditSettings(Camel, frozen=True):
    """The audit that `verification.json` requests. `bootstrap`: the brokers' addresses,
    comma-separated; `deadline_seconds`: bound on the audit, counted from the driver's start."""

    name: str
    bootstrap: str
    source: Source
    verify: AuditVerify = msgspec.field(default_factory=AuditVerify)
    report: Report = msgspec.field(default_factory=Report)
    deadline_seconds: int = 3600
    login: Path | None = None
    """The directory at which the Secret of a User is mounted; None: no login."""
    mirror_login: Path | None = None
    """The directory at which the Secret for the cluster of `mirrorOf` is mounted; None: no
    login."""

    @property
    def checks(self) -> tuple[AuditCheck, ...]:
        """Return the checks that decide the verdict."""
        stated = self.verify.checks
        if stated is not None:
            return stated
        usual = AUDIT_CHECKS if self.source.reads == "Disk" else LEADER_CHECKS
        return usual if self.source.mirror_of is None else (*usual, "MirrorEqual")


def is_audit(path: Path) -> bool:
    """Return True if the file is JSON with a field `source`: it asks for an audit. Return False for
    a malformed file, which `settings.load` refuses. Raises OSError."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError:
        return False
    return isinstance(content, dict) and content.get("source") is not None


def load_audit(
    path: Path, login: Path | None = None, mirror_login: Path | None = None
) -> AuditSettings:
    """Return the settings in a file. `login`, `mirror_login`: the directories of the mounted
    Secrets, None: no login. Raises `Refusal` if the file is malformed, names no check, asks for
    ReplicasEqual with `reads: Memory` or for MirrorEqual without `mirrorOf`, or states a limit
    below 1."""
    try:
        settings = msgspec.convert(
            without_nulls(msgspec.json.decode(path.read_bytes())), AuditSettings
        )
        matched(settings.source.existing_topics.match_pattern, ())
    except (msgspec.DecodeError, pa.ArrowInvalid) as error:
        raise Refusal(
            Refused.INVALID_SPEC,
            "verification.json, the configuration that the operator writes for the driver pod of "
            "a Verification, is malformed; correct the Verification's spec, or run the driver "
            f"image of the operator's release: {error}",
        ) from error
    check_report(settings.report)
    if settings.source.reads == "Memory" and "ReplicasEqual" in settings.checks:
        sentence = "the check ReplicasEqual compares replicas on disk; set source.reads to Disk"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    if settings.source.mirror_of is None and "MirrorEqual" in settings.checks:
        sentence = "the check MirrorEqual needs source.mirrorOf"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    if not settings.checks:
        raise Refusal(Refused.INVALID_SPEC, "verify.checks names no check; name at least one")
    if (settings.source.bytes_per_second or 1) < 1 or settings.deadline_seconds < 1:
        sentence = "source.bytesPerSecond and deadlineSeconds must be at least 1"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    if settings.source.mirror_of is not None and settings.source.mirror_of.has_login:
        settings = msgspec.structs.replace(settings, mirror_login=mirror_login)
    return msgspec.structs.replace(settings, login=login)


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}:{name}".encode()).hexdigest()


def matched(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that the regular expression matches as a whole, sorted. It is one of RE2,
    which takes time linear in a name's length: that of `re` may be exponential. Raises
    pyarrow.ArrowInvalid for a malformed pattern, a look-around or a back-reference."""
    pc.match_substring_regex(pa.array([""]), pattern)  # alone, so that the brackets below hold
    found = pa.array(sorted(names), pa.string())
    whole = pc.match_substring_regex(found, rf"\A(?:{pattern})\z")
    return [str(one) for one in found.filter(whole).to_pylist()]
