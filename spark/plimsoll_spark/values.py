"""The values in a verification's result files; their JSON is read by the operator.

Made by `checks`, `verdict` and `run`; read by `report`. msgspec spells the fields in the files'
camelCase.
"""

from __future__ import annotations

import msgspec


class Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of structs with camelCase field names in JSON."""


class Counts(Camel, frozen=True):
    """Numbers of records by outcome, and of gaps in the offsets."""

    sent: int = 0
    acked: int = 0
    failed: int = 0  # certainly not in the log
    unknown: int = 0  # no answer: in the log or not
    read: int = 0  # records of this run in the log
    lost: int = 0  # acked, and not in the log
    misplaced: int = 0  # acked at one offset, found at another
    mismatched: int = 0  # acked, and another record has the acked offset
    duplicated: int = 0  # further copies, made by the log
    rewritten: int = 0  # further copies, which their producers wrote under a later epoch
    out_of_order: int = 0
    gaps: int = 0
    expired: int = 0  # acked, and below the log's present start
    foreign: int = 0  # not written by this run
    markers: int = 0  # of other clients' transactions: offsets without records
    unreported: int = 0  # in the log, of producers that were lost before they reported


class Stall(Camel, frozen=True):
    """The longest time in which records of a partition waited and none was acked. `from_ms`,
    `to_ms`: in milliseconds since 1970."""

    partition: int
    milliseconds: float
    from_ms: float
    to_ms: float


class Latency(Camel, frozen=True):
    """Quantiles of the time from sending a record to its ack, in milliseconds."""

    p50: float = 0
    p90: float = 0
    p99: float = 0
    p999: float = 0
    worst: float = 0


class Bin(Camel, frozen=True):
    """The acks in one time bin. `start_ms`: in milliseconds since 1970; latencies in
    milliseconds."""

    start_ms: float
    acked: int
    p50: float
    p99: float
    worst: float


class Timing(Camel, frozen=True):
    """When the run began and ended (RFC 3339), the latency of acks, and the stalls. All but the
    start is unset until the verdict."""

    start_time: str
    completion_time: str | None = None
    ack_milliseconds: Latency | None = None
    records_per_second: float | None = None
    longest_stall_milliseconds: float | None = None
    stall_milliseconds_by_partition: dict[str, float] = {}
    stalls: tuple[Stall, ...] = ()


class Example(Camel, frozen=True):
    """The place of one fault in the log. `kind`: the name of the count that includes it, or
    `unreadable`; in an audit, the kind of finding. `key`, `producer`, `sequence`: of the record at
    fault; None for a fault without a record, such as a gap."""

    topic: str
    partition: int
    offset: int
    kind: str
    key: str | None = None
    producer: int | None = None
    sequence: int | None = None
    last_offset: int | None = None
    brokers: tuple[int, ...] = ()
    """The brokers with replicas that have the fault, in an audit."""
    valid_brokers: tuple[int, ...] = ()
    """The brokers with valid batches at the same offsets, in an audit."""
    leader: int | None = None
    """The broker that led the partition, in an audit."""
    detail: str = ""


class Audited(Camel, frozen=True):
    """The amounts that an audit has read. `bytes`: of all replicas together; `batches`, `records`,
    `markers` (of transactions): each counted once, whatever the number of replicas."""

    topics: int = 0
    partitions: int = 0
    replicas: int = 0
    batches: int = 0
    records: int = 0
    markers: int = 0
    bytes: int = 0


class PartitionPace(Camel, frozen=True):
    """The acks of one partition; times in milliseconds."""

    partition: int
    acked: int
    p99: float
    longest_stall: float


class FaultMark(Camel, frozen=True):
    """A fault of the run's drill. `at_ms`: when it was noted, in milliseconds since 1970; `result`:
    Begun, Injected, Refused or Unknown; `message`: a sentence about the result; `until_ms`: when it
    ended, None if it does not last."""

    fault: str
    at_ms: float
    result: str
    message: str
    until_ms: float | None = None


class Previous(Camel, frozen=True):
    """Figures of an earlier run of the same schedule; None: unknown."""

    name: str
    verdict: str = ""
    records_per_second: float | None = None
    p99_milliseconds: float | None = None
    longest_stall_milliseconds: float | None = None
    lost: int | None = None


class RateStep(Camel, frozen=True):
    """One step of a search for the highest rate. `acked`: number of acked records; `held`: True if
    every record was acked in time and within the limit of latency; `starved`: True if producers
    themselves did not run for a part of it."""

    records_per_second: int
    p99_milliseconds: float | None
    acked: int
    held: bool
    starved: bool


class Capacity(Camel, frozen=True):
    """The highest rate that held, in records per second, 0 if none did. `bound`: the reason why no
    higher rate is known to hold: the Log, the Driver, or the Range that was to be searched."""

    records_per_second: int
    p99_milliseconds: float | None
    limit_milliseconds: float
    bound: str
    steps: tuple[RateStep, ...]


class BudgetLine(Camel, frozen=True):
    """One limit of a run's budget. `limit`: the name of the field; `measured`: None if the run has
    no such figure; `result`: within, exceeded, unknown without a figure, or starved if producers
    that did not run may be the cause."""

    limit: str
    allowed: float
    measured: float | None
    result: str


class Facts(Camel, frozen=True):
    """The part of the report that is not findings. `versions`: by name; `partitions`: the ones with
    the longest stalls; `partitions_left_out`: the number of the other ones; `faults`: those of the
    drill; `before`: the last run of the schedule, None if there is none."""

    checks: tuple[str, ...]
    versions: dict[str, str]
    bootstrap: str
    topic_id: str | None
    megabytes_per_second: float | None
    partitions: tuple[PartitionPace, ...]
    partitions_left_out: int
    faults: tuple[FaultMark, ...]
    before: Previous | None
    capacity: Capacity | None = None
    budget: tuple[BudgetLine, ...] = ()


class Findings(Camel, frozen=True):
    """The results of all checks of a run. `stalls`: the longest of each partition; `pace`: acks by
    time, in bins of `bin_ms`; `examples`: some of the faults."""

    counts: Counts
    latency: Latency
    stalls: tuple[Stall, ...]
    pace: tuple[Bin, ...]
    bin_ms: int
    examples: tuple[Example, ...]
    unreadable: bool = False
    """True if the log holds batches that no consumer can read, at the offsets in `examples`. The
    counts then prove nothing."""
    partitions: tuple[PartitionPace, ...] = ()
    cleaned: int = 0
    """Acked records that are missing, and that the cleaner of a compacted topic may have removed:
    the log has a newer record of the key."""
    cleaned_gaps: int = 0

    @property
    def records_per_second(self) -> float | None:
        """Return the rate of acks between the bins of the first and the last one; None without
        acks."""
        starts = [one.start_ms for one in self.pace if one.acked]
        if not starts:
            return None
        acked = sum(one.acked for one in self.pace)
        return round(1000 * acked / (max(starts) - min(starts) + self.bin_ms), 1)


class Window(Camel, frozen=True):
    """The verdict of one window of a continuous run. `start`, `end`: RFC 3339; `milliseconds`: of
    ack latency; `examples`: places of faults."""

    start: str
    end: str
    verdict: str
    reason: str
    message: str
    counts: Counts
    milliseconds: Latency | None = None
    examples: tuple[Example, ...] = ()


class EndedWindow(Camel, frozen=True):
    """The row of an ended window in a list of many. `start`, `end`: RFC 3339; `acked`: number of
    acknowledgements that were judged in it; `p99_milliseconds`: of ack latency, None without
    acks."""

    start: str
    end: str
    verdict: str
    reason: str
    acked: int = 0
    records_per_second: float = 0
    p99_milliseconds: float | None = None


class Rolling(Camel, frozen=True):
    """The state of a continuous run. `since`: when it began; `passed`, `violated`, `inconclusive`:
    numbers of ended windows; `drivers`: how many drivers have worked on it; `window`: the newest
    window with a verdict, None before the first; `last_violation`: the newest violated one;
    `last_loss`: the last lost record, and `last_loss_time`: when it was found."""

    window_seconds: int
    since: str
    drivers: int
    passed: int = 0
    violated: int = 0
    inconclusive: int = 0
    waiting: int = 0
    """Number of acknowledgements that are not judged yet."""
    behind: int = 0
    """Number of records that the log holds and that were not read yet."""
    recent: tuple[EndedWindow, ...] = ()
    """The last windows that ended, the newest first."""
    window: Window | None = None
    last_violation: Window | None = None
    last_loss: Example | None = None
    last_loss_time: str | None = None


class Progress(Camel, frozen=True):
    """The content of `progress.json`, which is replaced repeatedly during the run. `phase`:
    Producing, Verifying, Running (a continuous run), Completed or Failed."""

    phase: str
    counts: Counts
    timing: Timing
    rolling: Rolling | None = None


class Kept(Camel, frozen=True):
    """The evidence of a run. `run`: the name by which it is resumed; `place`: where it lies, None
    if it was deleted or never kept; `missing`: a sentence about files that could not be stored
    there, or None."""

    run: str
    place: str | None = None
    missing: str | None = None


class Outcome(Camel, frozen=True):
    """The content of `verdict.json`, which is written once, at the end of the run. `facts`: None
    for an audit, or without findings; `audited`: None unless it is an audit."""

    verdict: str
    reason: str
    message: str
    counts: Counts
    timing: Timing
    examples: tuple[Example, ...] = ()
    facts: Facts | None = None
    audited: Audited | None = None
    evidence: Kept | None = None
