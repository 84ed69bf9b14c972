"""What brokers, topics, partitions and clusters cost one operator and etcd while nothing happens.

    nice python -m bench.sizes --clusters 10 50 --topics 500 2000

Each row is an operator process and an API server with an etcd of their own (`private_kubernetes`).
Brokers are simulated: they register, send heartbeats and follow the metadata over real connections,
and hold no data. After `--settle` seconds without a change of the metadata, `--seconds` are
measured: the operator's processor time and memory, its requests, and the writes and bytes of etcd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import yaml
from bench.marked import write
from bench.peers.processor_time import used_s
from bench.private_kubernetes import TOKEN, PrivateKubernetes, free_ports, private_kubernetes

from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    Answer,
    BrokerRequest,
    Heartbeat,
    LogPosition,
    RegisterBroker,
    Registered,
)
from plimsoll_core.release import RELEASE
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS
from plimsoll_wire import control

NAMESPACE = "default"
PAGE_OF_SIZES = Path(__file__).parents[1] / "docs" / "sizing.md"
HEARTBEAT_S = 0.5
RETRY_S = 0.5
WAIT_S = 300
PAGE = os.sysconf("SC_PAGE_SIZE")


class Broker:
    """A simulated broker: what it knows of the metadata log is its end alone."""

    def __init__(self, cluster_id: UUID, number: int, port: int) -> None:
        self.cluster_id, self.id, self.port = cluster_id, BrokerId(number), port
        self.offset, self.nonce = MetadataOffset(0), None
        self.controller_epoch = ControllerEpoch(0)
        self.unfenced = False

    async def run(self) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, AssertionError):
                await self._live()
            await asyncio.sleep(RETRY_S)

    async def _live(self) -> None:
        commands = await asyncio.open_connection("127.0.0.1", self.port)
        stream = await asyncio.open_connection("127.0.0.1", self.port)
        following = asyncio.create_task(self._follow(*stream))
        try:
            registered = await self._ask(*commands, self._registration())
            assert isinstance(registered, Registered), registered
            while not following.done():
                beat = self._heartbeat(registered.broker_epoch)
                answer = await self._ask(*commands, beat)
                self.unfenced = not getattr(answer, "is_fenced", True)
                await asyncio.sleep(HEARTBEAT_S)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            for _, writer in (commands, stream):
                writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: BrokerRequest
    ) -> Answer:
        command = control.Command(
            cluster_id=self.cluster_id, controller_epoch=self.controller_epoch, request=request
        )
        writer.write(control.encode_request(1, "bench", command))
        reply = control.decode_command_reply(await _frame(reader))
        self.controller_epoch = max(self.controller_epoch, reply.controller_epoch)
        return reply.answer

    async def _follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            fetch = FetchMetadata(
                cluster_id=self.cluster_id,
                broker_id=self.id,
                offset=self.offset,
                nonce=self.nonce,
            )
            writer.write(control.encode_request(2, "bench", fetch))
            reply = control.decode_metadata_reply(await _frame(reader))
            if (update := reply.update) is None:
                await asyncio.sleep(RETRY_S)
                continue
            if update.snapshot is not None:
                self.offset, self.nonce = update.snapshot_end, update.snapshot_nonce
            for batch in update.batches:
                self.offset = MetadataOffset(batch.base_offset + batch.record_count)
                self.nonce = batch.nonce

    def _position(self) -> LogPosition:
        return LogPosition(
            applied_offset=self.offset, nonce=self.nonce, controller_epoch=self.controller_epoch
        )

    def _registration(self) -> RegisterBroker:
        return RegisterBroker(
            cluster_id=self.cluster_id,
            broker_id=self.id,
            incarnation_id=uuid4(),
            previous_broker_epoch=None,
            directory_ids=(uuid4(),),
            endpoints=(Endpoint(name="PLAINTEXT", host="127.0.0.1", port=1),),
            volume_is_empty=True,
            metadata_versions=(1, 1),
            release=RELEASE,
        )

    def _heartbeat(self, epoch: BrokerEpoch) -> Heartbeat:
        return Heartbeat(
            broker_id=self.id,
            broker_epoch=epoch,
            position=self._position(),
            metadata_versions=(1, 1),
            release=RELEASE,
            figures=BrokerFigures(partitions_max=100_000),
        )


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One row: `clusters` of `brokers` each; `topics` with `partitions` each in the first one."""

    clusters: int = 1
    brokers: int = 3
    topics: int = 0
    partitions: int = 1


class Operator:
    """The operator process, with what it used up to now."""

    def __init__(self, kubernetes: PrivateKubernetes) -> None:
        directory = kubernetes.directory
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(kubernetes.port)))
        ports = free_ports(3)
        self.port = ports[0]
        names = ("CONTROLLER_PORT", "METRICS_PORT", "HEALTH_PORT")
        stated = {f"PLIMSOLL_{n}": str(port) for n, port in zip(names, ports, strict=True)}
        environment = (
            os.environ
            | stated
            | {
                "KUBECONFIG": str(kubeconfig),
                "PLIMSOLL_BROKER_IMAGE": "bench",
                "PLIMSOLL_CONTROLLERS": f"127.0.0.1:{self.port}",
                "PLIMSOLL_WATCH_NAMESPACES": NAMESPACE,
                "POD_NAMESPACE": NAMESPACE,
                "POD_NAME": "bench",
            }
        )
        self.log = directory / "operator.log"
        with self.log.open("wb") as log:
            command = (sys.executable, "-m", "plimsoll_operator")
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def processor_s(self) -> float:
        return used_s(self._process.pid)

    def memory(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * PAGE

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _kubeconfig(port: int) -> dict[str, Any]:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": server}],
        "users": [{"name": "bench", "user": {"token": TOKEN}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


@asynccontextmanager
async def running(
    size: Size, kubernetes: PrivateKubernetes
) -> AsyncIterator[tuple[Operator, list[Broker]]]:
    """The operator with its clusters and simulated brokers, once all topics are placed."""
    transport = kubernetes.transport()
    kube = KubeApi(transport)
    operator = Operator(kubernetes)
    brokers: list[Broker] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        for number in range(size.clusters):
            created = await _a_cluster(kube, f"c{number}", size.brokers)
            cluster_id = UUID(created["metadata"]["uid"])
            brokers += [Broker(cluster_id, n, operator.port) for n in range(size.brokers)]
        tasks = [asyncio.create_task(broker.run()) for broker in brokers]
        async with asyncio.timeout(WAIT_S):
            while not all(broker.unfenced for broker in brokers):  # noqa: ASYNC110
                await asyncio.sleep(RETRY_S)
            for number in range(size.topics):
                await kube.create(TOPICS, _a_topic(number, size.partitions))
            while await _topics_ready(kube) < size.topics:  # noqa: ASYNC110
                await asyncio.sleep(RETRY_S)
        yield operator, brokers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        operator.stop()
        await transport.close()


async def _a_cluster(kube: KubeApi, name: str, brokers: int) -> dict[str, Any]:
    spec = {
        "brokers": {"count": brokers},
        "storage": {"size": "1Gi"},
        "certificates": {"internal": {"mode": "Off"}},
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return await kube.create(LOG_CLUSTERS, LOG_CLUSTERS.manifest(meta, spec=spec))


def _a_topic(number: int, partitions: int) -> dict[str, Any]:
    meta = {"name": f"t{number}", "namespace": NAMESPACE}
    spec = {"clusterRef": {"name": "c0"}, "partitions": partitions, "replicationFactor": 3}
    return TOPICS.manifest(meta, spec=spec)


async def _topics_ready(kube: KubeApi) -> int:
    listed = await kube.list(TOPICS, NAMESPACE)
    return sum((body.get("status") or {}).get("topicId") is not None for body in listed.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    processor_s: float
    writes: float


def used(operator: Operator, kubernetes: PrivateKubernetes) -> Used:
    puts = kubernetes.etcd_metrics()["etcd_mvcc_put_total"]
    return Used(processor_s=operator.processor_s(), writes=puts)


async def measure(size: Size, arguments: argparse.Namespace) -> str:
    async with private_kubernetes() as kubernetes:
        before = kubernetes.etcd_metrics()["etcd_mvcc_db_total_size_in_use_in_bytes"]
        began = time.monotonic()
        async with running(size, kubernetes) as (operator, brokers):
            ready_s = time.monotonic() - began
            ends = _ends(brokers)
            await asyncio.sleep(arguments.settle)
            while ends != (ends := _ends(brokers)):  # noqa: ASYNC110
                await asyncio.sleep(arguments.settle)
            written = await kubernetes.writes()
            first, at = used(operator, kubernetes), time.monotonic()
            await asyncio.sleep(arguments.seconds)
            last, took = used(operator, kubernetes), time.monotonic() - at
            written = await kubernetes.writes() - written
            stored = kubernetes.etcd_metrics()["etcd_mvcc_db_total_size_in_use_in_bytes"]
            processors = (last.processor_s - first.processor_s) / took
            row = (
                f"| {size.clusters} | {size.brokers} | {size.topics} | "
                f"{size.topics * size.partitions} | {ready_s:.0f} | {processors:.3f} | "
                f"{operator.memory() / 2**20:.0f} | {(last.writes - first.writes) / took:.1f} | "
                f"{(stored - before) / 1e6:.1f} |"
            )
            print(row, flush=True)
            told = (f"{name} {count / took:.1f}" for name, count in written.most_common(4))
            print(f"  requests to write, a second: {', '.join(told)}", flush=True)
            if arguments.log:
                print(operator.log.read_text()[-arguments.log :])
            return row


def _ends(brokers: list[Broker]) -> list[int]:
    return [broker.offset for broker in brokers]


def sizes(arguments: argparse.Namespace) -> list[Size]:
    found = [Size(clusters=number) for number in arguments.clusters]
    found += [Size(topics=number) for number in arguments.topics]
    found += [Size(topics=number // 50, partitions=50) for number in arguments.partitions]
    return found + [Size(brokers=number) for number in arguments.brokers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--topics", type=int, nargs="*", default=[500])
    parser.add_argument("--partitions", type=int, nargs="*", default=[10_000])
    parser.add_argument("--brokers", type=int, nargs="*", default=[100])
    parser.add_argument("--settle", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--log", type=int, default=0, help="characters of the operator's log")
    parser.add_argument("--write", action="store_true", help="put the table into docs/sizing.md")
    arguments = parser.parse_args()
    load, processors = os.getloadavg()[0], os.cpu_count()
    lines = [
        f"`python -m bench.sizes --write`, {processors} processors, load {load:.0f}, without pods:",
        "",
        "| clusters | brokers each | topics | partitions | ready, s | processors | memory, MiB "
        "| etcd writes/s | etcd, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    lines += [asyncio.run(measure(size, arguments)) for size in sizes(arguments)]
    if arguments.write:
        write("sizes", lines, PAGE_OF_SIZES)


if __name__ == "__main__":
    main()
