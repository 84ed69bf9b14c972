"""The verbs about topics and partitions: topics, topic, why, adopt."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote

import yaml
from rich.console import RenderableType

from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS
from plimsoll_operator.api import labels
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import TOPICS
from plimsoll_operator.kubectl_plugin import last_known, timeline
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import (
    Findings,
    Problem,
    ViewUnavailable,
    line,
    size,
    table,
    warned,
)
from plimsoll_operator.reconcile.topic.topic_declaration import OWN_FIELDS

NAME_MAX = 253


async def topics(session: PluginSession) -> Findings:
    """Show all topics: declared by an object, or created by a client."""
    rows = (await session.see("/topics"))["topics"]
    titles = (
        "topic", "declared by", "partitions", "rf", "min isr", "offline", "under", "not full",
        "size", "note",
    )  # fmt: skip
    cells = [
        [
            row["topic"],
            row["declaredBy"] or ("internal" if row["topic"] in INTERNAL_TOPICS else "a client"),
            row["partitions"],
            row["replicationFactor"],
            row["minIsr"],
            warned(row["offline"], row["offline"]),
            warned(row["underMinISR"], row["underMinISR"]),
            row["notFull"],
            size(row["bytes"]),
            f"its data is deleted at {at}" if (at := row.get("deletionAt")) else "",
        ]
        for row in rows
    ]
    return Findings(data={"topics": rows}, parts=[table(titles, cells)])


async def topic(session: PluginSession, name: str) -> Findings:
    """Show one topic: leader, epoch, replicas, ISR, ELR, lag and size of each partition."""
    try:
        found = await _topic(session, name)
    except ViewUnavailable as error:
        return last_known.topic(error, name, await session.topic_objects())
    declared = found["declaredBy"] or "a client"
    head = (
        f"Topic {name} ({found['topicId']}), declared by {declared}, replication factor"
        f" {found['replicationFactor']}, min ISR {found['minIsr']}"
    )
    titles = (
        "partition", "leader", "epoch", "replicas", "isr", "elr", "margin", "lag", "size", "note",
    )  # fmt: skip
    parts: list[RenderableType] = [
        line(head),
        table(titles, [_partition(row) for row in found["partitions"]]),
    ]
    if any(row["behind"] for row in found["partitions"]):
        parts.append(
            line(
                "The column lag shows for each follower how many records it lacks "
                "(BROKER:RECORDS), by the leader's report of the last minute."
            )
        )
    return Findings(data=found, parts=parts)


def _partition(row: Any) -> list[Any]:
    offline = row["leader"] is None
    behind = row["behind"]
    lag = None
    if behind is not None:
        told = [f"{b}:{'?' if n is None else n}" for b, n in sorted(behind.items())]
        lag = " ".join(told) or "0"
    notes = []
    if row["adding"] or row["removing"]:
        moves = [*(f"+{b}" for b in row["adding"]), *(f"-{b}" for b in row["removing"])]
        notes.append(f"moves {' '.join(moves)}" + (f" by {row['mover']}" if row["mover"] else ""))
    if row["lastKnownElr"]:
        notes.append(f"last known ELR {','.join(map(str, row['lastKnownElr']))}")
    return [
        row["partition"],
        warned("none" if offline else row["leader"], offline),
        row["leaderEpoch"],
        row["replicas"],
        warned(row["isr"], row["margin"] < 0)
        if row["isr"] else warned("none", True),
        row["elr"],
        row["margin"],
        lag,
        size(row["bytes"]),
        "; ".join(notes),
    ]  # fmt: skip


async def _topic(session: PluginSession, name: str) -> Any:
    return await session.see(f"/topics/{quote(name, safe='')}")


async def why(session: PluginSession, name: str, partition: int, since: str | None) -> Findings:
    """Show every change of a partition's leader and ISR: time, reason, and origin."""
    since_ms = timeline.since(since, int(time.time() * 1000))
    archived = await timeline.read(session, name, partition)
    epoch = await _leader_epoch(session, name, partition)
    asked = timeline.AskedPartition(
        topic=name, partition=partition, since_ms=since_ms, leader_epoch=epoch
    )
    moments = timeline.timeline(archived.rows, asked)
    if not moments and epoch is None and not archived.notes:
        raise Problem(f"Topic {name} has no partition {partition} and never had one.")
    rows = [
        [
            moment.time or "unknown",
            moment.what,
            moment.leader_epoch,
            f"{moment.why}{', planned' if moment.planned else ''}",
            moment.asked,
            moment.cause,
        ]
        for moment in moments
    ]
    titles = ("time", "what", "epoch", "why", "asked by", "cause")
    parts: list[RenderableType] = [line(note) for note in archived.notes]
    nothing = line(f"Partition {name}-{partition} did not change in that time.")
    parts.append(table(titles, rows) if rows else nothing)
    data = {"topic": name, "partition": partition, "notes": archived.notes, "changes": moments}
    return Findings(data=data, parts=parts)


async def _leader_epoch(session: PluginSession, name: str, partition: int) -> int | None:
    """Return the partition's present leader epoch. Return None if no operator answers, or the
    partition does not exist."""
    try:
        found = await _topic(session, name)
    except (ViewUnavailable, Problem):
        return None
    rows = [row for row in found["partitions"] if row["partition"] == partition]
    return rows[0]["leaderEpoch"] if rows else None


async def adopt(session: PluginSession, name: str) -> Findings:
    """Show the YAML of a Topic object that declares an existing topic with its present settings.
    Raises `Problem` if an object declares the topic already, or none can."""
    found = await _topic(session, name)
    if found["declaredBy"] and not found.get("deletionAt"):
        raise Problem(
            f"Topic {name} is already declared by {found['declaredBy']}, so no other object can "
            "adopt it."
        )
    if name in INTERNAL_TOPICS:
        raise Problem(f"Topic {name} is internal to the brokers, so no object can adopt it.")
    body = topic_object(found, session.namespace, session.cluster.metadata.name)
    shown = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return Findings(data=body, parts=(), raw=shown)


def topic_object(found: Any, namespace: str, cluster: str) -> Object:
    """Build the Topic object that declares a topic with its present settings, so that applying it
    changes nothing. `found`: the topic in the operator's view."""
    name = str(found["topic"])
    held = object_name(name)
    spec: Object = {"clusterRef": {"name": cluster}}
    if held != name:
        spec["topicName"] = name
    spec |= {
        "partitions": len(found["partitions"]),
        "replicationFactor": found["replicationFactor"],
        "minInSyncReplicas": found["minIsr"],
    }
    configs = {key: value for key, value in found["configs"].items() if key not in OWN_FIELDS}
    if configs:
        spec["config"] = configs
    if recovery := found["configs"].get(UNCLEAN_RECOVERY):
        spec["uncleanRecovery"] = {"strategy": recovery}
    return TOPICS.manifest(
        {
            "name": held,
            "namespace": namespace,
            "annotations": {labels.ADOPT: found["topicId"]},
        },
        spec=spec,
    )


def object_name(topic: str) -> str:
    """Return a valid name for the Topic object of a topic: the topic's own name if that is valid,
    else that name in lower case with other characters replaced by hyphens, cut to a name's
    length."""
    plain = re.sub(r"[^a-z0-9.-]", "-", topic.lower())
    parts = [part.strip("-") for part in plain.split(".")]
    return ".".join(part for part in parts if part)[:NAME_MAX].strip("-.") or "topic"
