"""What following many idle partitions costs, with fetch sessions and without, side by side.

    python -m bench.fetch_sessions [--partitions 1000] [--rounds 2000]

Two data paths in this process: broker 0 leads every partition, broker 1 follows over a real
socket, a client writes single small batches with acks=all to one of them.  A batch is one round:
the records go out in a reply, the next fetch acknowledges them.  Counted is processor time, of both
brokers and the client together.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.handlers import fetch_session


async def measure(partitions: int, rounds: int, *, sessions: bool) -> tuple[float, float]:
    """Processor time of a round in microseconds, and of a second without any, in milliseconds."""
    fetch_session.PARTITIONS_MAX = 100_000 if sessions else 0
    with TemporaryDirectory() as directory:
        controller = Controller()
        brokers = [Broker(controller, b, Path(directory) / str(b)) for b in range(2)]
        for broker in brokers:
            await broker.start()
        controller.create("t", *[(0, 1)] * partitions)
        while any(len(broker.manager) < partitions for broker in brokers):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        client = await brokers[0].client()
        for _ in range(100):  # all peers are known, every log is synced
            code, _ = await client.produce("t", a_batch(1))
            assert code == 0, code
        while any(broker.store.begin_new() for broker in brokers):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # new logs are synced in threads
        gc.collect()
        gc.disable()
        began = time.process_time()
        for _ in range(rounds):
            await client.produce("t", a_batch(1))
        busy = (time.process_time() - began) / rounds * 1e6
        began, seconds = time.process_time(), 5
        await asyncio.sleep(seconds)
        idle = (time.process_time() - began) / seconds * 1e3
        gc.enable()
        for broker in brokers:
            await broker.stop()
    return busy, idle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    many = arguments.partitions
    results: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    for _ in range(arguments.repeat):
        for case in ((1, True), (many, True), (1, False), (many, False)):
            partitions, sessions = case
            rounds = arguments.rounds if sessions or partitions == 1 else arguments.rounds // 10
            measured = uvloop.run(measure(partitions, rounds, sessions=sessions))
            results.setdefault(case, []).append(measured)
    costs = {}
    for (partitions, sessions), measured in results.items():
        busy = statistics.median(each[0] for each in measured)
        idle = statistics.median(each[1] for each in measured)
        costs[partitions, sessions] = busy, idle
        how = "with" if sessions else "without"
        print(
            f"{partitions:6} partitions {how:7} sessions: {busy:8.0f} us a round, "
            f"{idle:6.1f} ms of processor time a second when idle"
        )
    with_, without = costs[many, True], costs[many, False]
    print(
        f"ratio: {without[0] / with_[0]:.1f} a round, {without[1] / with_[1]:.1f} when idle; "
        f"a round among {many} costs {with_[0] / costs[1, True][0]:.2f} of one alone"
    )


if __name__ == "__main__":
    main()
