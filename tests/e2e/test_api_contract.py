"""The contract of the API server in memory, on a real one: what is imitated is true.

Topics are of another group, so that no operator that is at work looks after them, and by another
name, so that `kubectl get topic` goes on meaning the operator's.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from dev.kubectl import Cluster, wait_for
from msgspec.structs import replace
from tests.plimsoll_operator.kube.contract import *  # noqa: F403
from tests.plimsoll_operator.kube.contract import ContractServer

from plimsoll_operator.api import GROUP
from plimsoll_operator.kube.access import from_kubeconfig
from plimsoll_operator.kube.official import OfficialTransport
from plimsoll_operator.kube.resources import TOPICS, Kind

CRD = Path(__file__).resolve().parent.parent.parent / "crds" / f"{GROUP}_topics.yaml"
TEST_GROUP = f"contract-test.{GROUP}"
PLURAL = "contracttopics"


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> Iterator[Kind]:
    name = f"{PLURAL}.{TEST_GROUP}"
    crd = yaml.safe_load(CRD.read_text().replace(GROUP, TEST_GROUP))
    crd["metadata"]["name"] = name
    kinds = {one: crd["spec"]["names"][one] for one in ("kind", "listKind")}
    crd["spec"]["names"] = {**kinds, "plural": PLURAL, "singular": PLURAL.removesuffix("s")}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(crd))
    try:
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
        version = TOPICS.api_version.replace(GROUP, TEST_GROUP)
        yield replace(TOPICS, api_version=version, plural=PLURAL)
    finally:
        cluster.kubectl("delete", "crd", name, "--timeout=60s")


@pytest.fixture
async def api(cluster: Cluster, namespace: str, topics: Kind) -> AsyncIterator[ContractServer]:
    wait_for("its account", lambda: cluster.get("serviceaccount", "default", namespace), 60)
    access = await from_kubeconfig(cluster.environment["KUBECONFIG"])
    transport = OfficialTransport(access, connections=4)
    yield ContractServer(transport=transport, namespace=namespace, topics=topics)
    await transport.close()
