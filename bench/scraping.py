"""What it costs to scrape a cluster: time of an answer, processor time, throughput of producers.

    python -m bench.scraping [--partitions 1000] [--rounds 3] [--seconds 10] [--write]

A local cluster of three brokers, each with 1,000 replicas.  One thread writes records of 1 KB with
acks=all as fast as they are acknowledged, in turns alone and beside a scraper that reads /metrics
of all three brokers and of the operator each second (a Prometheus reads each every 15 or 30 s).
Then an operator that leads 100,000 partitions renders its metrics in this process, on asyncio's own
loop: the longest turn is told in processor time.  It ends with an error when a budget is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from bench.marked import write
from confluent_kafka.admin import NewTopic
from tests.holding import nothing_holds_the_loop
from tests.integration.local_cluster import WAIT_S, LocalCluster, a_producer
from tests.plimsoll_operator.shown import Shows, leading, many, metrics_of

LIVE, REST = "live", "rest"
RECORD = bytes(1_000)
EVERY_S = 1.0
USUAL_S = 15.0
"""The usual interval of Prometheus."""
ANSWER_MS_MAX = 50.0
SHARE_MAX = 0.01
HELD_MS_MAX = 50.0
OPERATORS_PARTITIONS = 100_000
ALONE, BESIDE = "alone", "scraped each second"
MARK = "scraping"
"""The mark of its figures in docs/benchmarks.md."""


@dataclass(slots=True)
class Scrapes:
    """The scrapes of one process: time, size and processor time of its answers."""

    url: str
    pid: int
    took_ms: list[float] = field(default_factory=list)
    size: int = 0
    cpu_ms: float = 0.0
    """The average of one scrape, less the idle load."""

    def once(self) -> None:
        began_s = time.perf_counter()
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            self.size = len(answer.read())
        self.took_ms.append((time.perf_counter() - began_s) * 1e3)

    def measure(self, times: int = 40) -> None:
        """Less what the process uses in as much time without."""
        before, began_s = self._cpu_s(), time.monotonic()
        for _ in range(times):
            self.once()
        spent_s, lasted_s = self._cpu_s() - before, time.monotonic() - began_s
        before = self._cpu_s()
        time.sleep(lasted_s)
        self.cpu_ms = max(0.0, spent_s - (self._cpu_s() - before)) / times * 1e3

    def _cpu_s(self) -> float:
        used = psutil.Process(self.pid).cpu_times()
        return float(used.user + used.system)


def targets(cluster: LocalCluster) -> dict[str, Scrapes]:
    pids = cluster.pids
    urls: dict[str, str] = cluster.ready["metrics"]
    return {
        name if name == "controller" else f"broker {name}": Scrapes(url, pids[name])
        for name, url in sorted(urls.items())
    }


@contextmanager
def scraped(found: dict[str, Scrapes]) -> Iterator[None]:
    """Another process reads all of them in turn, each second: here it would take the producer's
    turns."""
    urls = [scrapes.url for scrapes in found.values()]
    reader = get_context("spawn").Process(target=scrape_forever, args=(urls,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        reader.terminate()
        reader.join()


def scrape_forever(urls: list[str]) -> None:
    while True:
        time.sleep(EVERY_S)
        for url in urls:
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()


def written(cluster: LocalCluster, seconds: float) -> float:
    """Records that were acknowledged, a second."""
    producer, acked = a_producer(cluster.bootstrap), [0]

    def told(error: object, _: object) -> None:
        assert error is None, error
        acked[0] += 1

    began_s = time.monotonic()
    while time.monotonic() - began_s < seconds:
        try:
            producer.produce(LIVE, RECORD, on_delivery=told)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    rate = acked[0] / (time.monotonic() - began_s)
    assert producer.flush(WAIT_S) == 0
    return rate


def in_turns(cluster: LocalCluster, rounds: int, seconds: float) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    written(cluster, 3)
    for _ in range(rounds):
        rates[ALONE].append(written(cluster, seconds))
        with scraped(targets(cluster)):
            rates[BESIDE].append(written(cluster, seconds))
        told = {name: [round(rate) for rate in found] for name, found in rates.items()}
        print(told, flush=True)
    return rates


def prepare(cluster: LocalCluster, partitions: int) -> None:
    three = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    topics = [
        NewTopic(LIVE, 3, replica_assignment=three),
        NewTopic(REST, partitions - 3, replication_factor=3),
    ]
    admin = cluster.admin()
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    cluster.wait_isr(LIVE, 3)
    cluster.wait_isr(REST, 3)


@dataclass(frozen=True, slots=True)
class OfOperator:
    """One scrape of an operator that leads very many partitions, in processor time."""

    held_ms: float
    counting_ms: float
    rendering_ms: float


async def of_operator() -> OfOperator:
    shows = Shows(main={0, 1, 2})
    shows.led = [(("kafka", "main"), leading(many(OPERATORS_PARTITIONS)))]
    metrics = metrics_of(shows)
    with nothing_holds_the_loop(held_s_max=1e9) as longest:
        began_s = time.thread_time()
        await metrics.prepare()
        counted_s = time.thread_time()
        await asyncio.sleep(0)
        rendering_s = time.thread_time()
        metrics.render()
        rendered_s = time.thread_time()
        await asyncio.sleep(0)
    return OfOperator(
        max(longest.cpu_s, rendered_s - rendering_s) * 1e3,
        (counted_s - began_s) * 1e3,
        (rendered_s - rendering_s) * 1e3,
    )


def table(
    found: dict[str, Scrapes], rates: dict[str, list[float]], operator: OfOperator
) -> list[str]:
    lines = [
        "| /metrics of | an answer, ms: median (max) | KB | processor time of one, ms |",
        "|---|---|---|---|",
    ]
    for name, one in found.items():
        took = f"{statistics.median(one.took_ms):.1f} ({max(one.took_ms):.1f})"
        lines.append(f"| {name} | {took} | {one.size / 1e3:.0f} | {one.cpu_ms:.1f} |")
    alone, beside = (statistics.median(rates[name]) for name in (ALONE, BESIDE))
    spread = ", ".join(
        f"{name} {statistics.median(each):,.0f} ({min(each):,.0f} – {max(each):,.0f})"
        for name, each in rates.items()
    )
    return [
        *lines,
        "",
        f"Records of 1 KB a second, acks=all: {spread}; ratio of the medians "
        f"**{beside / alone:.3f}**. At one scrape each {USUAL_S:.0f} s the processor time is "
        f"**{share(found) * 100:.2f} %** of one core for all four processes together.",
        "",
        f"An operator that leads {OPERATORS_PARTITIONS:,} partitions: the longest turn of its loop "
        f"is **{operator.held_ms:.0f} ms**; counting them takes {operator.counting_ms:.0f} ms in "
        f"slices, once after each commit, and rendering {operator.rendering_ms:.0f} ms.",
    ]


def share(found: dict[str, Scrapes]) -> float:
    """Return the share of one core."""
    return sum(one.cpu_ms for one in found.values()) / 1e3 / USUAL_S


def exceeded(found: dict[str, Scrapes], operator: OfOperator) -> list[str]:
    """The budgets that a run on a quiet machine must keep to."""
    slow = [
        f"{name}: {statistics.median(one.took_ms):.0f} ms an answer"
        for name, one in found.items()
        if statistics.median(one.took_ms) > ANSWER_MS_MAX
    ]
    if share(found) > SHARE_MAX:
        slow.append(f"{share(found) * 100:.1f} % of a core")
    if operator.held_ms > HELD_MS_MAX:
        slow.append(f"the operator's loop was held for {operator.held_ms:.0f} ms")
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    arguments = parser.parse_args()
    operator = asyncio.run(of_operator())
    with TemporaryDirectory() as folder, LocalCluster(Path(folder) / "c", brokers=3) as cluster:
        prepare(cluster, arguments.partitions)
        time.sleep(5)
        found = targets(cluster)
        for scrapes in found.values():
            scrapes.measure()
        rates = in_turns(cluster, arguments.rounds, arguments.seconds)
        load = os.getloadavg()[0]
    lines = table(found, rates, operator)
    print("\n".join(lines))
    if arguments.write:
        said = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, 2 cores, load {load:.0f}"
        command = " ".join(["python -m bench.scraping", *sys.argv[1:]])
        write(MARK, [f"`{command}`, {said}:", "", *lines])
    too_much = exceeded(found, operator)
    print("\n".join(too_much), file=sys.stderr)
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
