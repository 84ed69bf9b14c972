"""Commands of scenarios about the backup of the metadata and the restore from it."""

from __future__ import annotations

from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_sim.faults.backups import as_of_another, objects_of
from plimsoll_sim.faults.scripts.restore_from_backup import lose_metadata
from plimsoll_sim.scenario.script import BadScript, Words
from plimsoll_sim.scenario.stage import Stage


def backup(stage: Stage, words: Words) -> None:
    """backup keep | return | another | ask | unask: copy the bucket's objects, put the copy back in
    their place, replace each by one of another cluster, or ask for the newest point of the backup,
    and no longer."""
    what = words.take("what becomes of it")
    words.end()
    stored, objects = objects_of(stage.world), stage.world.objects
    if what == "keep":
        stage.bucket = dict(stored)
    elif what == "return":
        stored.clear()
        stored.update(stage.bucket)
    elif what == "another":
        stored.update({name: as_of_another(name, data) for name, data in stored.items()})
    elif what in ("ask", "unask"):
        point = "newest" if what == "ask" else ""
        objects.annotate(LOG_CLUSTERS, objects.name, RESTORE_FROM_BACKUP, point)
    else:
        raise BadScript(f"cannot {what} the backup")


def lose_copies(stage: Stage, words: Words) -> None:
    """lose-copies 1 2: remove the metadata from the disks of these brokers, which are down."""
    hosts = [stage.broker(name) for name in words.rest("a broker")]
    words.end()
    if any(host.running for host in hosts):
        raise BadScript("a broker that runs has its metadata in memory")
    stage.world.ghost.metadata_lost()
    for host in hosts:
        lose_metadata(host)


def shown(stage: Stage) -> list[str]:
    """Return up to where the metadata are exported, and what the LogCluster says of a restore."""
    world = stage.world
    status = world.objects.body(LOG_CLUSTERS, world.objects.name).get("status") or {}
    found = {one["type"]: one for one in status.get("conditions") or ()}
    restored = found.get("MetadataRestored")
    offered = [choice for host in world.operators for choice in host.choices]
    behind = world.ghost.image.next_offset - world.backups.exported
    return [
        f"the export lacks {behind} records",
        f"restored  {restored['status']}  {restored['reason']}" if restored else "not restored",
        f"{len(offered)} histories are offered",
    ]


VERBS = {"backup": backup, "lose-copies": lose_copies}
