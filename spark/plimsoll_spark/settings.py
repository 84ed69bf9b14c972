"""The settings of one verification, as typed values read from `verification.json`.

Called by `verification.main` and by tests. Decides which requests this package can fulfil; never
connects to a cluster. The file's shape is the Verification object's spec plus the report's
destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Literal

import msgspec

from plimsoll_spark.pacing import Pace, seconds
from plimsoll_spark.records import HEADER_BYTES
from plimsoll_spark.values import Camel, Previous

Check = Literal["NoLoss", "NoDuplicate", "Order", "NoGap"]
ALL_CHECKS: tuple[Check, ...] = ("NoLoss", "NoDuplicate", "Order", "NoGap")
CHECKS_BY_ACKS: dict[str, tuple[Check, ...]] = {
    "All": ALL_CHECKS,
    "Leader": ("NoDuplicate", "Order", "NoGap"),
    "None": ("NoDuplicate", "Order", "NoGap"),
}
"""The checks that run if none are stated, by acks. With acks=1 the loss of a leader may lose
acknowledged records (docs/guarantees.md), and acks=0 acknowledges nothing."""


WINDOW_MIN_S, WINDOW_MAX_S = 10, 3_600


class Refused(Enum):
    """Why a verification is refused before it starts."""

    INVALID_SPEC = "InvalidSpec"
    EXECUTORS_REFUSED = "ExecutorsRefused"
    EXECUTORS_PENDING = "ExecutorsPending"
    TOPIC_NOT_FOUND = "TopicNotFound"
    TOPIC_NOT_EMPTY = "TopicNotEmpty"
    JARS_MISSING = "JarsMissing"
    NOTHING_KEPT = "NothingKept"
    WRONG_RUN = "WrongRun"
    EVIDENCE_UNUSABLE = "EvidenceUnusable"
    TOO_LITTLE_MEMORY = "TooLittleMemory"


class Refusal(Exception):
    """The verification cannot be started as requested. `reason`: the category; `message`: a
    sentence that says what to change."""

    def __init__(self, reason: Refused, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class LoadStep(Camel, frozen=True):
    """One step of a load profile: a rate, and a duration such as `5m`."""

    for_: str = msgspec.field(name="for")
    records_per_second: int


class FindMaxRate(Camel, frozen=True):
    """A search for the highest rate at which the p99 of ack latency stays within a limit. `from_`,
    `to`: the lowest and the highest rate to try, in records per second; `step_seconds`: length of
    each step."""

    p99_milliseconds: float
    from_: int = msgspec.field(name="from", default=1_000)
    to: int = 1_000_000
    step_seconds: int = 10


class Load(Camel, frozen=True):
    """A load that changes: either steps, one after the other, or a search."""

    profile: tuple[LoadStep, ...] = ()
    find_max_rate: FindMaxRate | None = None


class Produce(Camel, frozen=True):
    """The records to write. `records`: their number, 0 if `load` is set; `records_per_second`: the
    rate of all producers together, None: as fast as possible; `keys`: number of different keys."""

    records: int = 0
    load: Load | None = None
    record_bytes: int = 1024
    records_per_second: int | None = None
    keys: int = 1000
    acks: Literal["All", "Leader", "None"] = "All"
    idempotent: bool | None = None
    """True if producers are idempotent; None: True with acks All, else False."""
    compression: Literal["None", "Gzip", "Snappy", "Lz4", "Zstd"] = "None"

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "All" if self.idempotent is None else self.idempotent

    @property
    def pace(self) -> Pace | None:
        """Return the rate over time; None: as fast as possible. Raises ValueError for a profile
        with an invalid duration."""
        if self.load is not None and self.load.profile:
            return Pace(
                tuple((seconds(one.for_), one.records_per_second) for one in self.load.profile)
            )
        return None if self.records_per_second is None else Pace.steady(self.records_per_second)

    @property
    def total(self) -> int:
        """Return the number of records: the stated one, or that of the profile; 0 for a search,
        which has no number of its own. Raises ValueError for an invalid duration."""
        if self.load is None:
            return self.records
        return sum(seconds(one.for_) * one.records_per_second for one in self.load.profile)


class Verify(Camel, frozen=True):
    """The properties of the log to check. `timeout_seconds`: bound on the time for all checks."""

    checks: tuple[Check, ...] | None = None
    """The checks that decide the verdict; None: those of `CHECKS_BY_ACKS`."""
    timeout_seconds: int = 600
    min_acked_percent: int = 99
    """The least share of the sent records that must be acked, in percent; below it the verdict is
    Inconclusive. Ignored with acks None."""


class Budget(Camel, frozen=True):
    """Limits of a run (`budget.judge_budget`); None: no limit. `max_stall_milliseconds`: the
    longest time without an ack on a partition with waiting records; `p99_milliseconds`: of ack
    latency; `isr_full_within_seconds`: the longest time for which an ISR is not full."""

    max_stall_milliseconds: int | None = None
    p99_milliseconds: float | None = None
    isr_full_within_seconds: int | None = None


class Report(Camel, frozen=True):
    """Where to store the report: in a ConfigMap, or in a directory outside Kubernetes."""

    config_map: str | None = None
    namespace: str | None = None
    server: str | None = None
    """The URL of the API server with the ConfigMap; None: that of the pod's own Kubernetes."""
    account: str | None = None
    """The folder with the token and the CA certificate for `server`; None: it requires no token."""
    directory: str | None = None


class Pods(Camel, frozen=True):
    """How Spark makes pods of executors. `image`, `image_pull_policy`: those of the pods; `cpu`,
    `cpu_limit`: quantities of Kubernetes; `template`, `secret`: paths of files in the driver's pod:
    the executors' template, and the secret of Spark's RPC."""

    namespace: str
    image: str
    image_pull_policy: str
    cpu: str
    cpu_limit: str | None = None
    template: str = "executor.yaml"
    secret: str = "/etc/plimsoll-rpc/secret"
    owner: str = ""
    """The name of the Verification: the value of the label by which its executors' pods are
    found."""


class Runner(Camel, frozen=True):
    """How Spark runs. `executors`: their number; 0: all work is done in this process. `cores`: how
    many tasks an executor runs at the same time; `heap_megabytes`, `overhead_megabytes`: an
    executor's memory in MiB, of its JVM's heap, and of everything else."""

    executors: int = 0
    cores: int = 1
    heap_megabytes: int = 512
    overhead_megabytes: int = 512
    pods: Pods | None = None
    """None: executors are processes of this machine."""


class S3(Camel, frozen=True):
    """A bucket of an S3 server, by the names of its client."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    """The server's URL; None: Amazon's."""
    region: str | None = None


Keep = Literal["Always", "OnViolation", "Never"]


class Evidence(Camel, frozen=True):
    """Where the evidence of a run lies, and whether it stays after the run's end. Exactly one of
    `s3` and `directory` is set (`check`)."""

    directory: str | None = None
    """The directory of all runs, on a volume; each run has one of its own in it."""
    persistent_volume_claim: str | None = None
    """The claim behind `directory`, for messages."""
    s3: S3 | None = None
    keep: Keep = "OnViolation"
    run: str | None = None
    """The name of the run's own directory; None: the name of the verification."""
    resume: str | None = None
    """The name of an earlier run to judge instead; nothing is written."""
    attempts: int = 1
    """How many drivers may work on the run. A driver that breaks publishes no verdict unless it is
    the last: the next one judges the ledger that it left."""

    def keeps(self, verdict: str) -> bool:
        """Return True if the evidence stays after this verdict."""
        return self.keep == "Always" or (self.keep == "OnViolation" and verdict != "Passed")


class Settings(Camel, frozen=True):
    """The run that `verification.json` requests. `bootstrap`: the brokers' addresses,
    comma-separated; `allow_existing`: True if the topic may hold records before the run;
    `deadline_seconds`: bound on the run, counted from the driver's start; 0: a continuous run has
    no end."""

    name: str
    bootstrap: str
    topic: str
    produce: Produce
    mode: Literal["Once", "Continuous"] = "Once"
    window: str = "1m"
    """Length of the windows of a continuous run, each of which has a verdict."""
    verify: Verify = msgspec.field(default_factory=Verify)
    budget: Budget = msgspec.field(default_factory=Budget)
    report: Report = msgspec.field(default_factory=Report)
    runner: Runner = msgspec.field(default_factory=Runner)
    previous: Previous | None = None
    """The last run of the same schedule, for the report."""
    allow_existing: bool = False
    deadline_seconds: int = 3600
    evidence: Evidence | None = None
    """Where the evidence is kept; None: it vanishes with the driver."""
    login: Path | None = None
    """The directory at which the Secret of a User is mounted; None: the listener requires no
    login."""

    @property
    def run_name(self) -> str:
        """Return the name of the run's directory in the evidence."""
        evidence = self.evidence
        return (evidence and (evidence.resume or evidence.run)) or self.name

    @property
    def checks(self) -> tuple[Check, ...]:
        """Return the checks that decide the verdict: those stated, else the defaults for the
        acks."""
        stated = self.verify.checks
        return CHECKS_BY_ACKS[self.produce.acks] if stated is None else stated


def load(path: Path, login: Path | None = None, evidence: Path | None = None) -> Settings:
    """Return the settings in a file. `login`, `evidence`: the directories of the mounted Secret and
    of the mounted volume for evidence, which the file does not state. Raises `Refusal` if the file
    is malformed, or names no place for a report. `check` judges everything else."""
    try:
        content = without_nulls(msgspec.json.decode(path.read_bytes()))
        settings = msgspec.convert(content, Settings)
    except msgspec.DecodeError as error:
        raise Refusal(
            Refused.INVALID_SPEC,
            "verification.json, the configuration that the operator writes for the driver pod of "
            "a Verification, is malformed; correct the Verification's spec, or run the driver "
            f"image of the operator's release: {error}",
        ) from error
    check_report(settings.report)
    kept = settings.evidence
    if kept is not None and evidence is not None:
        kept = msgspec.structs.replace(kept, directory=str(evidence))
    return msgspec.structs.replace(settings, login=login, evidence=kept)


def resuming(settings: Settings, run: str) -> Settings:
    """Return the settings for judging an earlier run by its ledger. Raises `Refusal` if they name
    no evidence."""
    if settings.evidence is None:
        sentence = (
            "the option --resume needs the field evidence in the configuration: it states the "
            "place of that run's evidence files"
        )
        raise Refusal(Refused.INVALID_SPEC, sentence)
    kept = msgspec.structs.replace(settings.evidence, resume=run)
    return msgspec.structs.replace(settings, evidence=kept)


def without_nulls(content: object) -> object:
    """Return JSON content without fields that are null, so that these get their defaults."""
    if isinstance(content, dict):
        return {k: without_nulls(v) for k, v in content.items() if v is not None}
    return content


def check(settings: Settings) -> None:
    """Raise `Refusal` for the first setting that is invalid or cannot be fulfilled, if any."""
    produce = settings.produce
    if settings.mode == "Continuous":
        _check_continuous(settings)
        return
    wrong = (
        (
            (produce.records > 0) == (produce.load is not None),
            "the Verification must set either produce.records (at least 1) or produce.load",
        ),
        (
            bool(produce.load and produce.load.find_max_rate and settings.runner.executors),
            "produce.load.findMaxRate needs runner.executors 0",
        ),
        (
            produce.load is not None and produce.records_per_second is not None,
            "produce.load states the rate; leave recordsPerSecond out",
        ),
        (
            produce.record_bytes < HEADER_BYTES,
            f"produce.recordBytes must be at least {HEADER_BYTES}",
        ),
        (produce.keys < 1, "produce.keys must be at least 1"),
        ((produce.records_per_second or 1) < 1, "produce.recordsPerSecond must be at least 1"),
        (
            produce.is_idempotent and produce.acks != "All",
            "an idempotent producer needs acks: All; set idempotent: false or acks: All",
        ),
        (not 0 <= settings.runner.executors <= 32, "runner.executors must be from 0 to 32"),
        (settings.deadline_seconds < 1, "the Verification's deadlineSeconds must be at least 1"),
        (settings.verify.timeout_seconds < 1, "verify.timeoutSeconds must be at least 1"),
        (
            "/" in settings.run_name or settings.run_name in (".", ".."),
            "the name of the run in evidence.resume must not be a path",
        ),
        (
            settings.evidence is not None
            and bool(settings.evidence.s3) == bool(settings.evidence.directory),
            "the Verification's evidence must name either a directory or s3",
        ),
        (not settings.checks, "verify.checks names no check; leave it out for the default ones"),
        (
            not 0 <= settings.verify.min_acked_percent <= 100,
            "verify.minAckedPercent must be from 0 to 100",
        ),
    )
    _raise_first(wrong)
    _check_load(produce)


def _check_continuous(settings: Settings) -> None:
    produce, evidence = settings.produce, settings.evidence
    try:
        window_s = seconds(settings.window)
    except ValueError as error:
        raise Refusal(Refused.INVALID_SPEC, f"window: {error}") from error
    _raise_first(
        (
            (
                bool(produce.records or produce.load or not produce.records_per_second),
                "a Verification of mode Continuous writes without an end: set "
                "produce.recordsPerSecond, and neither records nor load",
            ),
            (
                produce.acks != "All" or not produce.is_idempotent,
                "a Verification of mode Continuous needs acks: All and idempotent producers",
            ),
            (
                produce.record_bytes < HEADER_BYTES,
                f"produce.recordBytes must be at least {HEADER_BYTES}",
            ),
            (produce.keys < 1, "produce.keys must be at least 1"),
            (
                not WINDOW_MIN_S <= window_s <= WINDOW_MAX_S,
                "the Verification's window must be from 10s to 1h",
            ),
            (
                settings.deadline_seconds < 0,
                ("the Verification's deadlineSeconds must not be negative"),
            ),
            (not 0 <= settings.runner.executors <= 32, "runner.executors must be from 0 to 32"),
            (
                evidence is not None and bool(evidence.s3) == bool(evidence.directory),
                "the Verification's evidence must name either a directory or s3",
            ),
            (
                evidence is not None and evidence.resume is not None,
                "a Verification of mode Continuous cannot resume another run: leave "
                "evidence.resume out",
            ),
            (not settings.checks, "verify.checks names no check; leave it out for the default"),
        )
    )


def _check_load(produce: Produce) -> None:
    if produce.load is None:
        return
    try:
        total = produce.total
    except ValueError as error:
        raise Refusal(
            Refused.INVALID_SPEC, f"the Verification's produce.load.profile is invalid: {error}"
        ) from error
    if bool(produce.load.profile) == (produce.load.find_max_rate is not None):
        sentence = "produce.load must have either profile or findMaxRate, not both"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    wish = produce.load.find_max_rate
    if wish is not None:
        if not (
            1 <= wish.from_ <= wish.to and wish.step_seconds >= 1 and wish.p99_milliseconds > 0
        ):
            sentence = "produce.load.findMaxRate needs 1 <= from <= to, and positive limits"
            raise Refusal(Refused.INVALID_SPEC, sentence)
        return
    rates = [one.records_per_second for one in produce.load.profile]
    if total < 1 or min(rates) < 0:
        sentence = (
            "produce.load.profile needs at least one step with a rate above 0, and none below 0"
        )
        raise Refusal(Refused.INVALID_SPEC, sentence)


def check_report(report: Report) -> None:
    """Raise `Refusal` if the file names no place for the report, or half of one."""
    _raise_first(
        (
            (
                bool(report.config_map) == bool(report.directory),
                "the Verification's report must name either a configMap or a directory",
            ),
            (
                bool(report.config_map) and not report.namespace,
                "the Verification's report.configMap must name a namespace",
            ),
        )
    )


def _raise_first(wrong: Sequence[tuple[bool, str]]) -> None:
    for is_wrong, sentence in wrong:
        if is_wrong:
            raise Refusal(Refused.INVALID_SPEC, sentence)
