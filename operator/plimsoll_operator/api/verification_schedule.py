"""`VerificationSchedule` (plvs): starts a Verification at stated times, and keeps the verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.due_times import CronExpression, TimeZoneName
from plimsoll_operator.api.durations import Duration
from plimsoll_operator.api.meta import (
    Api,
    ClusterObject,
    Conditions,
    Count,
    LocalClusterRef,
    Short,
    Time,
    described,
)
from plimsoll_operator.api.verification import Verdict, VerificationSpec

ConcurrencyPolicy = Literal["Forbid", "Replace", "Allow"]
ROWS_MAX = 30
"""Number of verdicts that the status keeps."""
PASSED_DEFAULT, VIOLATED_DEFAULT, INCONCLUSIVE_DEFAULT = 7, 30, 7
TTL_DEFAULT = "7d"
_Kept = Annotated[int, Meta(ge=1, le=100)]


class History(Api, frozen=True, kw_only=True):
    """Number of ended Verifications to keep, by verdict. The newest one always stays."""

    passed: Annotated[_Kept | None, described("Default 7.")] = None
    violated: Annotated[_Kept | None, described("Default 30.")] = None
    inconclusive: Annotated[_Kept | None, described("Default 7.")] = None


class VerificationScheduleSpec(Api, frozen=True, kw_only=True):
    """When Verifications start, and their template. Each start uses the template as it is then."""

    schedule: Annotated[
        CronExpression,
        described(
            "Five fields of cron: minute, hour, day of month, month, day of week; "
            "'0 2 * * *' is every night at 2."
        ),
    ]
    template: Annotated[
        VerificationSpec, described("Spec of the Verifications, which are in this namespace.")
    ]
    time_zone: Annotated[
        TimeZoneName | None,
        described("Name in the time zone database, such as Europe/Berlin. Default UTC."),
    ] = None
    concurrency_policy: Annotated[
        ConcurrencyPolicy | None,
        described(
            "If the last Verification still runs at the next start: Forbid (default) leaves the "
            "start out, Replace deletes the running one, Allow starts another."
        ),
    ] = None
    suspend: Annotated[
        bool | None,
        described("true: no Verification starts. Starts that are left out are not made up."),
    ] = None
    history: History | None = None
    ttl: Annotated[
        Duration | None,
        described(
            "Passed and Inconclusive Verifications are deleted this long after their end; "
            "default 7d. Violated ones stay within history.violated."
        ),
    ] = None

    @property
    def cluster_ref(self) -> LocalClusterRef:
        """Return the reference to the LogCluster of the Verifications."""
        return self.template.cluster_ref


class ScheduledRun(Api, frozen=True, kw_only=True):
    """Result of one ended Verification of the schedule."""

    name: Short
    due_time: Time | None = None
    completion_time: Time | None = None
    verdict: Verdict = ""
    reason: Short = ""
    records_per_second: float | None = None
    p99_milliseconds: float | None = None
    longest_stall_milliseconds: float | None = None
    lost: Count | None = None


class Figure(Api, frozen=True, kw_only=True):
    """A figure of the newest Passed run, with the median of the Passed runs before it."""

    last: float | None = None
    median: float | None = None
    change_percent: float | None = None


class Trend(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Numbers of runs in `runs` by verdict, and figures compared with earlier runs."""

    passed: Count = 0
    violated: Count = 0
    inconclusive: Count = 0
    lost: Annotated[int, Meta(ge=0, description="Number of lost records in all runs.")] = 0
    records_per_second: Figure | None = None
    p99_milliseconds: Figure | None = None


class VerificationScheduleStatus(Api, frozen=True, kw_only=True):
    """Starts and verdicts of the schedule."""

    observed_generation: Count | None = None
    last_schedule_time: Annotated[
        Time | None, described("Newest due time for which a Verification was started or left out.")
    ] = None
    schedule_seen: Annotated[
        Short | None, described("Schedule and time zone by which due times were last computed.")
    ] = None
    next_schedule_time: Time | None = None
    periods_without_verdict: Annotated[
        Count | None,
        described("Due times since the last run with the verdict Passed or Violated."),
    ] = None
    counted_since: Annotated[
        Time | None,
        described(
            "The creation, change or last suspension of the schedule: nothing starts for an "
            "earlier due time, and periodsWithoutVerdict counts none."
        ),
    ] = None
    active: Annotated[tuple[Short, ...], Meta(max_length=20)] = ()
    runs: Annotated[
        tuple[ScheduledRun, ...],
        Meta(max_length=ROWS_MAX, description="The last verdicts, newest first."),
    ] = ()
    trend: Trend | None = None
    conditions: Conditions = ()


class VerificationSchedule(ClusterObject, frozen=True, kw_only=True):
    """Starts a Verification at stated times, and keeps the verdicts."""

    spec: VerificationScheduleSpec
