"""Shows the status of objects when no operator answers, and the time at which it was written.

The time shown is that of the last write of the object's status, which the API server keeps in
`managedFields`. An unchanged status is not written again, so it may be older than the state of the
cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kubectl_plugin.shown import (
    Findings,
    ViewUnavailable,
    heading,
    line,
    table,
    warned,
    with_pools,
)

UNKNOWN = "an unknown time"


def as_of(body: Object) -> str:
    """Return the time at which the object's status was last written, in RFC 3339; without
    `managedFields`, the latest transition time of its conditions; `UNKNOWN` if it has neither."""
    fields = body["metadata"].get("managedFields") or ()
    written = [
        one["time"] for one in fields if one.get("subresource") == "status" and "time" in one
    ]
    status = body.get("status") or {}
    changed = [
        one["lastTransitionTime"]
        for one in status.get("conditions") or ()
        if one.get("lastTransitionTime")
    ]
    return str(max(written or changed, default=UNKNOWN))


def brokers(why: ViewUnavailable, bodies: Sequence[Object]) -> Findings:
    """Return the output that shows brokers by the status of their LogBrokers, `bodies`, sorted by
    id. `why`: the reason why no operator answers, which is shown too."""
    bodies = sorted(bodies, key=lambda body: int(body["spec"]["brokerId"]))
    rows = [
        {"broker": body["spec"]["brokerId"], "asOf": as_of(body), **(body.get("status") or {})}
        for body in bodies
    ]
    titles = (
        "broker", "as of", "state", "rack", "node", "release", "leaders", "replicas", "in isr",
        "lowest margin", "disk free", "note",
    )  # fmt: skip
    parts: list[RenderableType] = [
        line(f"{why} Showing the last status of the LogBrokers.", bad=True),
        line(
            "Unknown without the operator: which brokers run, what they lead, their last "
            "heartbeat, and their metadata backlog."
        ),
        table(*with_pools(titles, [_broker(row) for row in rows], rows)),
    ]
    return Findings(data={"brokers": rows, "lastKnown": True, "why": str(why)}, parts=parts)


def _broker(row: Any) -> list[Any]:
    notes = []
    if fenced := row.get("fenced"):
        notes.append(f"the broker is fenced since {fenced['since']}: {fenced['why']}")
    if row.get("leaving"):
        notes.append("leaving")
    if row.get("restarting"):
        notes.append("restarting")
    state = row.get("state")
    return [
        row["broker"],
        row["asOf"],
        warned(state, state != "Active"),
        row.get("rack"),
        row.get("node"),
        row.get("version"),
        row.get("leaders"),
        row.get("replicas"),
        row.get("inSync"),
        row.get("lowestISRMargin"),
        (row.get("disk") or {}).get("free"),
        ", ".join(notes),
    ]


def topic(why: ViewUnavailable, name: str, bodies: Sequence[Object]) -> Findings:
    """Show the topic `name` by the status of its Topic, one of `bodies`. `why`: the reason why no
    operator answers, which is shown too. Raises `ViewUnavailable` if no Topic has that name."""
    for body in bodies:
        status = body.get("status") or {}
        declared = status.get("topicName") or body["spec"].get("topicName")
        if name == (declared or body["metadata"]["name"]):
            return _topic(why, name, body, status)
    raise ViewUnavailable(
        f"{why} No Topic object in this namespace declares {name}, so its partitions are "
        "unknown until an operator leads the cluster."
    )


def _topic(why: ViewUnavailable, name: str, body: Object, status: Object) -> Findings:
    at, health = as_of(body), status.get("health") or {}
    unhealthy = status.get("unhealthy") or []
    head = (
        f"Topic {name} as of {at}: {_known(status.get('partitions'))} partitions, replication"
        f" factor {_known(status.get('replicationFactor'))}, min ISR"
        f" {_known(status.get('minInSyncReplicas'))}"
    )
    counts = [
        ["full ISR", health.get("fullISR")],
        ["at min ISR", health.get("atMinISR")],
        ["under min ISR", warned(health.get("underMinISR"), health.get("underMinISR"))],
        ["offline", warned(health.get("offline"), health.get("offline"))],
    ]
    parts: list[RenderableType] = [
        line(f"{why} Showing the Topic's last status.", bad=True),
        line(
            "Unknown without the operator: leaders, ISRs and ELRs of the partitions, replica "
            "lag, log sizes."
        ),
        line(head),
        table(("what", "value"), counts),
    ]
    if unhealthy:
        parts += [heading("Without a full ISR then"), _unhealthy(unhealthy)]
    if assignment := status.get("assignment"):
        rows = [[index, replicas] for index, replicas in enumerate(assignment)]
        parts += [heading("Replicas"), table(("partition", "replicas"), rows)]
    data = {"topic": name, "asOf": at, "lastKnown": True, "why": str(why), "status": status}
    return Findings(data=data, parts=parts)


def _unhealthy(rows: Sequence[Object]) -> RenderableType:
    return table(
        ("partition", "leader", "epoch", "isr", "elr", "waits for", "cause", "since"),
        [
            [
                row["partition"],
                warned("none" if row["leader"] < 0 else row["leader"], row["leader"] < 0),
                row["leaderEpoch"],
                row["isr"],
                row.get("elr"),
                row["waitsFor"],
                row["cause"],
                row["since"],
            ]
            for row in rows
        ],
    )


def _known(value: Any) -> Any:
    return "an unknown number of" if value is None else value


def no_what_if(why: ViewUnavailable) -> ViewUnavailable:
    return ViewUnavailable(
        f"{why} The answer depends on the current ISR of every partition, which only the leading "
        "operator knows. Retry when an operator leads; until then do not stop any broker. `kubectl "
        "plimsoll brokers` shows the lowest ISR margin of each broker's partitions as last known."
    )
