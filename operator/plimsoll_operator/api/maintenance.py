"""The part of `LogCluster` about maintenance of brokers: `spec.maintenance`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.due_times import CronExpression, TimeZoneName
from plimsoll_operator.api.durations import Duration
from plimsoll_operator.api.meta import Api, described

WINDOWS_MAX = 16
ExposedTopics = Literal["Interrupt", "Block"]


class MaintenanceWindow(Api, frozen=True, kw_only=True):
    """A time in which the operator may restart brokers and move replicas by itself."""

    schedule: Annotated[
        CronExpression,
        described(
            "Beginnings of the window, in five fields of cron: minute, hour, day of month, month, "
            "day of week; '0 2 * * 6' is every Saturday at 2."
        ),
    ]
    time_zone: Annotated[
        TimeZoneName | None,
        described("Name in the time zone database, such as Europe/Berlin. Default UTC."),
    ] = None
    duration: Annotated[
        Duration,
        described("Length of the window, such as 4h; a change of clocks does not change it."),
    ]


class Maintenance(Api, frozen=True, kw_only=True):
    """Hours of voluntary work, restarts of brokers, and drills. Elections and repairs never
    pause."""

    windows: Annotated[
        Annotated[
            tuple[MaintenanceWindow, ...],
            Meta(max_length=WINDOWS_MAX, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None,
        described(
            "Times in which restarts, drains of brokers that serve, the operator's own rebalances "
            "and the finalisation of metadata versions may begin. What has begun ends after the "
            "window. Unset: at any time. Elections, fencing, replacement of dead brokers, and "
            "moves that a person asks for never wait for a window."
        ),
    ] = None
    suspended: Annotated[
        bool | None,
        described("true: no restart begins; restarts that have begun finish. Default false."),
    ] = None
    allow_drills: Annotated[
        bool | None,
        described(
            "true: Verifications may inject faults (spec.drill), and the containers of a broker's "
            "pod share one process namespace, so that a drill can kill the broker from a debug "
            "container. A user who may open a debug container there can read the broker's memory. "
            "A change restarts all brokers, by the rules of a roll. Default false."
        ),
    ] = None
    exposed_topics: Annotated[
        ExposedTopics | None,
        described(
            "Restarts of brokers with exposed topics: those that have no more replicas "
            "than their min ISR (status.exposure counts them). Interrupt (default): a "
            "restart interrupts them briefly, and only while all their replicas are in "
            "sync. Block: restarts wait until no such topic exists."
        ),
    ] = None
