"""`spec.backup` and `status.backup` of a LogCluster: where the metadata is backed up."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.due_times import ZONE_DEFAULT, CronExpression, DueTimes, TimeZoneName
from plimsoll_operator.api.durations import Duration, seconds
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.api.meta import Api, Count, Quantity, Short, Time, described

KEEP_DEFAULT = "7d"
DRILLS_DEFAULT = "0 3 * * *"


class RestoreDrill(Api, frozen=True, kw_only=True):
    """When the backup is restored into a scratch directory, to prove that it can be."""

    schedule: Annotated[
        CronExpression,
        described("Beginnings of the drills, in five fields of cron; default '0 3 * * *'."),
    ]
    time_zone: Annotated[
        TimeZoneName | None,
        described("Name in the time zone database, such as Europe/Berlin. Default UTC."),
    ] = None


class Backup(Api, frozen=True, kw_only=True):
    """A continuous backup of the metadata: topics with their ids, partitions, users, rights and
    quotas. It holds no records and no committed offsets of groups. {} takes the defaults."""

    s3: Annotated[
        S3 | None,
        described(
            "The bucket. Unset: the volume that the operator's pods mount (the chart's "
            "backup.persistentVolumeClaim), or DIRECTORY/backup of plimsoll local."
        ),
    ] = None
    keep: Annotated[
        Duration | None,
        described(
            "How far back a point in time can be restored: each change of the last day, snapshots "
            "of the time before; default 7d."
        ),
    ] = None
    drill: RestoreDrill | None = None

    @property
    def keep_ms(self) -> int:
        return 1000 * seconds(self.keep or KEEP_DEFAULT)

    @property
    def drills(self) -> DueTimes:
        if self.drill is None:
            return DueTimes(DRILLS_DEFAULT)
        return DueTimes(self.drill.schedule, self.drill.time_zone or ZONE_DEFAULT)


class BackupStatus(Api, frozen=True, kw_only=True):
    """What the backup holds. `offset`: the metadata offset up to which it is stored; `oldest`: the
    first point in time that can be restored; `proven`: the last successful restore drill, which
    proved the backup up to `provenOffset`."""

    place: Annotated[str, msgspec.Meta(max_length=1024)]
    offset: Count
    stored: Annotated[Time | None, described("When metadata was stored last.")] = None
    oldest: Time | None = None
    objects: Count
    size: Quantity
    proven: Time | None = None
    proven_offset: Count | None = None
    digest: Annotated[Short | None, described("The digest of what the drill proved.")] = None


def is_point(text: str) -> bool:
    """Return True if a text states a point of a backup: `newest`, a metadata offset, or a time in
    RFC 3339 with its zone."""
    if text == "newest" or (text.isdecimal() and text.isascii() and len(text) < 20):
        return True
    try:
        milliseconds(text)
    except (ValueError, OverflowError):
        return False
    return text.endswith("Z") or "+" in text[10:] or "-" in text[10:]
