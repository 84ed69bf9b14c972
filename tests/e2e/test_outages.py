"""Operators and API servers that are away, on a real Kubernetes: what serves on, and what is told.

Each test stops or kills what clusters of other tests need, too.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import Cluster, condition, is_true, wait_for
from tests.e2e.clients import consume, produce, write_during
from tests.e2e.release import SYSTEM
from tests.e2e.test_operator import ready, serving, values

__all__ = ("serving",)


def holder(cluster: Cluster, namespace: str) -> str | None:
    for lease in cluster.items("lease", namespace):
        return lease["spec"].get("holderIdentity") or None
    return None


def epoch(cluster: Cluster, namespace: str) -> int:
    found = cluster.get("logcluster", "main", namespace)
    assert found is not None
    return int(found["status"]["metadataLog"]["controllerEpoch"])


def test_standby_takes_over_from_killed_operator(operator: Cluster, serving: str):
    first, term = holder(operator, serving), epoch(operator, serving)
    assert first is not None
    operator.kubectl("delete", "pod", first, "-n", SYSTEM, "--grace-period=0", "--force")

    def other() -> str | None:
        now = holder(operator, serving)
        return now if now not in (None, first) else None

    wait_for("the standby to hold the Lease", other, 120)
    wait_for("its term to be shown", lambda: epoch(operator, serving) > term or None, 30)
    produce(operator, serving, "orders", values(100))
    assert consume(operator, serving, "orders", 15) == values(100)


@pytest.fixture
def stopped_operator(operator: Cluster) -> Iterator[None]:
    """No operator at all, until the test ends."""
    scale(operator, 0)
    try:
        yield
    finally:
        scale(operator, 2)


def scale(cluster: Cluster, replicas: int) -> None:
    cluster.kubectl("scale", "deployment/plimsoll", "-n", SYSTEM, f"--replicas={replicas}")
    selector = "app.kubernetes.io/component=operator"

    def settled() -> bool | None:
        pods = cluster.items("pods", SYSTEM, selector)
        good = [p for p in pods if is_true(p, "Ready")]
        return (len(pods) == len(good) == replicas) or None

    wait_for(f"{replicas} operators", settled, 120)


def test_operator_outage_stops_no_data(operator: Cluster, serving: str):
    scale(operator, 0)
    try:
        produce(operator, serving, "orders", values(100))
        assert consume(operator, serving, "orders", 15) == values(100)
        # A minute: far longer than any session, and what a rollout that went wrong may take.
        deadline = time.monotonic() + 60
        wait_for("the outage to last", lambda: time.monotonic() > deadline or None, 90)
    finally:
        scale(operator, 2)

    found = wait_for("the outage to be told", lambda: outage_told(operator, serving), 60)
    assert "No operator led this cluster for" in found["message"]
    ready(operator, serving, "topic", "orders", 60)


def test_namespace_terminates_without_the_operator(
    operator: Cluster, serving: str, request: pytest.FixtureRequest
):
    request.getfixturevalue("stopped_operator")
    began = time.monotonic()
    operator.kubectl("delete", "namespace", serving, "--wait=true", timeout_s=150)
    assert time.monotonic() - began < 60
    operator.make_namespace(serving)


@contextmanager
def hung_api_server(cluster: Cluster) -> Iterator[None]:
    """Within: the API server of the local node answers nothing."""
    pid_file = Path(cluster.environment["KUBECONFIG"]).parents[1] / "run" / "apiserver.pid"
    if os.environ.get("USE_CURRENT_CONTEXT") == "1" or not pid_file.exists():
        pytest.skip("only the local node's API server can be stopped and continued")
    pid = int(pid_file.read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def outage_told(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    found = condition(cluster.get("logcluster", "main", namespace), "ControllerAvailable")
    return found if found and found["reason"] == "RecoveredAfterOutage" else None


def test_hung_api_server_stops_no_data(operator: Cluster, serving: str):
    term = epoch(operator, serving)
    worst_ms = write_during(
        operator, serving, "orders", partitions=15, seconds=20, mishap=hung_api_server
    )
    assert worst_ms < 2_000, f"a write waited {worst_ms:.0f} ms"
    found = wait_for("the outage to be told", lambda: outage_told(operator, serving), 60)
    assert "No operator led this cluster for" in found["message"]
    wait_for("the new term to be shown", lambda: epoch(operator, serving) > term or None, 30)
    ready(operator, serving, "topic", "orders", 60)
