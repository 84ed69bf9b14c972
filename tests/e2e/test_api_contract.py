"""The contract of the API server in memory, on a real one: what is imitated is true.

Topics are of another group, so that no operator that is at work looks after them, and by another
name, so that `kubectl get topic` goes on meaning the operator's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from dev.kubectl import Cluster, wait_for
from msgspec.structs import replace
from tests.e2e.farewells import farewells_said
from tests.plimsoll_operator.kube.contract import *  # noqa: F403
from tests.plimsoll_operator.kube.contract import ContractServer

from plimsoll_operator.api import GROUP
from plimsoll_operator.kube.official_transport import OfficialTransport, from_kubeconfig
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    CORE_EVENTS,
    LEASES,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    TOPICS,
    Kind,
)

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
async def api(
    cluster: Cluster, shared_namespace: str, topics: Kind
) -> AsyncIterator[ContractServer]:
    """In a namespace in which the test before has left nothing."""
    namespace = shared_namespace
    wait_for("its account", lambda: cluster.get("serviceaccount", "default", namespace), 60)
    access = await from_kubeconfig(cluster.environment["KUBECONFIG"])
    transport = OfficialTransport(access, connections=4)
    made = ContractServer(transport=transport, namespace=namespace, topics=topics)
    yield made
    await emptied(made)
    await transport.close()
    await farewells_said()


async def emptied(api: ContractServer) -> None:
    """Removes what tests of the contract make, and waits until it is gone."""
    kinds = (api.topics, STATEFUL_SETS, SERVICES, LEASES, PODS, CORE_EVENTS, CONFIG_MAPS)
    for kind in kinds:
        # A controller makes that one anew.
        others = {"fieldSelector": "metadata.name!=kube-root-ca.crt"} if kind == CONFIG_MAPS else {}
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        await api.send("DELETE", kind.path(api.namespace), options, params=others)
    async with asyncio.timeout(60):
        for kind in kinds:
            names = await left(api, kind)
            while names:
                await asyncio.sleep(0.05)
                names = await left(api, kind)


async def left(api: ContractServer, kind: Kind) -> list[str]:
    found = await api.kube.list(kind, api.namespace)
    names = [str(item["metadata"]["name"]) for item in found.items]
    return [name for name in names if name != "kube-root-ca.crt"]
