"""The verb `schedules`: shows the VerificationSchedules of a LogCluster and their last verdicts."""

from __future__ import annotations

from rich.console import RenderableType

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import VERIFICATION_SCHEDULES
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Findings, heading, line, table, warned

ROWS_SHOWN = 5
OVERDUE = 2
"""Number of periods without a verdict from which a schedule is shown as bad; the alert fires at the
same number."""
TITLES = ("schedule", "zone", "last", "next", "verdict", "overdue", "passed", "violated", "reason")
RUN_TITLES = ("due", "verification", "verdict", "reason", "records/s", "p99 ms", "lost")


async def schedules(session: PluginSession) -> Findings:
    """Show each VerificationSchedule of the LogCluster with its last verdicts. The exit code is 1
    if a newest verdict is Violated. Raises `Problem` if they cannot be listed."""
    name = session.cluster.metadata.name
    found = [
        body
        for body in await session.objects(VERIFICATION_SCHEDULES)
        if body["spec"]["template"]["clusterRef"]["name"] == name
    ]
    if not found:
        text = f"LogCluster {name} has no VerificationSchedule in {session.namespace}."
        return Findings(data=[], parts=[line(text)])
    parts: list[RenderableType] = [table(("name", *TITLES), [_row(body) for body in found])]
    for body in found:
        runs = _status(body).get("runs") or []
        if runs:
            parts.append(heading(body["metadata"]["name"]))
            parts.append(table(RUN_TITLES, [_run(one) for one in runs[:ROWS_SHOWN]]))
    data = [{"name": body["metadata"]["name"], **body} for body in found]
    violated = any(_verdict(body) == "Violated" for body in found)
    return Findings(data=data, parts=parts, code=int(violated))


def _status(body: Object) -> Object:
    return body.get("status") or {}


def _verdict(body: Object) -> str:
    runs = _status(body).get("runs") or []
    return str(runs[0].get("verdict") or "") if runs else ""


def _row(body: Object) -> list[object]:
    spec, status = body["spec"], _status(body)
    trend, runs = status.get("trend") or {}, status.get("runs") or []
    ready: Object = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
    overdue = status.get("periodsWithoutVerdict") or 0
    return [
        body["metadata"]["name"],
        spec["schedule"],
        spec.get("timeZone") or "UTC",
        runs[0].get("dueTime") if runs else None,
        status.get("nextScheduleTime"),
        warned(_verdict(body), _verdict(body) not in ("", "Passed")),
        warned(overdue, overdue >= OVERDUE),
        trend.get("passed"),
        warned(trend.get("violated"), trend.get("violated")),
        ready.get("reason"),
    ]


def _run(run: Object) -> list[object]:
    verdict, lost = run.get("verdict"), run.get("lost")
    return [
        run.get("dueTime"),
        run.get("name"),
        warned(verdict, verdict != "Passed"),
        run.get("reason"),
        run.get("recordsPerSecond"),
        run.get("p99Milliseconds"),
        warned(lost, lost),
    ]
