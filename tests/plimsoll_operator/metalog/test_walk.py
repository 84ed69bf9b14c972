"""Random walks: several writers on one small ring, every request at the mercy of the walk.

A writer's request may happen at once, happen and lose its reply, never happen, or seem lost and
happen any time later; writers freeze in between, are cancelled, snapshot, and take over from each
other.  Whatever happens, what a writer was told is committed is in the log, once, in one order that
all readers agree on, and nothing else is ever told.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.plimsoll_operator.metalog.fake_api import Request, Store
from tests.plimsoll_operator.metalog.shells import PLACE
from tests.plimsoll_operator.metalog.writer import Writer, image_of

from plimsoll_operator.metalog.interface import (
    AppendConflict,
    LogUnavailable,
    SnapshotRequired,
)
from plimsoll_operator.metalog.kube_objects import Answer, Unanswered
from plimsoll_operator.metalog.kubernetes_log import RingLog, RingOptions

OPTIONS = RingOptions(slots=8, backoff_ms=0)


@dataclass
class Waiting:
    request: Request
    reply: "asyncio.Future[Answer]"


class WalkedApi:
    """Parks every request until the walk chooses what becomes of it."""

    def __init__(self, waiting: list[Waiting]) -> None:
        self._waiting = waiting

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        request = Request(method=method, path=path, params=dict(params or {}), body=body)
        waiting = Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        return await waiting.reply

    async def close(self) -> None: ...


class Actor:
    """A controller process: takes over, writes, snapshots, until deposed; then from the start."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.waiting: list[Waiting] = []
        self.chance = chance
        self.writer = Writer(RingLog(WalkedApi(self.waiting), PLACE, OPTIONS), name)
        self.task: asyncio.Task[None] | None = None
        self.deposed = 0
        self.snapshots = 0
        self._count = 0

    async def live(self) -> None:
        while True:
            try:
                await self.writer.open()
                await self.writer.begin()
                await self.reign()
            except AppendConflict:
                self.deposed += 1
            except LogUnavailable:
                continue

    async def reign(self) -> None:
        while True:
            try:
                if self.writer.log.needs_snapshot() or self.chance.random() < 0.1:
                    await self.writer.snapshot()
                    self.snapshots += 1
                    continue
                self._count += 1
                await self.writer.put(f"{self.writer.name}/{self._count}")
            except SnapshotRequired:
                await self.writer.snapshot()
                self.snapshots += 1

    def restart(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.waiting.clear()
        self.task = asyncio.create_task(self.live())


class Walk:
    def __init__(self, seed: int, writers: int) -> None:
        self.chance = random.Random(seed)
        self.store = Store()
        self.late: list[Request] = []
        self.actors = [Actor(f"w{number}", self.chance) for number in range(writers)]
        self.log: dict[int, str] = {}

    async def run(self, steps: int) -> None:
        for actor in self.actors:
            actor.restart()
        for _ in range(steps):
            await settle()
            self.step()
            self.watch()
        for actor in self.actors:
            assert actor.task is not None
            actor.task.cancel()
            await asyncio.wait([actor.task])
            assert actor.task.cancelled(), actor.task.exception()
        for request in self.late:
            self.store.handle(request)
            self.watch()

    def step(self) -> None:
        if self.late and self.chance.random() < 0.05:
            self.store.handle(self.late.pop(self.chance.randrange(len(self.late))))
            return
        actor = self.chance.choice(self.actors)
        if self.chance.random() < 0.002:
            actor.restart()
            return
        if not actor.waiting:
            return
        waiting = actor.waiting.pop(self.chance.randrange(len(actor.waiting)))
        if not waiting.reply.done():
            self.fate(waiting.request)(waiting)

    def fate(self, request: Request) -> Callable[[Waiting], None]:
        roll = self.chance.random()
        if not request.writes or roll < 0.8:
            return self.carry_out if roll < 0.97 else self.drop
        return self.chance.choice([self.lose_reply, self.drop, self.postpone, self.throttle])

    def carry_out(self, waiting: Waiting) -> None:
        waiting.reply.set_result(self.store.handle(waiting.request))

    def lose_reply(self, waiting: Waiting) -> None:
        self.store.handle(waiting.request)
        waiting.reply.set_exception(Unanswered("lost"))

    def drop(self, waiting: Waiting) -> None:
        waiting.reply.set_exception(Unanswered("lost"))

    def postpone(self, waiting: Waiting) -> None:
        self.late.append(waiting.request)
        waiting.reply.set_exception(Unanswered("lost"))

    def throttle(self, waiting: Waiting) -> None:
        waiting.reply.set_result(Answer(status=429, body=b"{}"))

    def watch(self) -> None:
        """An observer of the storage itself: a sequence, once written, never changes hands."""
        for (plural, _), item in self.store.objects.items():
            spec = item["spec"]
            if plural == "metadatabatches" and "sequence" in spec:
                nonce = self.log.setdefault(spec["sequence"], spec["nonce"])
                assert nonce == spec["nonce"], spec["sequence"]

    async def image(self) -> list[str]:
        """What a reader finds in the end."""
        waiting: list[Waiting] = []
        task = asyncio.create_task(RingLog(WalkedApi(waiting), PLACE, OPTIONS).read())
        while not task.done():
            while waiting:
                self.carry_out(waiting.pop())
            await asyncio.sleep(0)
        return image_of(task.result())


async def settle() -> None:
    """Let every task run until it waits for the walk."""
    for _ in range(12):
        await asyncio.sleep(0)


async def walked(seed: int, writers: int, steps: int) -> tuple[int, int, int]:
    walk = Walk(seed, writers)
    await walk.run(steps)
    image = await walk.image()
    assert len(set(image)) == len(image)
    for actor in walk.actors:
        acked = actor.writer.acked
        positions = [image.index(mark) for mark in acked if mark in image]
        assert len(positions) == len(acked), set(acked) - set(image)
        assert positions == sorted(positions)
        assert image[: len(actor.writer.image)] == actor.writer.image
    return (
        len(walk.log),
        sum(actor.deposed for actor in walk.actors),
        sum(actor.snapshots for actor in walk.actors),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("writers", [2, 3])
async def test_random_walks_commit_correctly_and_readers_agree(seed: int, writers: int) -> None:
    await walked(seed, writers, 1200)


@pytest.mark.slow
async def test_walks_go_round_depose_and_snapshot() -> None:
    """The promise above would be empty if the walks went nowhere."""
    batches, deposed, snapshots = 0, 0, 0
    for seed in range(100, 103):
        done = await walked(seed, 2, 1500)
        batches, deposed, snapshots = batches + done[0], deposed + done[1], snapshots + done[2]
    assert batches > 3 * 4 * OPTIONS.slots, batches
    assert deposed > 20, deposed
    assert snapshots > 20, snapshots
