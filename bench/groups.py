"""Groups, beside Apache Kafka 4.1 in one run: joins, commits, a killed coordinator, heartbeats.

Three brokers of each on loopback, in turn, asked by raw requests (`bench.group_client`), one
connection a member, with no client's timers; the broker that coordinates is the one whose processor
time and memory are given.  Quote the ratios: machines differ and are noisy.
A round of one system ends within `--limit-s`, its start counted: each row within a minute, and what
did not end by then is said and has no figure.  A measurement that is repeated is so for ten seconds
at most, and at least once.

    python -m bench.groups --rounds 3
    python -m bench.groups --system plimsoll --only heartbeats,joins --members 1000
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

from bench.group_client import COMMIT_VERSION, Committer, Member, commit_values, frame
from bench.group_members import ASK_S, TRY_EVERY_S, coordinator, joined_again, members
from bench.group_systems import (
    OFFSETS,
    SYSTEMS,
    System,
    address,
    create_topic,
    processor_s,
    rss_kb,
    wait_full,
)

from plimsoll_wire.api_versions import ApiKey

HEARTBEAT_S = 3.0
MANY = "many"
MANY_PARTITIONS = 100
COMMITTERS, IN_FLIGHT, GROUPS = 20, 8, 100
PACED_A_SECOND = 1_000
ROW_S, REPEAT_S = 60.0, 10.0
Figures = dict[str, float]
"""The figures of a round: by the row's name, with its unit."""


# --- the rows -------------------------------------------------------------------------------------


async def joins(system: System, arguments: argparse.Namespace) -> Figures:
    """All of a stable group join again at once: from the last JoinGroup to the last part."""
    found: Figures = {}
    for count, times in ((arguments.joining, arguments.times), (arguments.members, 3)):
        group = await members(system, f"joining-{count}", count)
        took = [await joined_again(group) * 1e3 for _ in _times(times)]
        found[f"{count} members join, ms, p50"] = statistics.median(took)
        found[f"{count} members join, ms, worst"] = max(took)
        for one in group:
            one.close()
    return found


def _times(most: int, seconds: float = REPEAT_S) -> Iterator[int]:
    """Yield at least once, and until `most` or the time is reached."""
    end = time.monotonic() + seconds
    for number in range(most):
        if number and time.monotonic() > end:
            return
        yield number


async def heartbeats(system: System, arguments: argparse.Namespace) -> Figures:
    count, seconds = arguments.members, arguments.seconds
    broker = await coordinator(system, "crowd")
    pid = system.pid(broker)
    before_kb = rss_kb(pid)
    group = await members(system, "crowd", count)
    grown_kb = rss_kb(pid) - before_kb
    quiet_s = await _spent(pid, seconds)
    beats = asyncio.gather(*(_beat(one, seconds) for one in group))
    busy_s = await _spent(pid, seconds)
    took = sorted(ms for each in await beats for ms in each)
    for one in group:
        one.close()
    return {
        f"heartbeats of {count} members, % of a core": (busy_s - quiet_s) / seconds * 100,
        f"heartbeats of {count} members, ms, p99": took[-len(took) // 100],
        f"{count} members with their connections, MiB": grown_kb / 1024,
    }


async def _spent(pid: int, seconds: float) -> float:
    before = processor_s(pid)
    await asyncio.sleep(seconds)
    return processor_s(pid) - before


async def _beat(member: Member, seconds: float) -> list[float]:
    took = []
    end = time.monotonic() + seconds
    await asyncio.sleep(hash(member.member_id) % 3_000 / 1_000)
    while time.monotonic() < end:
        began_s = time.monotonic()
        assert await member.heartbeat() == 0
        took.append((time.monotonic() - began_s) * 1_000)
        await asyncio.sleep(HEARTBEAT_S)
    return took


async def commits(system: System, arguments: argparse.Namespace) -> Figures:
    """One partition each, of a hundred groups: as many as go, then some a second."""
    await _accepted(system, "commit-0", (0, 1, 2))
    broker = await coordinator(system, "commit-0")
    frames = cycle(
        frame(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, commit_values(f"commit-{n}", MANY, one, 7))
        for n in range(GROUPS)
        for one in [range(1)]
    )
    goes_on = True
    made: list[Committer] = []
    for _ in range(COMMITTERS):
        loop = asyncio.get_running_loop()
        each = partial(Committer, lambda: next(frames) if goes_on else None)
        made.append((await loop.create_connection(each, *address(system, broker)))[1])
    try:
        for one in made * IN_FLIGHT:
            one.send()
        await asyncio.sleep(
            arguments.seconds / 3
        )  # a warm-up, of a just-in-time compiler above all
        before = sum(len(one.took) for one in made)
        spent_s, began_s = processor_s(system.pid(broker)), time.perf_counter()
        firsts = [len(one.took) for one in made]
        await asyncio.sleep(arguments.seconds)
        seconds = time.perf_counter() - began_s
        count = sum(len(one.took) for one in made) - before
        spent_s = processor_s(system.pid(broker)) - spent_s
        busy = [took for one, first in zip(made, firsts, strict=True) for took in one.took[first:]]
        goes_on = False
        await _quiet(made)
        paced = await _paced(made, frames, arguments.seconds)
    finally:
        for one in made:
            one.close()
    return {
        "commits a second": count / seconds,
        "commits, coordinator's processor, µs each": spent_s / count * 1e6,
        "commits, all that go, ms, p99": _p99(busy),
        f"commits, {PACED_A_SECOND} a second, ms, p50": statistics.median(paced) * 1e3,
        f"commits, {PACED_A_SECOND} a second, ms, p99": _p99(paced),
    }


async def _paced(made: list[Committer], frames: cycle[bytes], seconds: float) -> list[float]:
    """Send `PACED_A_SECOND` commits a second, answered or not; return the times of the answers."""
    firsts = [len(one.took) for one in made]
    due, end = time.perf_counter(), time.perf_counter() + seconds
    for one in cycle(made):
        due += 1 / PACED_A_SECOND
        if due > end:
            break
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        one.send_one(next(frames))
    await _quiet(made)
    return [took for one, first in zip(made, firsts, strict=True) for took in one.took[first:]]


async def _quiet(made: list[Committer]) -> None:
    for one in made:
        await one.idle.wait()


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[-max(len(seconds) // 100, 1)] * 1e3


async def failover(system: System, arguments: argparse.Namespace) -> Figures:
    """The coordinator of many offsets is killed: until another accepts a commit."""
    group = "offsets-0"
    writer = Member(group)
    await writer.connect(*address(system, await coordinator(system, group)))
    for number in range(arguments.offsets // MANY_PARTITIONS):
        writer.group = f"offsets-{number}"
        assert not any(await writer.commit(MANY, MANY_PARTITIONS, 7))
    writer.close()
    took, loads = [], len(system.loads())
    for _ in _times(arguments.kills, REPEAT_S * 3):
        broker = await coordinator(system, group)
        began_s = time.monotonic()
        system.kill(broker)
        await _accepted(system, group, tuple(one for one in range(3) if one != broker))
        took.append(time.monotonic() - began_s)
        await asyncio.to_thread(system.start_again, broker)
        await asyncio.to_thread(wait_full, system, OFFSETS, MANY)
    found = {
        "coordinator killed, s, p50": statistics.median(took),
        "coordinator killed, s, worst": max(took),
    }
    rates = [records / max(ms, 1) * 1e3 for records, ms in system.loads()[loads:] if records]
    return found | ({"load, records a second": statistics.median(rates)} if rates else {})


async def _accepted(system: System, group: str, brokers: tuple[int, ...]) -> None:
    while True:
        broker = await coordinator(system, group, brokers)
        asking = Member(group)
        try:
            async with asyncio.timeout(ASK_S * 5):
                await asking.connect(*address(system, broker))
                codes = await asking.commit(MANY, 1, 8)
            asking.close()
            if codes == [0]:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(TRY_EVERY_S)


ROWS: dict[str, Callable[[System, argparse.Namespace], Awaitable[Figures]]] = {
    "heartbeats": heartbeats,  # first: its memory is that of a new process
    "commits": commits,
    "joins": joins,
    "failover": failover,
}


async def measure(system: System, arguments: argparse.Namespace, end: float) -> Figures:
    create_topic(system, MANY, MANY_PARTITIONS)
    await coordinator(system, "any")
    wait_full(system, OFFSETS)
    found: Figures = {}
    for name in arguments.only.split(","):
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(ROW_S, max(end - began, 0))) as limit:
                found |= await ROWS[name](system, arguments)
        except TimeoutError:
            if not limit.expired():
                raise
            print(f"    {name}: not within {time.monotonic() - began:.0f} s", flush=True)
        else:
            print(f"    {name}: measured in {time.monotonic() - began:.0f} s", flush=True)
    return found


def one_round(name: str, arguments: argparse.Namespace) -> Figures:
    end = time.monotonic() + arguments.limit_s
    with (
        tempfile.TemporaryDirectory() as directory,
        SYSTEMS[name](Path(directory, name)) as system,
    ):
        return asyncio.run(measure(system, arguments, end))


def show(rounds: dict[str, list[Figures]]) -> None:
    """A row each; the ratio is of the medians."""
    print(f"\n| | {' | '.join(rounds)} | ratio |\n|---|{'---|' * len(rounds)}---|")
    names = dict.fromkeys(name for found in rounds.values() for each in found for name in each)
    for name in names:
        columns, medians = [], []
        for found in rounds.values():
            values = [each[name] for each in found if name in each]
            columns.append(spread(values) if values else "")
            medians += [statistics.median(values)] if values else []
        ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == 2 and medians[1] else ""
        print(f"| {name} | {' | '.join(columns)} | {ratio} |")


def spread(values: list[float]) -> str:
    digits = 0 if min(values) >= 100 else 2
    low, median, high = min(values), statistics.median(values), max(values)
    return f"{median:.{digits}f} ({low:.{digits}f} – {high:.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", choices=SYSTEMS, help="this one alone")
    parser.add_argument("--only", default=",".join(ROWS), help="which, with commas between")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--joining", type=int, default=100)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--offsets", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=170, help="of a system's round")
    arguments = parser.parse_args()
    names = [arguments.system] if arguments.system else list(SYSTEMS)
    rounds: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(arguments.rounds):
        for name in names:
            print(f"round {number + 1} {name}:", flush=True)
            found = one_round(name, arguments)
            rounds[name].append(found)
            for row, value in found.items():
                print(f"    {row}: {value:.2f}", flush=True)
    show(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
