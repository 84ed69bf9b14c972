"""The Kubernetes that end-to-end tests run on.

`cluster` (session) is a `Cluster` of dev/kubectl.py: the local node, started when it does not run,
or with USE_CURRENT_CONTEXT=1 whatever the current kubectl context names. The node is left up at the
end, so that repeating a test is quick; `make test` stops it when `make test` had started it.

`operator` (session) is the same with the chart installed from the working tree.

`namespace` (one per test) is a fresh namespace with restricted pod security, removed afterwards.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parent.parent.parent / "dev"
sys.path.insert(0, str(DEV))
SYSTEM = "plimsoll-system"

from kubectl import NODE, ROOT, Cluster, local_environment  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    if os.environ.get("USE_CURRENT_CONTEXT") == "1":
        return Cluster(dict(os.environ))
    subprocess.run([str(NODE), "up"], check=True, stdout=subprocess.DEVNULL)
    return Cluster(local_environment())


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> Cluster:
    """The chart, installed as `make demo` installs it (KEEP_RELEASE=1: as it is)."""
    if os.environ.get("KEEP_RELEASE") != "1":
        subprocess.run([str(ROOT / "dev" / "images.sh")], check=True)
        cluster.run(
            "helm", "upgrade", "--install", "plimsoll", str(ROOT / "helm" / "plimsoll"),
            "--namespace", SYSTEM, "--create-namespace",
            "--values", str(ROOT / "dev" / "values-local.yaml"),
            "--set", "verification.enabled=true", "--set", "images.spark=plimsoll/spark:dev",
            "--wait", "--timeout", "180s",
            timeout_s=240,
        )  # fmt: skip
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
