"""The metadata log's contract, on a real API server.

The CustomResourceDefinitions are the product's under another group, so that the test never meets a
log that is in use.
"""

import asyncio
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from dev.kubectl import Cluster
from tests.e2e.farewells import farewells_said
from tests.plimsoll_operator.metalog.fake_api import Request
from tests.plimsoll_operator.metalog.shells import PLACE, SLOTS, CrashingApi, Shell
from tests.plimsoll_operator.metalog.test_contract import *  # noqa: F403
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.kube.official_transport import OfficialTransport, from_kubeconfig
from plimsoll_operator.metalog import kube_objects
from plimsoll_operator.metalog.interface import MetadataLog
from plimsoll_operator.metalog.kube_objects import Answer, TransportApi
from plimsoll_operator.metalog.kube_snapshots import SnapshotStore
from plimsoll_operator.metalog.kubernetes_log import RingLog, RingOptions

CRDS = Path(__file__).resolve().parent.parent.parent / "crds"
TEST_GROUP = "metalog-test.plimsoll.dev"
OPTIONS = RingOptions(slots=SLOTS, poll_ms=20)


class _SteppedApi:
    """A real API server, with the test's hand on each request."""

    def __init__(self, api: TransportApi, shell: "NodeShell") -> None:
        self._api, self._shell = api, shell

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        request = Request(method=method, path=path, params=dict(params or {}), body=body)
        if self._shell.crashing is not None:
            return await self._shell.crashing.handle(request)
        return await self.send(request)

    async def send(self, request: Request) -> Answer:
        return await self._api.request(
            request.method, request.path, params=request.params, body=request.body
        )

    async def close(self) -> None:
        await self._api.close()


class NodeShell:
    crash_stride = 5

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._apis: list[TransportApi] = []
        self._logs: list[RingLog] = []
        self._late: list[Request] = []
        self.place = replace(PLACE, namespace=namespace, group=TEST_GROUP)
        self.crashing: CrashingApi | None = None

    async def start(self) -> None:
        self._access = await from_kubeconfig(
            self._cluster.environment.get("KUBECONFIG", "~/.kube/config")
        )
        await self.reset()

    def api(self) -> _SteppedApi:
        transport = OfficialTransport(self._access, connections=16)
        self._apis.append(TransportApi(transport, OPTIONS.attempt_timeout_ms))
        return _SteppedApi(self._apis[-1], self)

    def log(self, options: RingOptions = OPTIONS) -> MetadataLog:
        self._logs.append(RingLog(self.api(), self.place, options))
        return self._logs[-1]

    async def snapshot_names(self) -> list[str]:
        api = self.api()
        reader = kube_objects.ObjectReader(
            api=api,
            place=self.place,
            backoff_ms=50,
            bulk=asyncio.Semaphore(kube_objects.AT_ONCE),
        )
        store = SnapshotStore(reader)
        names = sorted(index.name for index in await store.indexes())
        await api.close()
        return names

    async def tear_snapshot(self, name: str) -> None:
        api = self.api()
        path = self.place.path(kube_objects.SNAPSHOTS, f"{name}-0")
        assert (await api.request("DELETE", path)).status == 200
        await api.close()

    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        crashing = CrashingApi(step, how, self.api().send, self._late)
        patch.setattr(self, "crashing", crashing)

    async def land(self) -> None:
        api = self.api()
        while self._late:
            await api.send(self._late.pop(0))
        await api.close()

    async def reset(self) -> None:
        await self._stop_logs()
        self._late.clear()
        self.place = replace(self.place, cluster_id=uuid.uuid4())

    async def stop(self) -> None:
        await self._stop_logs()
        await farewells_said()

    async def _stop_logs(self) -> None:
        while self._logs:
            await self._logs.pop().close()
        while self._apis:
            await self._apis.pop().close()


@pytest.fixture(scope="module")
def metalog_crds(cluster: Cluster) -> Iterator[None]:
    names = []
    for path in sorted(CRDS.glob("internal.*.yaml")):
        manifest = yaml.safe_load(path.read_text().replace(kube_objects.GROUP, TEST_GROUP))
        names.append(manifest["metadata"]["name"])
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    for name in names:
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{name}")
    yield
    cluster.kubectl("delete", "crd", *names, "--timeout=60s")


@pytest.fixture
async def shell(
    cluster: Cluster, shared_namespace: str, metalog_crds: None
) -> AsyncIterator[Shell]:
    """Each with a log of its own: all that is asked for is selected by the cluster's id."""
    made = NodeShell(cluster, shared_namespace)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def mortal(shell: Shell) -> Shell:
    return shell


async def test_appends_on_a_real_api_server_take_milliseconds(shell: NodeShell) -> None:
    """Printed, not promised: the figure depends on the machine; the ring's full size is used."""
    writer = Writer(shell.log(RingOptions()))
    began = time.monotonic()
    await writer.take_over()
    print(f"\nfirst take-over of a new log: {time.monotonic() - began:.2f} s")
    for records in (1, 10, 100, 1000):
        times = []
        for _ in range(50):
            began = time.monotonic()
            await writer.put(*(f"a cause of a usual length, {n}" for n in range(records)))
            times.append((time.monotonic() - began) * 1000)
        cuts = statistics.quantiles(times, n=100)
        print(f"{records} records: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms")
    began = time.monotonic()
    opened = await shell.log(RingOptions()).open()
    print(f"opening with {len(opened.batches)} batches: {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    await writer.snapshot()
    print(f"snapshot of {len(str(writer.image))} bytes: {time.monotonic() - began:.2f} s")
    assert image_of(await shell.log(RingOptions()).open()) == writer.image
