"""Finds out why a driver ended without a verdict, by its Job's pods. Pure but for `pods_of_job`."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_operator.api.labels import JOB_NAME
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import PODS

KILLED = 137
"""The exit code of a process that SIGKILL ended: the kernel's for want of memory, or another."""


async def pods_of_job(kube: KubeApi, namespace: str, job: str) -> list[Object]:
    """Return the pods of a Job, as far as they are still there. Raises ApiError."""
    listed = await kube.list(PODS, namespace, label_selector=f"{JOB_NAME}={job}")
    return list(listed.items)


def cause(pods: Iterable[Object], said_at: str) -> tuple[str, str]:
    """Return the reason and the sentence of a run that ended without a verdict: OutOfMemory if a
    container of `pods` was killed, else DriverFailed. `said_at`: where to find the driver's
    output."""
    ended = [state for pod in pods for state in _terminated(pod)]
    if any(one.get("reason") == "OOMKilled" for one in ended):
        return "OutOfMemory", (
            "The driver pod of the Verification was killed, because its memory limit did not "
            "suffice; raise runner.resources.limits.memory."
        )
    if any(one.get("exitCode") == KILLED for one in ended):
        return "OutOfMemory", (
            f"The driver pod of the Verification was killed (exit code {KILLED}), most often for "
            f"want of memory; raise runner.resources.limits.memory, or see {said_at}"
        )
    return "DriverFailed", (
        f"The driver pod of the Verification exited without a verdict; for the cause see {said_at}"
    )


def _terminated(pod: Object) -> Iterable[Object]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        state: Object | None = (container.get("state") or {}).get("terminated")
        if state is not None:
            yield state
