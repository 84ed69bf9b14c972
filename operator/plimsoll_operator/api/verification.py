"""`Verification` (plv): writes records to a topic, reads them back, and reports every lost one; or
audits existing topics."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.audit_source import AuditSource
from plimsoll_operator.api.continuous import Continuous, Example
from plimsoll_operator.api.drill import STEPS_MAX, Drill, DrillMark, DrillRecord
from plimsoll_operator.api.durations import Duration
from plimsoll_operator.api.evidence import EvidenceStore
from plimsoll_operator.api.meta import (
    Api,
    ClusterObject,
    Conditions,
    Count,
    Image,
    LocalClusterRef,
    Name,
    ResourceRequirements,
    Short,
    Time,
    TopicName,
    described,
)
from plimsoll_operator.api.workload import Budget, Capacity, Load, profile_records

Check = Literal[
    "NoLoss",
    "NoDuplicate",
    "Order",
    "NoGap",
    "ReplicasEqual",
    "Readable",
    "EpochsOrdered",
    "MirrorEqual",
]
ALL_CHECKS: tuple[Check, ...] = ("NoLoss", "NoDuplicate", "Order", "NoGap")
"""All checks, in the order in which they are reported. NoLoss holds only with acks All and is left
out otherwise."""
Phase = Literal["Pending", "Producing", "Verifying", "Running", "Completed", "Failed"]
Mode = Literal["Once", "Continuous"]
Verdict = Literal["", "Passed", "Violated", "Inconclusive"]


class Produce(Api, frozen=True, kw_only=True):
    """The records that the run writes."""

    records: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        described("Total number of records to write; required in mode Once without load."),
    ] = None
    load: Load | None = None
    record_bytes: Annotated[
        Annotated[int, Meta(ge=16, le=1_000_000)] | None, described("Size of each record's value.")
    ] = None
    records_per_second: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        described("Rate of all tasks together; unset: no limit."),
    ] = None
    keys: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        described("Number of different record keys."),
    ] = None
    acks: Literal["All", "Leader", "None"] | None = None
    idempotent: Annotated[
        bool | None,
        described(
            "true: use idempotent producers; needs acks All. Default: true with acks All, "
            "else false."
        ),
    ] = None
    compression: Literal["None", "Gzip", "Snappy", "Lz4", "Zstd"] | None = None

    @property
    def total(self) -> int:
        """Return the number of records: the stated one, or that of the load profile."""
        return profile_records(self.load) if self.load is not None else self.records or 0


class Verify(Api, frozen=True, kw_only=True):
    """The checks that the run makes. Default: all that apply, NoLoss only with acks All,
    ReplicasEqual only with reads Disk, MirrorEqual only with mirrorOf."""

    checks: Annotated[tuple[Check, ...], Meta(min_length=1, max_length=8)] | None = None
    min_acked_percent: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        described(
            "If fewer percent of the sent records are acknowledged, the verdict is "
            "Inconclusive (TooFewAcked); default 99. Ignored with acks None."
        ),
    ] = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] | None = None


class Runner(Api, frozen=True, kw_only=True):
    """Settings of the pod that writes and reads the records, and of its executors."""

    image: Image | None = None
    resources: ResourceRequirements | None = None
    executors: Annotated[
        Annotated[int, Meta(ge=0, le=32)] | None,
        described(
            "Number of pods that write and read in place of the driver's. Default 0: the driver's "
            "pod does all. Needs the chart's verification.executors=true."
        ),
    ] = None
    executor_resources: Annotated[
        ResourceRequirements | None,
        described(
            "Of each executor. Default: 100m cpu, 1Gi memory. It has a task for each whole cpu of "
            "its limit (else request) that its memory can hold; its request for memory equals the "
            "limit."
        ),
    ] = None


class VerificationSpec(Api, frozen=True, kw_only=True):
    """The request. Immutable, since a Verification runs once."""

    cluster_ref: LocalClusterRef
    topic: Annotated[
        TopicName | None,
        described("The topic to write to. Required, with produce, unless source is set."),
    ] = None
    produce: Produce | None = None
    source: AuditSource | None = None
    mode: Annotated[
        Mode | None,
        described(
            "Once (default), or Continuous: writes and judges until deadlineSeconds or deletion."
        ),
    ] = None
    window: Annotated[
        Duration | None,
        described("Each window of a continuous run has a verdict: 10s to 1h, default 1m."),
    ] = None
    verify: Verify | None = None
    budget: Budget | None = None
    drill: Drill | None = None
    runner: Runner | None = None
    evidence: Annotated[
        EvidenceStore | None,
        described("Unset: the ledger vanishes with the driver's pod."),
    ] = None
    allow_existing: Annotated[
        bool | None, described("true: the topic may already hold records.")
    ] = None
    deadline_seconds: Annotated[int, Meta(ge=1, le=604_800)] | None = None
    ttl_after_finished: Annotated[
        Duration | None,
        described("The Verification is deleted this long after its end, such as 7d."),
    ] = None
    user: Annotated[
        Name | None,
        described(
            "The User of this namespace as which the driver logs in; it must have a "
            "generated password, because its Secret is mounted. It needs Read, Write and "
            "Describe on the topic, for an audit Read and DescribeConfigs. Unset: the driver "
            "needs a listener without tls and authentication."
        ),
    ] = None

    @property
    def is_continuous(self) -> bool:
        return self.mode == "Continuous"


class Counts(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Numbers of records by outcome."""

    sent: Count = 0
    acked: Count = 0
    unknown: Count = 0
    read: Count = 0
    lost: Count = 0
    duplicated: Count = 0
    out_of_order: Count = 0
    gaps: Count = 0
    failed: Annotated[int, Meta(ge=0, description="Certainly refused by the log.")] = 0
    misplaced: Annotated[
        int,
        Meta(ge=0, description="Acknowledged, but found at another offset."),
    ] = 0
    mismatched: Annotated[
        int, Meta(ge=0, description="Acknowledged, but another record is at their offset.")
    ] = 0
    expired: Annotated[
        int, Meta(ge=0, description="Acknowledged, and deleted by the topic's retention.")
    ] = 0
    rewritten: Annotated[
        int,
        Meta(ge=0, description="Copies that a producer wrote under a later producer epoch."),
    ] = 0
    foreign: Annotated[int, Meta(ge=0, description="Written by other clients.")] = 0
    markers: Annotated[
        int, Meta(ge=0, description="Offsets with markers of other clients' transactions.")
    ] = 0
    unreported: Annotated[
        int,
        Meta(
            ge=0,
            description="In the log, but their executor was lost before it reported them.",
        ),
    ] = 0


class Milliseconds(Api, frozen=True, kw_only=True):
    """Percentiles of a duration, in milliseconds."""

    p50: float = 0
    p99: float = 0


class Timing(Api, frozen=True, kw_only=True):
    """Times of the run, and the longest pause between acknowledged writes."""

    start_time: Time | None = None
    completion_time: Time | None = None
    ack_milliseconds: Milliseconds | None = None
    records_per_second: Annotated[
        float | None, described("Acknowledged records per second, first to last ack.")
    ] = None
    longest_stall_milliseconds: float | None = None


class Audited(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Amounts that an audit has read; bytes are of all replicas."""

    topics: Count = 0
    partitions: Count = 0
    replicas: Count = 0
    batches: Count = 0
    records: Count = 0
    markers: Annotated[int, Meta(ge=0, description="Of transactions.")] = 0
    bytes: Count = 0


class Evidence(Api, frozen=True, kw_only=True):
    """Numbers and examples on which the verdict is based."""

    report_config_map: Short
    run: Annotated[
        Short | None, described("The name by which spec.evidence.resume judges the run again.")
    ] = None
    place: Annotated[
        Annotated[str, Meta(max_length=512)] | None,
        described("Where the evidence is kept; unset: it is not."),
    ] = None
    missing: Annotated[
        Annotated[str, Meta(max_length=1024)] | None,
        described("Why a part of the evidence is not there."),
    ] = None
    examples: Annotated[tuple[Example, ...], Meta(max_length=20)] = ()


class VerificationStatus(Api, frozen=True, kw_only=True):
    """Progress and verdict of the run."""

    observed_generation: Count | None = None
    phase: Phase | None = None
    verdict: Verdict | None = None
    counts: Counts | None = None
    timing: Timing | None = None
    evidence: Evidence | None = None
    drill: Annotated[tuple[DrillMark, ...], Meta(max_length=STEPS_MAX)] = ()
    drill_record: DrillRecord | None = None
    """Never set in a status to show: `drill` writes this field alone, and reads it from the
    object."""
    audited: Audited | None = None
    capacity: Capacity | None = None
    continuous: Continuous | None = None
    conditions: Conditions = ()


class Verification(ClusterObject, frozen=True, kw_only=True):
    """A check of a topic: records are written, read back, and every lost, duplicated or reordered
    one is reported."""

    spec: VerificationSpec
