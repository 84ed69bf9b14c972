"""Commands of scenarios about hours: windows, pauses, hibernation; and what they show."""

from __future__ import annotations

from plimsoll_core.controller.brokers.hibernation import is_asleep
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.desired import hours
from plimsoll_sim.scenario.script import Words
from plimsoll_sim.scenario.stage import Stage

CONDITIONS = ("Paused", "MaintenanceWindow", "Hibernated", "Blocked")


def window(stage: Stage, words: Words) -> None:
    """window 2 20: declare a maintenance window that begins every 2 minutes and lasts 20 seconds;
    `window none`: declare none."""
    period = words.take("minutes or none")
    seconds = "0" if period == "none" else words.take("seconds")
    words.end()
    hours.set_window(stage.world.objects, 1 if period == "none" else int(period), int(seconds))


def pause(stage: Stage, words: Words) -> None:
    """pause-cluster: set spec.paused; `pause-cluster off`: set it to false."""
    off = words.flag("off")
    words.end()
    hours.set_paused(stage.world.objects, paused=not off)


def hibernate(stage: Stage, words: Words) -> None:
    """hibernate: set spec.hibernated; `hibernate off`: set it to false."""
    off = words.flag("off")
    words.end()
    hours.set_hibernated(stage.world.objects, hibernated=not off)


def asleep(stage: Stage) -> bool:
    """Return True if the cluster hibernates and no broker runs."""
    hosts = stage.world.brokers.values()
    return is_asleep(stage.image) and not any(host.running for host in hosts)


def awake(stage: Stage) -> bool:
    return not stage.image.hibernated


def shown(stage: Stage) -> list[str]:
    """Return the LogCluster's conditions about hours, and what waits."""
    objects = stage.world.objects
    status = objects.body(LOG_CLUSTERS, objects.name).get("status") or {}
    found = {one["type"]: one for one in status.get("conditions") or ()}
    return [
        f"{name}  {found[name]['status']}  {found[name]['reason']}  {found[name]['message']}"
        for name in CONDITIONS
        if name in found and (name != "Blocked" or found[name]["status"] == "True")
    ]


VERBS = {"window": window, "pause-cluster": pause, "hibernate": hibernate}
