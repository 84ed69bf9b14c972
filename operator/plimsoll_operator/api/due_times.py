"""Due times of a cron expression in a time zone. Pure.

For VerificationSchedules and maintenance windows. The library cronsim computes the times. When
clocks change it follows the rules of Debian's cron: a start in the skipped hour comes right after
it, one in the repeated hour comes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# zoneinfo reads it where the system has no time zones, as in a bare image.
import tzdata  # noqa: F401
from cronsim import CronSim, CronSimError
from msgspec import Meta

CronExpression = Annotated[str, Meta(min_length=9, max_length=100, pattern=r"^[^\s]+( [^\s]+){4}$")]
TimeZoneName = Annotated[str, Meta(min_length=1, max_length=64)]
COUNTED_MAX = 200
"""Bound on the number of due times that are counted. A larger number is shown as this one."""
ZONE_DEFAULT = "UTC"


class BadSchedule(ValueError):
    """Raised if the expression or its time zone is invalid. The message is a sentence for the
    user."""


@dataclass(frozen=True, slots=True)
class DueTimes:
    """A cron expression with five fields, and the time zone in which it is meant."""

    schedule: str
    time_zone: str = ZONE_DEFAULT

    def __str__(self) -> str:
        return f"{self.schedule} {self.time_zone}"

    def check(self, now_ms: int) -> None:
        """Raise `BadSchedule` if the expression or the time zone is invalid, with a sentence about
        each that is; or if no due time comes within 50 years after `now_ms` (since 1970)."""
        wrong = []
        try:
            self._zone()
        except BadSchedule as error:
            wrong.append(str(error))
        try:
            CronSim(self.schedule, datetime.fromtimestamp(0, UTC))
        except CronSimError as error:
            wrong.append(self._no_cron(error))
        if wrong:
            raise BadSchedule(" ".join(wrong))
        if self.next_after(now_ms) is None:
            raise BadSchedule(f"No day matches the schedule '{self.schedule}'.")

    def next_after(self, at_ms: int) -> int | None:
        """Return the first due time after `at_ms`, in milliseconds since 1970. Return None if there
        is none within 50 years. Raises `BadSchedule`."""
        return next(self._times(at_ms, reverse=False), None)

    def newest_until(self, at_ms: int) -> int | None:
        """Return the newest due time that is not after `at_ms`, in milliseconds since 1970; None if
        there is none within 50 years before. Raises `BadSchedule`."""
        return next(self._times(at_ms + 1_000, reverse=True), None)

    def count(self, after_ms: int, until_ms: int) -> int:
        """Return the number of due times after `after_ms` and not after `until_ms`, at most
        `COUNTED_MAX`. Raises `BadSchedule`."""
        found = 0
        for due_ms in islice(self._times(after_ms, reverse=False), COUNTED_MAX):
            if due_ms > until_ms:
                break
            found += 1
        return found

    def _times(self, at_ms: int, *, reverse: bool) -> Iterator[int]:
        zone = self._zone()
        begin = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone)
        try:
            times = CronSim(self.schedule, begin, reverse=reverse)
        except CronSimError as error:
            raise BadSchedule(self._no_cron(error)) from error
        for due in times:
            yield _milliseconds(due)

    def _zone(self) -> tzinfo:
        try:
            return UTC if self.time_zone == ZONE_DEFAULT else ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadSchedule(
                f"The schedule's timeZone {self.time_zone} does not exist."
            ) from error

    def _no_cron(self, error: CronSimError) -> str:
        return f"The schedule '{self.schedule}' is no cron expression: {error}."


def _milliseconds(due: datetime) -> int:
    return (due - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
