"""The verbs about the cluster as a whole: status, brokers, blocked, what-if."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.console import RenderableType

from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.conditions import ENDINGS, is_true
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_BROKERS, USER_KINDS, Kind
from plimsoll_operator.kubectl_plugin import last_known
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import (
    Findings,
    Problem,
    ViewUnavailable,
    heading,
    line,
    table,
    warned,
    with_pools,
)

GOOD = {"Ready": "True"}
"""Types of conditions of which any other status than the stated one is bad. Those in `BAD` are bad
if True; all others are never bad."""
BAD = ("Stalled", "Blocked")
ROWS_MAX = 20


async def status(session: PluginSession) -> Findings:
    """Read the LogCluster again and show the cluster on one screen: the operator's present view,
    and the object's status. If no operator answers, the status alone is shown, with the reason."""
    await session.refresh()
    shown, namespace = session.status, session.namespace
    name = session.cluster.metadata.name
    conditions = shown.get("conditions") or []
    parts: list[RenderableType] = [line(f"LogCluster {namespace}/{name}")]
    view = None
    try:
        view = await session.see()
    except ViewUnavailable as error:
        parts.append(line(f"{error} Showing the object's last status.", bad=True))
    parts += [table(("condition", "status", "reason", "message"), _conditions(conditions))]
    parts += _counts(view, shown)
    if view is not None:
        parts += _now(view)
    if blocked := shown.get("blocked"):
        parts += [heading("Blocked"), _blocked_table(blocked)]
    data = {"namespace": namespace, "cluster": name, "view": view, "status": shown}
    return Findings(data=data, parts=parts)


def _conditions(conditions: Sequence[Object]) -> list[list[Any]]:
    return [
        [one["type"], warned(one["status"], _is_bad(one)), one["reason"], one["message"]]
        for one in conditions
        if one["type"] in GOOD or _is_bad(one) or one["status"] == "True"
    ]


def _is_bad(one: Object) -> bool:
    if one["type"] in GOOD:
        return bool(one["status"] != GOOD[one["type"]])
    return one["type"] in BAD and one["status"] == "True"


def _counts(view: Any, status: Object) -> list[RenderableType]:
    """Build the table of brokers and partitions: from the operator's view if there is one, since it
    is newer, else from the LogCluster's status. Empty if neither counts brokers."""
    found = view or status
    brokers, partitions = found.get("brokers") or {}, found.get("partitions") or {}
    if not brokers:
        return []
    log = status.get("metadataLog") or {}
    epoch = view["controllerEpoch"] if view else log.get("controllerEpoch")
    offset = view["offset"] if view else log.get("offset")
    fenced, offline = brokers.get("fenced", 0), partitions.get("offline", 0)
    under = partitions.get("underMinISR", 0)
    rows: list[list[Any]] = [
        ["brokers ready", _ready_brokers(brokers, status.get("brokers") or {})],
        ["brokers fenced", warned(fenced, fenced)],
        ["partitions", partitions.get("total", 0)],
        ["partitions offline", warned(offline, offline)],
        ["under min ISR", warned(under, under)],
        ["at min ISR", partitions.get("atMinISR", 0)],
        ["controller epoch, offset", f"{epoch}, {offset}"],
    ]
    if view:
        rows += [
            ["led by", view["operator"]],
            ["topics", f"{view['topics']}, {view['clientMade']} of them without an object"],
        ]
    return [heading("Now" if view else "As shown last"), table(("what", "value"), rows)]


def _ready_brokers(found: Object, shown: Object) -> str:
    """Return the cell `READY of EXISTING` brokers, by the counts `found`. If the spec asks for
    another number, because the cluster grows or a shrink waits, the cell shows that too. `shown`:
    `brokers` in the LogCluster's status, the only source of the spec's number."""
    ready = found.get("active", found.get("ready", 0))
    there = len(found["ids"]) if "ids" in found else found.get("desired", 0)
    desired = shown.get("desired", there)
    return f"{ready} of {there}" + (f", the spec asks for {desired}" if desired != there else "")


def _now(view: Any) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for broker, revision in view["restarting"].items():
        parts.append(
            line(
                f"Broker {broker} is being restarted, so that its pod runs revision {revision} of "
                "its template."
            )
        )
    parts += [line(f"{mover} is moving replicas of partitions.") for mover in view["moving"]]
    if view["unhealthyTotal"]:
        rows = view["unhealthy"][:ROWS_MAX]
        parts += [
            heading(f"Without a full ISR: {view['unhealthyTotal']}"),
            table(
                ("topic", "partition", "leader", "isr", "replicas", "margin", "cause", "waits for"),
                [
                    [
                        row["topic"],
                        row["partition"],
                        warned("none" if row["leader"] is None else row["leader"],
                               row["leader"] is None),
                        row["isr"],
                        row["replicas"],
                        warned(row["margin"], row["margin"] < 0),
                        row["cause"],
                        row["waitsFor"],
                    ]
                    for row in rows
                ],
            ),
        ]  # fmt: skip
    return parts


async def brokers(session: PluginSession) -> Findings:
    """Show each broker: state, rack, load, disk, partitions that need it, and why it is fenced."""
    bodies = await _log_brokers(session)
    try:
        view = await session.see("/brokers")
    except ViewUnavailable as error:
        if not bodies:
            raise
        return last_known.brokers(error, bodies)
    told: defaultdict[int, Object] = defaultdict(dict)
    told |= {body["spec"]["brokerId"]: body.get("status") or {} for body in bodies}
    rows = [
        row | {field: told[row["broker"]].get(field) for field in ("disk", "fenced", "pool")}
        for row in view["brokers"]
    ]
    titles = (
        "broker", "state", "rack", "release", "leaders", "replicas", "in isr", "needed",
        "heard", "behind", "disk free", "note",
    )  # fmt: skip
    shown = table(*with_pools(titles, [_broker(row) for row in rows], rows))
    return Findings(data={"brokers": rows}, parts=[shown])


async def _log_brokers(session: PluginSession) -> list[Object]:
    """Return the LogBrokers of the chosen cluster; none if the API server refuses to list them."""
    name = session.cluster.metadata.name
    with suppress(Problem):
        found = await session.objects(LOG_BROKERS)
        return [body for body in found if body["spec"]["clusterRef"]["name"] == name]
    return []


def _broker(row: Any) -> list[Any]:
    notes = [word for word in ("leaving", "restarting") if row[word]]
    heard, disk, fenced = row["heardMsAgo"], row["disk"], row["fenced"]
    if fenced:
        notes.append(f"the broker is fenced since {fenced['since']}: {fenced['why']}")
    return [
        row["broker"],
        warned(row["state"], row["state"] != "Active"),
        row["rack"],
        row["release"],
        row["leaders"],
        row["replicas"],
        row["inIsr"],
        row["indispensable"],
        None if heard is None else f"{heard / 1000:.1f}s ago",
        row["metadataBehind"],
        None if disk is None else disk["free"],
        ", ".join(notes),
    ]


async def blocked(session: PluginSession) -> Findings:
    """Show the blocked actions in the LogCluster's status with their deadlines, and the objects
    that are not Ready, Stalled or Blocked. Of ended objects only Stalled ones are shown."""
    await session.refresh()
    waiting = session.status.get("blocked") or []
    unready: list[Object] = []
    for kind in USER_KINDS:
        unready += [found for body in await session.objects(kind) for found in _unready(kind, body)]
    parts: list[RenderableType] = []
    if waiting:
        parts += [_blocked_table(waiting)]
    if unready:
        titles = ("object", "condition", "reason", "since", "message")
        rows = [[one["object"], one["condition"], one["reason"], one["since"], one["message"]]
                for one in unready]  # fmt: skip
        parts += [heading("Objects"), table(titles, rows)]
    if not parts:
        parts = [line("Nothing is blocked.")]
    return Findings(data={"blocked": waiting, "objects": unready}, parts=parts)


def _unready(kind: Kind, body: Object) -> list[Object]:
    name = f"{kind.kind}/{body['metadata']['name']}"
    conditions = (body.get("status") or {}).get("conditions") or ()
    ended = any(is_true(body, ending) for ending in ENDINGS)
    return [
        {
            "object": name,
            "condition": f"{one['type']}={one['status']}",
            "reason": one["reason"],
            "since": one.get("lastTransitionTime"),
            "message": one["message"],
        }
        for one in conditions
        if _is_bad(one) and (one["type"] == "Stalled" or not ended)
    ]


def _blocked_table(rows: Sequence[Object]) -> RenderableType:
    titles = ("action", "object", "broker", "topic", "partition", "reason", "since", "until")
    return table(titles, [[row.get(title) for title in titles] for row in rows])


async def what_if(session: PluginSession, brokers: Sequence[int]) -> Findings:
    """Show the partitions that would be offline or under min ISR if the brokers with these ids were
    gone. Raises `Problem` if one is not in the cluster."""
    try:
        found = await session.see("/what-if", brokers=",".join(map(str, brokers)))
    except ViewUnavailable as error:
        raise last_known.no_what_if(error) from error
    if found["unknown"]:
        raise Problem(f"This cluster has no {brokers_text(found['unknown'])}.")
    text = (
        f"Without {brokers_text(found['brokers'])}, {found['offline']} partitions would be "
        f"offline and {found['underMinISR']} under min ISR, and {found['leadersThatMove']} would "
        "get another leader."
    )
    parts: list[RenderableType] = [line(text, bad=bool(found["offline"]))]
    for title, key, count in (
        ("Offline", "offlinePartitions", found["offline"]),
        ("Under min ISR: writes with acks=all are refused", "underPartitions",
         found["underMinISR"]),
    ):  # fmt: skip
        if rows := found[key]:
            more = f" (first {len(rows)} of {count})" if count > len(rows) else ""
            parts += [heading(title + more), _affected(rows)]
    return Findings(data=found, parts=parts)


def _affected(rows: Sequence[Any]) -> RenderableType:
    return table(
        ("topic", "partition", "brokers left in isr", "min isr", "note"),
        [
            [
                row["topic"],
                row["partition"],
                row["leftInIsr"],
                row["minIsr"],
                "so already" if row["already"] else "",
            ]
            for row in rows
        ],
    )
