"""A hostile principal against one that measures: `make tenants FOR=600`, `SEED=n`, `ACT=name`.

A local cluster with TLS, logins and rights (`plimsoll local --secure`), each broker within a memory
limit and a few thousand descriptors, without any quota.  A tenant measures alone, then beside each
attack that a seed draws (tenant_grammar.py), then until all that was begun has ended
(tenant_victim.py).  Judged after each: no error for the tenant, no broker gone, memory within the
limit, descriptors, bytes of logs; and latency, at most twice that of alone or 250 ms more.  Each
step's seed is the one before plus one; without one, the first is the lowest that has an attack of
its own.  The table is Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.declared import log_cluster
from tests.integration.listening import free_ports
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for
from tests.integration.tenant_client import Login, Place
from tests.integration.tenant_foe import PARTITIONS
from tests.integration.tenant_foe import TOPIC as HOSTILE_TOPIC
from tests.integration.tenant_grammar import (
    FIRST,
    GRAMMAR,
    LOWEST,
    Sentence,
    drawn,
    drawn_of,
    play,
)
from tests.integration.tenant_victim import OPERATIONS, TOPIC, Victim

from plimsoll_core.addresses import split_address

MIB = 2**20
MEMORY = 512 * MIB
DESCRIPTORS = 4_000
LOG_BYTES, LOG_BYTES_S = MIB, 128 * 1024
"""Of one process's log in a step, and more for each second of it."""
ALONE_KEPT = 1_000
"""Of each operation: the last that were measured alone."""
TIMES, MORE_MS = 2.0, 250.0
LOOKED_S = 0.5
ANSWERS_S = 60.0
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- begin tenants -->", "<!-- end tenants -->"
USERS = ("victim", "mallory", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Seconds of each part of a step."""

    alone_s: float = 5.0
    beside_s: float = 15.0
    judges_latency: bool = True
    brokers: int = 3


# --- the cluster ----------------------------------------------------------------------------------


class Limited(LocalCluster):
    """Its processes may have so many descriptors, but where they are forked from a test's."""

    @property
    def command(self) -> list[str]:
        limit = () if self.forked else ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
        return [*limit, *super().command]


def a_user(name: str) -> str:
    """One that may do all with its own topics and groups, but for `nobody`."""
    kinds = () if name == "nobody" else ("Topic", "Group")
    acls = [
        {
            "resource": {"type": kind, "name": f"{name}.", "pattern": "Prefixed"},
            "operations": ["All"],
        }
        for kind in kinds
    ]
    spec = {"clusterRef": {"name": "main"}, "authentication": {"scram": {}}, "acls": acls}
    head = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "User", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


@contextlib.contextmanager
def a_cluster(directory: Path, brokers: int) -> Iterator[LocalCluster]:
    """With the users' logins and both topics."""
    config = {"memory.limit.bytes": MEMORY, "group.initial.rebalance.delay.ms": 0}
    anybody = {"allowedNamespaces": {"from": "All"}}
    declared = log_cluster(brokers, config=config, users=anybody, topics=anybody)
    file = directory / "tenants.yaml"
    file.write_text("\n---\n".join([declared, *map(a_user, USERS)]))
    (port,) = free_ports(1)
    arguments = ("--secure", "--port", str(port))
    with Limited(
        directory / "cluster",
        brokers=None,
        files=[file],
        restart=False,
        arguments=arguments,
    ) as cluster:
        users = Path(cluster.ready["users"])
        for name in (*USERS, "admin"):
            wait_for(f"the login of {name}", (users / name / "password").exists)
        create_topics(cluster, brokers)
        yield cluster


def create_topics(cluster: LocalCluster, brokers: int) -> None:
    """Of the tenant and of the hostile user, small ones."""
    text = (Path(cluster.ready["users"]) / "admin" / "librdkafka.conf").read_text()
    config = dict(line.split("=", 1) for line in text.splitlines())
    admin = AdminClient({**config, "bootstrap.servers": cluster.bootstrap, "log_level": 0})
    small = {"retention.bytes": str(8 * MIB), "segment.bytes": str(2 * MIB)}
    made = [
        NewTopic(name, partitions, min(3, brokers), config=small)
        for name, partitions in ((TOPIC, 1), (HOSTILE_TOPIC, PARTITIONS))
    ]
    for future in admin.create_topics(made).values():
        future.result(WAIT_S)


def place_of(cluster: LocalCluster) -> Place:
    addresses = tuple(split_address(one) for one in cluster.bootstrap.split(","))
    return Place(addresses, str(cluster.ready["authority"]), cluster.directory)


def logins_of(cluster: LocalCluster) -> dict[str, Login]:
    users = Path(cluster.ready["users"])
    names = (*USERS, "admin")
    return {name: Login(name, (users / name / "password").read_text().strip()) for name in names}


# --- the hostile process --------------------------------------------------------------------------


def _hostile(orders: Connection) -> None:
    """Is told where and as whom, then plays each sentence that comes until the next word comes:
    answers once each act has begun, and in the end what it did."""
    os.nice(19)  # a real one takes no processor from the machine that it disturbs
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def obey() -> None:
        loop = asyncio.get_running_loop()
        told: tuple[Place, dict[str, Login]] | None = await loop.run_in_executor(None, orders.recv)
        while told and (sentence := await loop.run_in_executor(None, orders.recv)) is not None:
            did: dict[str, Counter[str]] = {}
            playing = asyncio.create_task(play(sentence, *told, did))
            while not playing.done() and not (did and all(one["sent"] for one in did.values())):
                await asyncio.wait([playing], timeout=0.01)
            orders.send("begun")
            await loop.run_in_executor(None, orders.recv)
            failed = playing.done() and not playing.cancelled() and playing.exception()
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            orders.send((did, repr(failed) if failed else ""))

    asyncio.run(obey())


class Hostile:
    """A process of its own, so that it takes no turn from whoever measures."""

    def __init__(self) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._orders, theirs = spawned.Pipe()
        self._process = spawned.Process(target=_hostile, args=(theirs,), daemon=True)

    def __enter__(self) -> Hostile:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._orders.send(None)
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def tell(self, place: Place, logins: dict[str, Login]) -> None:
        """Before the first attack."""
        self._orders.send((place, logins))

    async def begin(self, sentence: Sentence) -> None:
        """Until each act has sent something."""
        self._orders.send(sentence)
        assert await self._answer() == "begun"

    async def end(self) -> dict[str, Counter[str]]:
        """What each act did; raises AssertionError when one had a bug, or it does not answer."""
        self._orders.send("end")
        did, failed = await self._answer()
        assert not failed, f"an attack has a bug: {failed}"
        found: dict[str, Counter[str]] = did
        return found

    async def _answer(self) -> Any:
        there = await asyncio.to_thread(self._orders.poll, ANSWERS_S)
        assert there, "the hostile process does not answer"
        return self._orders.recv()


# --- what a step costs ----------------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """The most that a broker had while it was looked at, twice a second."""

    cluster: LocalCluster
    pids: dict[str, int]
    rss: int = 0
    descriptors: int = 0
    gone: list[str] = field(default_factory=list)

    def look(self) -> None:
        self.gone = []
        for name, pid in self.pids.items():
            try:
                process = psutil.Process(pid)
                rss, descriptors = process.memory_info().rss, process.num_fds()
            except psutil.Error:
                self.gone.append(name)
                continue
            if name != "controller":
                self.rss = max(self.rss, rss)
                self.descriptors = max(self.descriptors, descriptors)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        self.rss = self.descriptors = 0

        async def look() -> None:
            while True:
                await asyncio.to_thread(self.look)
                await asyncio.sleep(LOOKED_S)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def log_bytes(self) -> dict[str, int]:
        """By process."""
        logs = (self.cluster.directory / "logs").glob("*.log")
        return {path.stem: path.stat().st_size for path in logs}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one operation, in milliseconds."""

    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, took: list[float]) -> Figures:
        if len(took) < 2:
            return cls(*(3 * [took[0] if took else 0.0]))
        cuts = statistics.quantiles(took, n=100, method="inclusive")
        return cls(cuts[49], cuts[98], max(took))

    def __str__(self) -> str:
        return f"{self.p50:.0f} / {self.p99:.0f} / {self.worst:.0f}"


@dataclass(slots=True)
class Step:
    """One attack and what came of it; `wrong` is empty when all is well."""

    sentence: Sentence
    alone: dict[str, Figures]
    beside: dict[str, Figures]
    errors: list[str]
    watch: tuple[int, int, int]
    """Bytes of memory, descriptors, and bytes of the longest log that was written."""
    did: dict[str, Counter[str]]
    wrong: list[str] = field(default_factory=list)

    def row(self) -> str:
        rss, descriptors, log = self.watch
        latencies = [f"{self.alone[name]} → {self.beside[name]}" for name in OPERATIONS]
        cells = [
            str(self.sentence.seed), str(self.sentence), *latencies, str(len(self.errors)),
            f"{rss / MIB:.0f}", str(descriptors), f"{log / 1024:.0f}",
            "; ".join(self.wrong) or "well",
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEAD = (
    f"| seed | attack | {' | '.join(OPERATIONS)} | errors | memory, MiB | descriptors"
    " | log, KiB | judged |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
"""Latencies: p50 / p99 / worst in ms, alone → beside; the rest is of the broker that had most."""


def by_act(steps: list[Step]) -> Iterator[str]:
    """A table for readers: a row for each principal's act, alone or with others, and in it the
    worst of all steps: p99 alone → beside.  With few blanks: documents have a limit of words."""
    names = "|".join(f"{name} p99, ms" for name in OPERATIONS)
    yield f"|act|attacks|{names}|worst, ms|errors|memory, MiB|descriptors|log, KiB|noticed|"
    yield "|---" * 11 + "|"
    found: dict[str, list[Step]] = {}
    for step in steps:
        for phrase in step.sentence.phrases:
            found.setdefault(f"{step.sentence.principal}:`{phrase.act}`", []).append(step)
    for name, those in sorted(found.items()):
        cells = [name, str(len(those))]
        for operation in OPERATIONS:
            most = max(those, key=lambda step: step.beside[operation].p99)
            cells.append(f"{most.alone[operation].p99:.0f}→{most.beside[operation].p99:.0f}")
        worst = max(figures.worst for step in those for figures in step.beside.values())
        rss, descriptors, log = (max(step.watch[at] for step in those) for at in range(3))
        noticed = ",".join(str(step.sentence.seed) for step in those if step.wrong)
        cells += [
            f"{worst:.0f}", str(sum(len(step.errors) for step in those)), f"{rss / MIB:.0f}",
            str(descriptors), f"{log / 1024:.0f}", f"seeds {noticed}" if noticed else "none",
        ]  # fmt: skip
        yield f"|{'|'.join(cells)}|"


class Run:
    """Steps on one cluster, one after another."""

    def __init__(self, cluster: LocalCluster, victim: Victim, hostile: Hostile, plan: Plan) -> None:
        self.plan = plan
        self._victim, self._hostile = victim, hostile
        self._watch = Watch(cluster, cluster.pids)
        self._alone: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    async def step(self, sentence: Sentence) -> Step:
        """Alone, beside the attack, and until what was begun beside it has ended."""
        victim, watch, plan = self._victim, self._watch, self.plan
        quiet = time.monotonic()
        await asyncio.sleep(plan.alone_s)
        began, logged = time.monotonic(), watch.log_bytes()
        async with watch.looking():
            await self._hostile.begin(sentence)
            await asyncio.sleep(plan.beside_s)
            ended = time.monotonic()
            did = await self._hostile.end()
            await victim.finished(max(ended, time.monotonic()))
            await asyncio.to_thread(watch.look)
        over = time.monotonic()
        figures: dict[str, Figures] = {}
        errors: list[str] = []
        for name in OPERATIONS:
            kept = self._alone[name]
            alone = victim.between(name, quiet, began)
            kept += [one.took_ms for one in alone if not one.error]
            del kept[:-ALONE_KEPT]
            beside = victim.between(name, began, over)
            figures[name] = Figures.of([one.took_ms for one in beside])
            errors += [one.error for one in (*alone, *beside) if one.error]
        before = {name: Figures.of(self._alone[name]) for name in OPERATIONS}
        log = max(size - logged.get(name, 0) for name, size in watch.log_bytes().items())
        seen = (watch.rss, watch.descriptors, log)
        step = Step(sentence, before, figures, errors, seen, did)
        step.wrong = [*self._bounds(step, over - began)]
        if plan.judges_latency:
            step.wrong += too_slow(before, figures)
        return step

    def _bounds(self, step: Step, seconds: float) -> Iterator[str]:
        rss, descriptors, log = step.watch
        if self._watch.gone:
            yield f"ended: {', '.join(self._watch.gone)}"
        for error, times in Counter(step.errors).most_common(3):
            yield f"{times} × {error}"
        if rss > MEMORY:
            yield f"{rss / MIB:.0f} MiB of a limit of {MEMORY // MIB}"
        if descriptors > DESCRIPTORS * 3 // 4:
            yield f"{descriptors} descriptors of {DESCRIPTORS}"
        if log > LOG_BYTES + LOG_BYTES_S * seconds:
            yield f"{log / seconds / 1024:.0f} KiB of log a second"


def too_slow(alone: dict[str, Figures], beside: dict[str, Figures]) -> Iterator[str]:
    """Each operation whose p50 or p99 is beyond twice that of alone and 250 ms more."""
    for name in OPERATIONS:
        for figure in ("p50", "p99"):
            before, now = getattr(alone[name], figure), getattr(beside[name], figure)
            if now > max(TIMES * before, before + MORE_MS):
                yield f"{name} {figure} {now:.0f} ms, alone {before:.0f}"


@contextlib.asynccontextmanager
async def a_run(directory: Path, plan: Plan) -> AsyncIterator[Run]:
    """On a cluster of its own."""
    with contextlib.ExitStack() as stack:
        # Its imports take as long as a cluster's start.
        hostile = stack.enter_context(Hostile())
        cluster = stack.enter_context(a_cluster(directory, plan.brokers))
        place, logins = place_of(cluster), logins_of(cluster)
        hostile.tell(place, logins)
        victim = Victim(place, logins)
        async with victim.measuring():
            yield Run(cluster, victim, hostile, plan)


async def attacked(
    directory: Path, sentences: Iterator[Sentence], seconds: float, plan: Plan, steps: list[Step]
) -> None:
    """Steps until the time is over, or the attacks; adds and prints each as it ends."""
    async with a_run(directory, plan) as run:
        print("\n".join(HEAD), flush=True)
        end_s = time.monotonic() + seconds
        for sentence in sentences:
            if time.monotonic() >= end_s:
                break
            steps.append(step := await run.step(sentence))
            print(step.row(), flush=True)
            for act, did in step.did.items():
                counts = ", ".join(f"{name} {count}" for name, count in sorted(did.items()))
                print(f"{step.sentence.seed} {act}: {counts}", file=sys.stderr, flush=True)
            if any(one.startswith("ended") for one in step.wrong):
                break


def summary(steps: list[Step], seconds: float, brokers: int) -> Iterator[str]:
    """What was run, and what of it was beyond the bounds: a line each."""
    seeds = [step.sentence.seed for step in steps]
    wrong = [step for step in steps if step.wrong]
    yield (
        f"`python -m tests.integration.tenants` with seeds {min(seeds)} to {max(seeds)}, "
        f"{seconds / 60:.0f} minutes, {brokers} brokers, operator, tenant and attacker on "
        f"{os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}: {len(steps)} attacks, "
        f"{len(wrong)} noticed{':' if wrong else '.'}"
    )
    if wrong:
        yield ""
    for step in wrong:
        attack = str(step.sentence).replace(" ", "")
        yield f"- {step.sentence.seed}: `{attack}`: {'; '.join(step.wrong)}"


def _write(lines: list[str]) -> None:
    """Between two marks."""
    before, begun, rest = DOCUMENT.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert begun
    assert ended, f"{DOCUMENT} has the marks"
    DOCUMENT.write_text("\n".join((f"{before}{BEGIN}", *lines, f"{END}{after}")))


def _sentences(seed: int | None, acts: list[str] | None) -> Iterator[Sentence]:
    """`acts`: each alone, one after another; without a seed once, else again with the next."""
    if not acts:
        yield from map(drawn, itertools.count(LOWEST if seed is None else seed))
        return
    named = {one.phrases[0].act: one for one in map(drawn, range(len(FIRST), LOWEST - 1, -1))}
    if seed is None:
        yield from (named.get(act) or drawn_of(act, 0) for act in acts)
        return
    for number in itertools.count(seed):
        yield from (drawn_of(act, number) for act in acts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.tenants")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help=f"of the first step; else {LOWEST}")
    parser.add_argument(
        "--act",
        action="append",
        choices=sorted(GRAMMAR),
        help="that act alone, as it is named first in the grammar; with --seed as this draws it",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument("--write", action="store_true", help="the table into docs/security.md")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs")
    given = parser.parse_args()
    steps: list[Step] = []
    began = time.monotonic()
    sentences = _sentences(given.seed, given.act)
    with tempfile.TemporaryDirectory() as directory:
        work = given.keep or Path(directory)
        work.mkdir(parents=True, exist_ok=True)
        plan = Plan(brokers=given.brokers)
        try:
            asyncio.run(attacked(work, sentences, given.seconds, plan, steps))
        finally:
            if steps:
                lines = [*summary(steps, time.monotonic() - began, given.brokers), ""]
                lines += by_act(steps)
                print("", *lines, sep="\n")
                if given.write:
                    _write(lines)
    return 1 if any(step.wrong for step in steps) else 0


if __name__ == "__main__":
    sys.exit(main())
