"""Writes the operator's notes into the ConfigMap of a driver's report.

Called by `reconcile`. Each patch is for the version of the ConfigMap that was read before it. So a
paused operator that wakes writes nothing into the report of another Verification, nor over a later
note, and a verdict that a driver published meanwhile is seen.
"""

from __future__ import annotations

from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import CONFIG_MAPS

ENDED = "ended"
"""The key with the reason for which the operator ended a run without a verdict. From then on no
driver writes into the report: a driver on a lost node would contradict the status, and delete
evidence that the status names."""


async def note(kube: KubeApi, report: Object | None, name: str, text: str) -> None:
    """Write a note into the report unless it is there, or there is no report. Raises ApiError."""
    if report is None or (report.get("data") or {}).get(name) == text:
        return
    meta = report["metadata"]
    stated = {key: meta[key] for key in ("uid", "resourceVersion")}
    patch = {"metadata": stated, "data": {name: text}}
    await kube.merge(CONFIG_MAPS, meta["namespace"], meta["name"], patch)
