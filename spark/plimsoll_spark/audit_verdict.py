"""Judges the findings of an audit. Called by `audit`; pure.

Violated: a log or a replica fails a requested check. Inconclusive: a replica could not be read, or
there was nothing to read, so the evidence is incomplete. A violation is reported even if other
replicas could not be read.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plimsoll_spark.audit_settings import AuditCheck
from plimsoll_spark.values import Audited, Example
from plimsoll_spark.verdict import Reason, Verdict

UNREAD_TOLD = 5
_KINDS: tuple[tuple[str, AuditCheck, Reason, str], ...] = (
    ("gap", "NoGap", Reason.OFFSETS_MISSING, "offsets are missing on every replica"),
    ("unreadable", "Readable", Reason.REPLICA_UNREADABLE, "batches cannot be read"),
    ("missing", "ReplicasEqual", Reason.REPLICAS_DIFFER, "offsets are missing on a replica"),
    ("short", "ReplicasEqual", Reason.REPLICAS_DIFFER, "replicas in sync end early"),
    ("different", "ReplicasEqual", Reason.REPLICAS_DIFFER, "replicas hold different batches"),
    ("unmirrored", "MirrorEqual", Reason.MIRROR_DIFFERS, "records are not in the mirror"),
    ("altered", "MirrorEqual", Reason.MIRROR_DIFFERS, "the mirror holds other records"),
    ("epochs", "EpochsOrdered", Reason.EPOCHS_OUT_OF_ORDER, "leader epochs decrease"),
)
"""The kinds of findings, the gravest first, with the check that they violate."""
_REPLACE = 'docs/operations.md, "Replace a damaged replica"'
_SKIP = 'docs/operations.md, "Skip an unreadable batch"'
_REMEDIED = (Reason.REPLICA_UNREADABLE, Reason.REPLICAS_DIFFER)
"""The reasons with a remedy that depends on the valid replicas."""


class Mirrored(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of records that a mirror and its source both hold, that only the mirror holds,
    and that the mirror does not hold yet; and the source's records of aborted transactions, and
    markers."""

    compared: int
    extra: int
    behind: int
    aborted: int = 0
    markers: int = 0


class AuditFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The results of an audit. `audited`: the amounts that were read; `counts`: number of all
    findings by kind; `examples`: some of them; `unread`: pairs of a broker's id and why a replica
    on it could not be read; `missing`: the partitions that no replica was read of, with the cause,
    as text; `unknown`: topics with an unreadable configuration; `excused`: topics that lack
    offsets, which were taken for compaction; `behind`: number of replicas outside their ISR that
    end early; `in_time`: False if the deadline came before every range was read; `replaced`: the
    topics that were deleted during the audit, which are not judged; `mirrored`: None if there was
    no comparison with another cluster."""

    audited: Audited = Audited()
    counts: dict[str, int] = {}
    examples: tuple[Example, ...] = ()
    unread: tuple[tuple[int, str], ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()
    behind: int = 0
    in_time: bool = True
    replaced: tuple[str, ...] = ()
    mirrored: Mirrored | None = None


def judge_audit(checks: Sequence[AuditCheck], findings: AuditFindings) -> Verdict:
    """Return Violated with the gravest kind of finding that one of `checks` covers; else
    Inconclusive if a topic was deleted, the deadline came, a replica could not be read, there was
    none or nothing in it, a mirror holds nothing of its source, or offsets are missing that
    compaction may have removed or not; else Passed."""
    for kind, check, reason, sentence in _KINDS:
        if check in checks and findings.counts.get(kind):
            message = f"{sentence}: {_places(kind, findings)}"
            if reason in _REMEDIED:
                message += f"; {_remedy(_first(kind, findings))}"
            return Verdict(verdict="Violated", reason=reason, message=message)
    if findings.replaced:
        names = ", ".join(findings.replaced[:UNREAD_TOLD])
        message = (
            f"topics were deleted during the audit and are not judged ({names}); the audit read "
            f"{_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.TOPIC_RECREATED, message=message)
    if not findings.in_time:
        message = (
            "the deadline came before every replica was read, so give the audit a longer one; it "
            f"read {_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.DEADLINE_EXCEEDED, message=message)
    if findings.unread or findings.missing or not findings.audited.partitions:
        causes = [*findings.missing, *(f"broker {one}: {why}" for one, why in findings.unread)]
        told = causes[:UNREAD_TOLD] or ["the audited topics have no partition"]
        message = (
            f"not every replica was read ({'; '.join(told)}); the audit read {_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.REPLICAS_NOT_READ, message=message)
    if (doubt := _unproven(checks, findings)) is not None:
        return doubt
    message = f"the audit found no fault: {', '.join(checks)} held over {_what(findings)}"
    if findings.behind:
        message += (
            f"; {findings.behind} replicas outside their ISR end early and were compared up to"
            " their ends"
        )
    if "NoGap" in checks and findings.excused:
        message += (
            f"; NoGap was not judged of {len(findings.excused)} compacted topics, which lack"
            " offsets"
        )
    return Verdict(verdict="Passed", reason=Reason.ALL_CHECKS_PASSED, message=message)


def _unproven(checks: Sequence[AuditCheck], findings: AuditFindings) -> Verdict | None:
    """Return Inconclusive if everything was read and a check had nothing to examine, or could not
    be judged; else None."""
    mirrored = findings.mirrored
    if mirrored is not None and not mirrored.compared:
        message = (
            f"the mirror holds no record of its source, so nothing is proven; {_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.REPLICAS_NOT_READ, message=message)
    if not findings.audited.batches and set(checks) != {"MirrorEqual"}:
        message = (
            "the leaders' logs of the audited topics hold no record, so nothing is proven; "
            f"{_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.REPLICAS_NOT_READ, message=message)
    doubtful = sorted(set(findings.unknown) & set(findings.excused))
    if "NoGap" in checks and doubtful:
        message = (
            f"offsets are missing in topics ({', '.join(doubtful[:UNREAD_TOLD])}), and the audit's"
            " user may not read their configuration, so it is not known if compaction removed"
            f" them: give it DescribeConfigs; the audit read {_what(findings)}"
        )
        return Verdict(verdict="Inconclusive", reason=Reason.NOT_JUDGED, message=message)
    return None


def _places(kind: str, findings: AuditFindings) -> str:
    """Return the place of the first example of this kind as text, with the number of further
    findings."""
    one = _first(kind, findings)
    brokers = ", ".join(_named(broker, one) for broker in one.brokers)
    more = findings.counts[kind] - 1
    place = f"{one.topic}-{one.partition} at offset {one.offset}"
    if one.last_offset is not None and one.last_offset > one.offset:
        place = f"{one.topic}-{one.partition} at offsets {one.offset} to {one.last_offset}"
    others = f", and {more} more" if more else ""
    on = f" on broker {brokers}" if brokers else " of the source"
    return f"{place}{on} ({one.detail}){others}"


def _first(kind: str, findings: AuditFindings) -> Example:
    return next(one for one in findings.examples if one.kind == kind)


def _named(broker: int, one: Example) -> str:
    return f"{broker} (the leader)" if broker == one.leader else str(broker)


def _remedy(one: Example) -> str:
    """Return, as text, the brokers with valid batches at the place of a finding, and what to do."""
    if not one.valid_brokers:
        if one.kind == "unreadable":
            return f"no replica that was read is valid there; see {_SKIP}"
        return (
            "no replica that was read is known to be valid there, so compare the replicas; see "
            f"{_REPLACE}"
        )
    named = [_named(broker, one) for broker in one.valid_brokers]
    valid = f"broker {named[0]} has" if len(named) == 1 else f"brokers {' and '.join(named)} have"
    damaged = ", ".join(map(str, one.brokers))
    first = "" if one.leader not in one.brokers else "let a broker with a valid one lead, then "
    return (
        f"{valid} a valid replica there: {first}let broker {damaged} copy its replica anew "
        f"({_REPLACE})"
    )


def _what(findings: AuditFindings) -> str:
    one, mirrored = findings.audited, findings.mirrored
    told = []
    markers = f" and {one.markers} markers of transactions" if one.markers else ""
    if one.batches or mirrored is None:
        told.append(
            f"{one.batches} batches with {one.records} records{markers} of {one.topics} topics,"
            f" {one.bytes} bytes of {one.replicas} replicas of {one.partitions} partitions"
        )
    if mirrored is not None:
        told.append(
            f"{mirrored.compared} records of {one.partitions} partitions that equal those of their"
            f" source; the source's last {mirrored.behind} are not mirrored yet, and"
            f" {mirrored.extra} are only in the mirror"
        )
        if mirrored.markers:
            told.append(
                f"the source's {mirrored.markers} markers of transactions and {mirrored.aborted}"
                " records of aborted ones need not be in the mirror"
            )
    return "; ".join(told)
