"""What an append to the metadata log takes over the hand-written client and over the official one.

Two rings of `MetadataBatch` objects on one API server, each with connections of its own, in one
process; one append to the one, one to the other, in turns that change their order.  Everything but
the transport is this checkout's; `--before` is a checkout of the last commit with the hand-written
client (c502440).  The custom resources are the product's under another group, and are deleted at
the end.  Quote the ratios: machines differ and are noisy.

    git worktree add /tmp/before c502440
    KUBECONFIG=… python -m bench.metalog_transport --before /tmp/before --rounds 10 --appends 35
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import yaml
from kubernetes.aio.client import ApiClient
from tests.plimsoll_operator.metalog.writer import Writer

from plimsoll_operator.kube.errors import NotFound
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.official_transport import Access, OfficialTransport, find_access
from plimsoll_operator.kube.resources import CRDS, METADATA_BATCHES, Kind
from plimsoll_operator.metalog import kube_objects
from plimsoll_operator.metalog.kube_objects import Answer, Api, Place, TransportApi, Unanswered
from plimsoll_operator.metalog.kubernetes_log import RingLog, RingOptions

CRD_FILES = sorted((Path(__file__).parents[1] / "crds").glob("internal.*.yaml"))
GROUP = "metalog-bench.plimsoll.dev"
NAMESPACE = "default"
CONNECTIONS = 16
SLOTS = 512
WARM_UP = 20
POLL_S = 0.2
WAIT_S = 120
BATCHES = Kind(
    api_version=f"{GROUP}/v1alpha1", kind=METADATA_BATCHES.kind, plural=METADATA_BATCHES.plural
)


@dataclass(slots=True)
class Times:
    """One client's appends of one round, in milliseconds."""

    took: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """The processor time of this process only."""

    def at(self, hundredth: int) -> float:
        return statistics.quantiles(self.took, n=100, method="inclusive")[hundredth - 1]


class HandWritten:
    """The client of `--before`, behind this checkout's `Api`."""

    def __init__(self, module: ModuleType, api_client: ApiClient) -> None:
        self._client = api_client
        self._unanswered: type[Exception] = module.Unanswered
        self._api = module.HttpApi(api_client, RingOptions().attempt_timeout_ms)

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        try:
            answer: Answer = await self._api.request(method, path, params=params, body=body)
        except self._unanswered as error:
            raise Unanswered(str(error)) from error
        return answer

    async def close(self) -> None:
        await self._api.close()
        await self._client.close()


def module_of(checkout: Path) -> ModuleType:
    """Import that checkout's `metalog.kube_api`, which needs nothing else of it."""
    path = checkout / "operator" / "plimsoll_operator" / "metalog" / "kube_api.py"
    spec = importlib.util.spec_from_file_location("kube_api_before", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def custom_resources(kube: KubeApi) -> AsyncIterator[None]:
    """The metadata log's, under a group of the benchmark's own."""
    manifests = [
        yaml.safe_load(path.read_text().replace(kube_objects.GROUP, GROUP)) for path in CRD_FILES
    ]
    names = [manifest["metadata"]["name"] for manifest in manifests]
    made = [await kube.apply(CRDS, manifest) for manifest in manifests]
    try:
        for name in names:
            await until_established(kube, name)
        yield
    finally:
        for name, crd in zip(names, made, strict=True):
            # Cluster-scoped: the namespace is not part of its path.
            await kube.delete(CRDS, "", name, uid=crd["metadata"]["uid"])
        for name in names:
            await until_gone(kube, name)


async def until_established(kube: KubeApi, name: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            status = (await kube.get(CRDS, None, name)).get("status") or {}
            conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
            if conditions.get("Established") == "True":
                return
            await asyncio.sleep(POLL_S)


async def until_gone(kube: KubeApi, name: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await kube.get(CRDS, None, name)
            except NotFound:
                return
            await asyncio.sleep(POLL_S)


async def a_ring(kube: KubeApi, api: Api) -> Writer:
    """A new log, of which every slot is made."""
    place = Place(namespace=NAMESPACE, cluster_name="bench", cluster_id=uuid.uuid4(), group=GROUP)
    writer = Writer(RingLog(api, place, RingOptions(slots=SLOTS, make_pause_ms=0)))
    await writer.take_over()
    async with asyncio.timeout(WAIT_S):
        while True:
            listed = await kube.list(
                BATCHES, NAMESPACE, label_selector=place.selector, metadata_only=True
            )
            if len(listed.items) >= SLOTS:
                return writer
            await asyncio.sleep(POLL_S)


async def append(writer: Writer, records: int, times: Times) -> None:
    texts = [f"a cause of a usual length, {number}" for number in range(records)]
    processor_s, began_s = time.process_time(), time.perf_counter()
    await writer.put(*texts)
    times.took.append((time.perf_counter() - began_s) * 1000)
    times.processor.append((time.process_time() - processor_s) * 1000)


async def measure(
    writers: dict[str, Writer], records: int, arguments: argparse.Namespace
) -> dict[str, list[Times]]:
    """Measure both clients in turns; return each one's rounds."""
    for writer in writers.values():
        for _ in range(WARM_UP):
            await append(writer, records, Times())
    found: dict[str, list[Times]] = {name: [] for name in writers}
    for _ in range(arguments.rounds):
        for rounds in found.values():
            rounds.append(Times())
        for number in range(arguments.appends):
            for name in list(writers)[:: -1 if number % 2 else 1]:
                await append(writers[name], records, found[name][-1])
    return found


def show(records: int, found: dict[str, list[Times]]) -> None:
    """All appends of each client, and the ratios of their medians round by round."""
    print(f"\n{records} records: {'p50':>8}{'p99':>8}{'processor':>11}  (ms)")
    whole = {}
    for name, rounds in found.items():
        whole[name] = Times(
            took=[value for one in rounds for value in one.took],
            processor=[value for one in rounds for value in one.processor],
        )
        times = whole[name]
        processor = statistics.median(times.processor)
        print(f"  {name:8} {times.at(50):8.2f}{times.at(99):8.2f}{processor:11.2f}")
    pairs = list(zip(found["after"], found["before"], strict=True))
    for hundredth in (50, 99):
        ratios = [after.at(hundredth) / before.at(hundredth) for after, before in pairs]
        all_of = whole["after"].at(hundredth) / whole["before"].at(hundredth)
        print(
            f"  p{hundredth} after / before {all_of:.2f}; rounds: median "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
        )


async def run(arguments: argparse.Namespace, access: Access) -> None:
    module = module_of(arguments.before)
    transport = OfficialTransport(access)
    kube = KubeApi(transport)
    try:
        async with custom_resources(kube):
            for records in arguments.records:
                apis: dict[str, Api] = {
                    "before": HandWritten(module, ApiClient(access.configuration)),
                    "after": TransportApi(
                        OfficialTransport(access, connections=CONNECTIONS),
                        RingOptions().attempt_timeout_ms,
                    ),
                }
                writers = {name: await a_ring(kube, api) for name, api in apis.items()}
                show(records, await measure(writers, records, arguments))
                for writer in writers.values():
                    await writer.log.close()
    finally:
        await transport.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of c502440")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--appends", type=int, default=35, help="of each client in each round")
    parser.add_argument("--records", type=int, nargs="+", default=[1, 100])
    arguments = parser.parse_args()
    used = arguments.rounds * arguments.appends + WARM_UP
    if used > SLOTS * 3 // 4:
        parser.error(f"{used} appends do not fit into a ring of {SLOTS} without a snapshot")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    asyncio.run(run(arguments, asyncio.run(find_access())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
