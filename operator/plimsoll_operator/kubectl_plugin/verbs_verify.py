"""`verify`: makes a Verification and follows it to its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from plimsoll_operator.api import API_VERSION
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import VERIFICATIONS
from plimsoll_operator.kubectl_plugin.problems import Problem, told
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Findings, line, table, warned

OVER = ("Completed", "Failed")
REFUSED = ("VerificationDisabled", "ClusterNotFound", "Invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is written.  `per_second` None: as fast as it goes."""

    topic: str
    records: int
    per_second: int | None = None
    allow_existing: bool = False


async def begin(session: PluginSession, work: Workload) -> str:
    """Make the Verification; its name."""
    at = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"verify-{at}"
    produce: Object = {"records": work.records}
    if work.per_second is not None:
        produce["recordsPerSecond"] = work.per_second
    spec: Object = {
        "clusterRef": {"name": session.cluster.metadata.name},
        "topic": work.topic,
        "produce": produce,
    }
    if work.allow_existing:
        spec["allowExisting"] = True
    body = {
        "apiVersion": API_VERSION,
        "kind": VERIFICATIONS.kind,
        "metadata": {"name": name, "namespace": session.namespace},
        "spec": spec,
    }
    try:
        await session.kube.create(VERIFICATIONS, body)
    except ApiError as error:
        raise Problem(f"The Verification cannot be made: {told(error)}") from error
    return name


async def progress(session: PluginSession, name: str) -> Findings:
    """How far it is.  The exit code is 0 once it has passed, and 1 for any other end."""
    try:
        body = await session.kube.get(VERIFICATIONS, session.namespace, name)
    except ApiError as error:
        raise Problem(f"Verification {name}: {told(error)}") from error
    status = dict(body.get("status") or {})
    phase, verdict = status.get("phase") or "Pending", status.get("verdict") or ""
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    refused = ready is not None and ready["status"] == "False" and ready["reason"] in REFUSED
    over = phase in OVER or refused
    passed = verdict == "Passed"
    head = f"Verification {name}: {phase}{f', {verdict}' if verdict else ''}"
    parts: list[Any] = [line(head, bad=over and not passed)]
    if ready is not None and (over or ready["status"] == "False"):
        parts.append(line(f"{ready['reason']}: {ready['message']}"))
    if counts := status.get("counts"):
        titles = ("acked", "read", "lost", "duplicated", "outOfOrder", "gaps")
        cells = [warned(counts.get(title, 0), title in titles[2:] and counts.get(title))
                 for title in titles]  # fmt: skip
        parts.append(table(titles, [cells]))
    if evidence := status.get("evidence"):
        parts.append(line(f"Its report is the ConfigMap {evidence['reportConfigMap']}."))
    data = {"name": name, "status": status}
    return Findings(data=data, parts=parts, over=over, code=0 if passed or not over else 1)
