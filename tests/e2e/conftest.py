"""The Kubernetes that end-to-end tests run on.

`cluster` (session) is a `Cluster` of dev/kubectl.py: the local node, started when it does not run,
or with USE_CURRENT_CONTEXT=1 whatever the current kubectl context names. The node is left up at the
end, so that repeating a test is quick; `make test` stops it when `make test` had started it.

`operator` (session) is the same with the chart installed from the working tree.

`namespace` (one per test) is a fresh namespace with restricted pod security, removed afterwards.
To remove one takes two hundred requests, a list and a deletion of each kind there is: who needs
neither its emptiness nor pods takes `shared_namespace` (one per module).
"""

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dev.kubectl import RESTRICTED, Cluster, CommandFailed
from tests.e2e import release
from tests.kafka_python import LEFT_SOCKETS, left_sockets

LOG_LINES = 60
"""Of a container that ended: enough for a traceback."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(LEFT_SOCKETS)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Before pytest itself collects what is left, when no test's filter of warnings holds."""
    with left_sockets():
        pass


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return release.reached()


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> Cluster:
    """The chart, installed as `make demo-kubernetes` installs it (KEEP_RELEASE=1: as it is)."""
    release.install(cluster)
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with _a_namespace(cluster) as name:
        yield name


@pytest.fixture(scope="module")
def shared_namespace(cluster: Cluster) -> Iterator[str]:
    with _a_namespace(cluster) as name:
        yield name


@contextmanager
def _a_namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.make_namespace(name, RESTRICTED)
    yield name
    cluster.delete_namespace(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Beside a failure, why containers ended: their logs go with the namespace."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    drill = getattr(item, "funcargs", {}).get("drill")
    cluster = cluster or getattr(drill, "cluster", None)
    if report.failed and isinstance(cluster, Cluster):
        report.sections.append(("containers that ended", "\n".join(_ended(cluster))))
    return report


def _ended(cluster: Cluster) -> Iterator[str]:
    """A paragraph for each container of ours that was restarted, with the end of its log."""
    try:
        pods = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
    except (CommandFailed, subprocess.TimeoutExpired, ValueError) as error:
        yield f"the API server does not say: {error}"
        return
    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        for container in pod["status"].get("containerStatuses") or ():
            if not container["restartCount"] or namespace == "kube-system":
                continue
            yield f"{namespace}/{name}, {container['name']}: {container.get('lastState')}"
            try:
                yield cluster.kubectl(
                    "logs", "--previous", name, "-n", namespace, "-c", container["name"],
                    f"--tail={LOG_LINES}",
                )  # fmt: skip
            except (CommandFailed, subprocess.TimeoutExpired) as error:
                yield f"its log is gone: {error}"
