"""The Kubernetes that end-to-end tests run on.

`cluster` (session) is a `Cluster` of dev/kubectl.py: the local node, started when it does not run,
or with USE_CURRENT_CONTEXT=1 whatever the current kubectl context names. The node is left up at the
end, so that repeating a test is quick; `make test` stops it when `make test` had started it.

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

from kubectl import NODE, Cluster, local_environment  # noqa: E402


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


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
