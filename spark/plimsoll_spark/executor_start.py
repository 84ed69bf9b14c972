"""Waits for the executors of a run, and says why they do not start.

Called by `run`. On Kubernetes it asks the API server first if it would admit an executor's pod (a
dry run), and while executors are missing, why their pods do not run: the scheduler's own words, or
a quota's.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from plimsoll_spark.publish import ACCOUNT, api_server
from plimsoll_spark.settings import Pods, Refusal, Refused, Runner, Settings

WITHIN_S = 120.0
LOOK_S = 0.25
REQUEST_TIMEOUT_S = 10.0
LABEL = "plimsoll.dev/executor-of"
REASONS_MAX = 3
REASONS_EVERY_S = 3.0

log = logging.getLogger(__name__)


def refuse_pods(name: str, runner: Runner) -> None:
    """Raise `Refusal` if the API server would not admit an executor's pod, because of a missing
    right, a quota or the namespace's Pod Security. Do nothing if no executors are requested, if
    they are no pods, or if the API server does not answer. `name`: the Verification's."""
    if runner.executors and runner.pods is not None:
        why = _why_not_admitted(name, runner, runner.pods)
        if why is not None:
            sentence = (
                "the API server refuses the executor pods of the Verification; remove the "
                f"cause, or set runner.executors to 0: {why}"
            )
            raise Refusal(Refused.EXECUTORS_REFUSED, sentence)


def wait(spark: SparkSession, settings: Settings) -> None:
    """Return when all executors have registered with the driver, at once if none is requested.
    Raises `Refusal` after `WITHIN_S` or a quarter of the run's deadline, the shorter time, and when
    Spark has given up because so many executors ended."""
    name, runner = settings.name, settings.runner
    within_s = min(WITHIN_S, settings.deadline_seconds / 4)
    began_s = time.monotonic()
    next_look_s, reasons = (
        began_s + REASONS_EVERY_S,
        ["the cause is unknown; see the driver pod's log"],
    )
    while (there := registered(spark)) is None or there < runner.executors:
        if there is None:
            sentence = (
                "the Verification cannot run, because its Spark executors ended as soon as they "
                f"had started: {'; '.join(reasons)}"
            )
            raise Refusal(Refused.EXECUTORS_PENDING, sentence)
        if time.monotonic() - began_s >= within_s:
            sentence = (
                f"the Verification cannot run, because only {there} of its {runner.executors} "
                f"Spark executors started within {within_s:.0f} s: {'; '.join(reasons)}"
            )
            raise Refusal(Refused.EXECUTORS_PENDING, sentence)
        if time.monotonic() >= next_look_s:
            next_look_s = time.monotonic() + REASONS_EVERY_S
            reasons = why_pending(name, runner) or reasons
        time.sleep(LOOK_S)
    log.info(
        "Verification %s: its %d Spark executors have started and registered after %.1f s",
        name,
        there,
        time.monotonic() - began_s,
    )


def registered(spark: SparkSession) -> int | None:
    """Return how many executors are registered with the driver; None if Spark has given up, since
    so many ended."""
    context = spark.sparkContext._jsc.sc()
    try:
        # Spark counts the driver among them.
        return int(context.getExecutorMemoryStatus().size()) - 1
    except Py4JJavaError:
        if not context.isStopped():
            raise
        return None


def why_pending(name: str, runner: Runner) -> list[str]:
    """Return why the executors' pods do not run, in at most `REASONS_MAX` sentences. Return none if
    executors are processes of this machine, or nothing says why."""
    pods = runner.pods
    if pods is None:
        return []
    query = urllib.parse.urlencode({"labelSelector": f"{LABEL}={pods.owner}"})
    _, found = _ask("GET", f"{_path(pods)}?{query}")
    reasons = [
        f"pod {pod['metadata']['name']}: {why}"
        for pod in found.get("items", [])
        if (why := waits_for(pod)) is not None
    ]
    refused = _why_not_admitted(name, runner, pods)
    return [*reasons, *([] if refused is None else [refused])][:REASONS_MAX]


def waits_for(pod: dict[str, Any]) -> str | None:
    """Return what a pod waits for, in the words of the scheduler or the kubelet; None if they say
    nothing."""
    status = pod.get("status", {})
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    for container in status.get("containerStatuses", []):
        for state in ("waiting", "terminated"):
            told = container.get("state", {}).get(state)
            if told:
                return f"{told.get('reason', state)}: {told.get('message', '')}".rstrip(": ")
    return None


def executor_pod(name: str, runner: Runner, pods: Pods) -> dict[str, Any]:
    """Return an executor's pod as Spark makes it of the template, with the fields by which the API
    server admits it."""
    pod: dict[str, Any] = json.loads(Path(pods.template).read_text())
    memory = f"{runner.heap_megabytes + runner.overhead_megabytes}Mi"
    limits = {"memory": memory} | ({} if pods.cpu_limit is None else {"cpu": pods.cpu_limit})
    (container,) = pod["spec"]["containers"]
    container["image"] = pods.image
    container["resources"] = {"requests": {"memory": memory, "cpu": pods.cpu}, "limits": limits}
    metadata = {**pod["metadata"], "name": f"{name}-executor-asked", "namespace": pods.namespace}
    restart = {"restartPolicy": "Never"}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], **restart}}


def _why_not_admitted(name: str, runner: Runner, pods: Pods) -> str | None:
    status, answer = _ask("POST", f"{_path(pods)}?dryRun=All", executor_pod(name, runner, pods))
    if 400 <= status < 500 and status not in (408, 429):
        return str(answer.get("message", status))
    return None


def _path(pods: Pods) -> str:
    return f"/api/v1/namespaces/{pods.namespace}/pods"


def _ask(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """Return the status and the content of the API server's answer; 0 and {} if there is none."""
    headers = {
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
        "Content-Type": "application/json",
    }
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{api_server()}{path}", content, headers, method=method)
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S, context=trust) as answer:
            return int(answer.status), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _content(error.read())
    except (OSError, http.client.HTTPException) as error:
        log.warning(
            "the API server did not answer the request %s %s, by which the Verification's driver "
            "pod checks its executor pods; the Verification goes on without the answer: %s",
            method,
            path,
            error,
        )
        return 0, {}


def _content(answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
