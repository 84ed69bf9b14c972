"""What the take-over of a cluster takes: requests, objects read, time, by the API server's latency.

    nice python -m bench.take_over --partitions 10000 --latency 0 100 1000

A controller writes a cluster of 30 brokers to its metadata log, and elections until the log holds
`--batches` batches since its last snapshot. Then other controllers take over from each other: a
process that reads the log for the first time, and one that led before. `--latency`: milliseconds by
which every answer is later than the API server's. The API server and etcd are the bench's own
(`private_kubernetes`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from bench.marked import write
from bench.private_kubernetes import PrivateKubernetes, private_kubernetes
from tests.plimsoll_operator.builders import CLUSTER_UID, registered

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.records import (
    BrokerUnfenced,
    MembersChanged,
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicCreated,
)
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Done
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_operator.kube.official_transport import OfficialTransport
from plimsoll_operator.metalog.kubernetes_log import KubernetesLog

BROKERS = 30
PARTITIONS_PER_TOPIC = 50
NAMESPACE = "default"
WAIT_S = 300
PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
STILL = Settings(session_timeout_ms=3_600_000)
"""No broker of the bench sends heartbeats."""


@dataclass(slots=True)
class Requests:
    """The requests of one take-over."""

    late_ms: int = 0
    count: Counter[str] = field(default_factory=Counter)
    objects: int = 0
    received: int = 0


class Counted(OfficialTransport):
    """Counts the requests, and hands each answer on later."""

    def __init__(self, kubernetes: PrivateKubernetes, requests: Requests) -> None:
        super().__init__(kubernetes.access(), connections=16)
        self.requests = requests

    async def send(self, request: HttpRequest) -> HttpResponse:
        answer = await super().send(request)
        named = request.path.count("/") > 6
        verb = {"GET": "get" if named else "list", "PUT": "put"}.get(request.method, "post")
        self.requests.count[verb] += 1
        self.requests.received += len(answer.body)
        if verb == "list":
            self.requests.objects += len(json.loads(answer.body).get("items", ()))
        elif verb == "get":
            self.requests.objects += 1
        await asyncio.sleep(self.requests.late_ms / 1000)
        return answer


def a_controller(kubernetes: PrivateKubernetes, requests: Requests, name: str) -> Controller:
    cluster_id = UUID(CLUSTER_UID)
    log = KubernetesLog(Counted(kubernetes, requests), NAMESPACE, "main", cluster_id)
    return Controller(cluster_id=cluster_id, name="main", log=log, settings=STILL, identity=name)


@asynccontextmanager
async def leading(controller: Controller) -> AsyncIterator[None]:
    running = asyncio.create_task(controller.run())
    try:
        async with asyncio.timeout(WAIT_S):
            await controller.wait_active()
        yield
    finally:
        await controller.stop()
        await asyncio.wait_for(running, WAIT_S)


async def commit(controller: Controller, *records: Record) -> None:
    answer = await controller.commit_own(records)
    assert isinstance(answer, Done), answer


async def build(controller: Controller, partitions: int) -> None:
    brokers = [BrokerId(number) for number in range(BROKERS)]
    await commit(controller, MembersChanged(cause="declared", broker_ids=tuple(brokers)))
    for broker in brokers:
        await commit(controller, registered(broker))
        epoch = controller.image.brokers[broker].broker_epoch
        unfenced = BrokerUnfenced(cause="caught-up", broker_id=broker, broker_epoch=epoch)
        await commit(controller, unfenced)
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic_id = UUID(int=number + 1)
        rows = tuple(
            tuple(brokers[(number + index + step) % BROKERS] for step in range(3))
            for index in range(PARTITIONS_PER_TOPIC)
        )
        await commit(
            controller,
            TopicCreated(
                cause="created",
                topic_id=topic_id,
                name=f"topic-{number}",
                replication_factor=3,
                min_isr=2,
            ),
            PartitionsCreated(cause="created", topic_id=topic_id, first=0, replicas=rows, isr=rows),
        )


async def elect(controller: Controller, number: int) -> None:
    """One batch as of an election of a topic's leaders: 50 partitions get another epoch."""
    topic_id = UUID(int=number % len(controller.image.topics) + 1)
    last = PARTITIONS_PER_TOPIC - 1
    changed = PartitionsChanged(
        cause="elected", topic_id=topic_id, ranges=((0, last),), leader_epoch_step=1
    )
    await commit(controller, changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    seconds: float
    processor_s: float
    requests: Requests


async def take_over(controller: Controller, requests: Requests, late_ms: int) -> Taken:
    requests.count.clear()
    requests.objects, requests.received, requests.late_ms = 0, 0, late_ms
    began, processor = time.monotonic(), time.process_time()
    async with leading(controller):
        seconds, used = time.monotonic() - began, time.process_time() - processor
        counted = Requests(
            count=Counter(requests.count), objects=requests.objects, received=requests.received
        )
        requests.late_ms = 0
    return Taken(seconds=seconds, processor_s=used, requests=counted)


def row(what: str, late_ms: int, rounds: list[Taken]) -> str:
    seconds = [one.seconds for one in rounds]
    last = rounds[-1]
    text = (
        f"| {what} | {_latency(late_ms)} | {statistics.median(seconds):.2f} ({min(seconds):.2f} – "
        f"{max(seconds):.2f}) | {statistics.median(one.processor_s for one in rounds):.2f} "
        f"| {last.requests.count.total()} | {last.requests.objects} "
        f"| {last.requests.received / 1e6:.2f} |"
    )
    print(text, flush=True)
    return text


def _latency(late_ms: int) -> str:
    return f"{late_ms} ms more" if late_ms else "its own"


async def run(arguments: argparse.Namespace) -> list[str]:
    load, lines = os.getloadavg()[0], list[str]()
    async with private_kubernetes() as kubernetes:
        first, second = Requests(), Requests()
        one, two = a_controller(kubernetes, first, "one"), a_controller(kubernetes, second, "two")
        async with leading(one):
            await build(one, arguments.partitions)
            await one.snapshotter.take()
            for number in range(arguments.batches):
                await elect(one, number)
            image_bytes = await asyncio.to_thread(lambda: len(encode_image(one.image)))
        stored = kubernetes.etcd_metrics()["etcd_mvcc_db_total_size_in_use_in_bytes"]
        lines = [
            f"`python -m bench.take_over --write`, {os.cpu_count()} processors, load {load:.0f}: "
            f"{len(one.image.partitions):,} partitions, an image of {image_bytes / 1e6:.1f} MB, "
            f"{arguments.batches} batches since the last snapshot, {stored / 1e6:.1f} MB in etcd.",
            "",
            "| take-over | API server's latency | s: median (min – max) | processor, s "
            "| requests | objects read | MB |",
            "|---|---|---|---|---|---|---|",
        ]
        print("\n".join(lines), flush=True)
        for late_ms in arguments.latency:
            cold, again = [], []
            for _ in range(arguments.rounds):
                requests = Requests()
                fresh = a_controller(kubernetes, requests, "fresh")
                cold.append(await take_over(fresh, requests, late_ms))
                await fresh._log.close()
            lines.append(row("first of a process", late_ms, cold))
            for _ in range(arguments.rounds):
                await take_over(two, second, 0)
                again.append(await take_over(one, first, late_ms))
            lines.append(row("by a process that knows the log", late_ms, again))
        await one._log.close()
        await two._log.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=400, help="since the last snapshot")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=int, nargs="+", default=[0, 100, 1000])
    parser.add_argument("--write", action="store_true", help="put the table into docs/sizing.md")
    arguments = parser.parse_args()
    lines = asyncio.run(run(arguments))
    if arguments.write:
        write("take-over", lines, PAGE)


if __name__ == "__main__":
    main()
