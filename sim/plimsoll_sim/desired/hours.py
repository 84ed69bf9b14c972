"""What an administrator states about hours: maintenance windows, pauses, hibernation.

A window is of one form, so that a checker can tell by arithmetic when it is open: it begins every
`period` minutes, by the UTC clock, and lasts some seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.maintenance import Maintenance, MaintenanceWindow
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.desired.objects import AppliedObjects

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedHours:
    """The hours that a spec states at an instant."""

    paused: bool
    hibernated: bool
    closed: bool

    @property
    def free(self) -> bool:
        return not (self.paused or self.hibernated or self.closed)


def set_paused(objects: AppliedObjects, *, paused: bool) -> None:
    objects.edit(LOG_CLUSTERS, objects.name, paused=paused or None)


def set_hibernated(objects: AppliedObjects, *, hibernated: bool) -> None:
    objects.edit(LOG_CLUSTERS, objects.name, hibernated=hibernated or None)


def set_window(objects: AppliedObjects, period: int, seconds: int) -> None:
    """Declare a window that begins every `period` minutes and lasts `seconds`; with 0 seconds
    declare none."""
    window = MaintenanceWindow(schedule=f"*/{period} * * * *", duration=f"{seconds}s")
    maintenance = objects.cluster.spec.maintenance or Maintenance()
    changed = replace(maintenance, windows=(window,) if seconds else None)
    objects.edit(LOG_CLUSTERS, objects.name, maintenance=changed)


def reset(objects: AppliedObjects) -> None:
    """Let everything begin at any time."""
    spec = objects.cluster.spec
    if spec.paused:
        set_paused(objects, paused=False)
    if spec.hibernated:
        set_hibernated(objects, hibernated=False)
    if spec.maintenance is not None and spec.maintenance.windows:
        set_window(objects, 1, 0)


def stated_at(cluster: LogCluster, now_ms: int) -> StatedHours:
    """Return the hours that the spec states at `now_ms`, by arithmetic."""
    spec = cluster.spec
    windows = (spec.maintenance and spec.maintenance.windows) or ()
    return StatedHours(
        paused=bool(spec.paused),
        hibernated=bool(spec.hibernated),
        closed=bool(windows) and not any(_is_open(window, now_ms) for window in windows),
    )


def _is_open(window: MaintenanceWindow, now_ms: int) -> bool:
    period_ms = int(window.schedule.split()[0].removeprefix("*/")) * MINUTE_MS
    return now_ms % period_ms < int(window.duration.removesuffix("s")) * 1_000
